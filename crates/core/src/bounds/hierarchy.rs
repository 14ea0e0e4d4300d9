//! Bounds through a tree of classes.

use super::{Transmit, Wfi, Work};
use crate::units::{Length, Nanos, Rate};

/// The service of a class, whatever the others do: over any time T in which it is backlogged, the [tree](crate::tree)
/// sends at least `rate T - lag` of it. In the terms of network calculus this is a strict service curve. Directly under
/// WF2Q it is a service curve that is not [strict](Service::is_strict): [less](#wf2q), and enough for the delay of each
/// packet and for the [room](Service::room) of a class.
///
/// # Down the tree
///
/// A node's B-WFI (alpha) is stated in the node's own work W_n, not in time: a child of share phi that is backlogged
/// from t1 to t2 receives `W >= phi W_n - alpha`. This holds however fast and however evenly the node itself is served,
/// since virtual time advances by the node's work, and turns by the bytes sent in them: no node reads a clock. While
/// the child is backlogged so is the node, and the node's own `W_n >= r T - s` gives
///
/// ```text
/// W >= phi r T - (phi s + alpha)
/// ```
///
/// Carried on from the link, which has R and a lag of one packet that is half sent, this is
/// Bennett and Zhang's composition (1997, Theorem 1): the shares multiply, and the B-WFI of a
/// class is the sum over the levels of each node's, times the shares of all levels below it.
///
/// Theirs is for servers that commit: each node holds one packet that it has chosen, which stays its head though a
/// better one arrives, and their per-node terms pay for it. Here no node chooses before its parent has: one decision
/// goes from the root to a leaf, and nothing arrives meanwhile. So a node never holds work that was taken and not yet
/// handed on; Q is 0 at all nodes ([`Transmit::Between`]), and the transmit queue counts once, at the link. The price
/// is that a parent does not know the length of the next packet, which [`Head::Longest`](super::Head::Longest)
/// describes per algorithm.
///
/// Q packets are sent behind the decision, so a packet that has B bytes of its class in front, its own included, has
/// left (B + lag) / rate and Q's time after it arrived ([`delay`](Service::delay)). In the last node the T-WFI says the
/// same of a packet more precisely, that the node does the work `B / phi` plus T until the packet leaves it
/// ([`delay_below`](Service::delay_below)).
///
/// # Ceilings
///
/// A class with a ceiling of rate c and burst b, packets up to L_k, and a service of r and s
/// without the ceiling, has what [`below_ceiling`](Service::below_ceiling) returns:
///
/// ```text
/// rate = min(c, r min(1, (b - L_k) / s))      lag = s + L_k
/// ```
///
/// Call debt the service of the class that rate c has not yet paid off, never below 0. The class is held while its debt
/// is above b - L_k, so that debt is b at most. Cut [t1, t2] where a hold ends; there, debt is b - L_k.
///
/// * Between two such ends, or up to the first, where debt does not reach 0: the service is c T plus the difference of
///   debts. That is 0 between two ends; up to the first it takes away L_k at most.
/// * Where debt reaches 0, for the last time after x, it was not held until then, and
///   was handed out `max(0, r x - s)` at least; from then on, c times the rest, and b - L_k. If
///   b - L_k >= s, this is min(c, r) T or more. Otherwise it may have lost credit that it was
///   too late for, s - (b - L_k) each time, while r x is s at least, which leaves a part of
///   (b - L_k) / s of r.
/// * After the last end: r T - s.
///
/// A hold ends at a whole nanosecond, when up to c times 1 ns more of the debt is gone.
///
/// A packet that arrives at an empty class is held until the debt is down to b - L_k, and then waits as it would
/// without the ceiling, since nothing more is charged until it leaves: `L_k / c` ([`hold`](Service::hold)) on top of
/// the delay without the ceiling.
///
/// # Strict priority
///
/// A class waits for all classes before it in the same node, and for those that take turns with it. Where each of these
/// has a ceiling, they take `b_j + c_j T` at most, so that `r - sum c_j` and `s + sum b_j` remain
/// ([`behind`](Service::behind)). Without a ceiling there is no bound.
///
/// # WF2Q
///
/// WF2Q follows the fluid server. That may finish a packet of a class while a long packet of another class is sent, and
/// gives the class nothing until its next packet arrives; WF2Q never makes up for that. So a class that enqueues its
/// next packet only when the last one leaves falls behind its share without limit, although it is always backlogged.
/// Its service is not strict: of a class with arrivals A and departures D, it says that for every t there is a t0 <= t
/// with
///
/// ```text
/// D(t) >= A(t0) + rate (t - t0) - lag
/// ```
///
/// *Proof*, at first in the node's own work. Let p, of length l, be the oldest packet of the class at t, and t0
/// the time from which on the fluid server had packets of the class until it finished p. Let q be the last
/// packet handed out whose finish is later than p's, and L_q its length, 0 if there is none. When q was
/// selected, p and all packets with earlier finishes that were handed out since (call them E) were not
/// eligible, so the fluid server began them later. At t - L_q it has done as much work since q was selected as
/// E is long. If x of that was p's, then at least x of E remains. That is of other classes, and is
/// finished no later than p, so x <= (l - x) (1 - phi) / phi: x is (1 - phi) l at most. Until t - L_q the
/// fluid server gave the class phi (t - L_q - t0) since t0, or more: the class's packets before p, which
/// are handed out, and x. So
///
/// ```text
/// D(t) >= A(t0) + phi (t - t0) - phi L - (1 - phi) L_k
/// ```
///
/// and with the node's `r T - s`, `phi s + phi L + (1 - phi) L_k` behind, which [`lag`](Service::lag) covers.
///
/// WF2Q orders only leaves without ceilings, so nothing stands on such a service: of one,
/// [`below_ceiling`](Service::below_ceiling) and [`behind`](Service::behind) return `None`.
///
/// # Arithmetic
///
/// Shares in force are within 10^-6 of the weights (10^-5 of an aggregate's), so rates are too.
///
/// # Two lines
///
/// A service may have a second, steeper line with a longer lag, where [ceilings of
/// siblings](super::Siblings::residual) leave the class more than its share: it is the larger of both at
/// any time, so that the curve is convex. Each line goes through the tree on its own. The first is the guaranteed
/// rate and decides about rooms and bursts, and a delay is the shorter one by either. For a class that keeps to the
/// guaranteed rate this holds of the second line as well, which is no slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    first: Line,
    steeper: Option<Line>,
    strict: bool,
}

/// `rate T - lag`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    /// Bytes per second.
    rate: f64,
    /// Bytes.
    lag: f64,
}

impl Line {
    /// Seconds until `bytes` are served.
    fn time(self, bytes: f64) -> f64 {
        (bytes + self.lag) / self.rate
    }

    fn child(self, share: f64, wfi: Wfi) -> Line {
        Line {
            rate: share * self.rate,
            lag: share * self.lag + wfi.service.bytes(),
        }
    }

    fn below_ceiling(self, ceiling: f64, burst: u32, longest: Length) -> Option<Line> {
        let tick = ceiling / 1e9;
        let room = f64::from(burst) - f64::from(longest.get()) - tick;
        let part = (room / self.lag).min(1.0);
        (part > 0.0).then(|| Line {
            rate: ceiling.min(self.rate * part),
            lag: self.lag + f64::from(longest.get()) + tick,
        })
    }

    fn behind(self, bps: u64, burst: u64) -> Option<Line> {
        let rate = self.rate - bps as f64 / 8.0;
        (rate > 0.0).then_some(Line {
            rate,
            lag: self.lag + burst as f64,
        })
    }
}

impl Service {
    /// Of these lines, the first and the steepest.
    fn of(lines: impl IntoIterator<Item = Line>, strict: bool) -> Option<Service> {
        let mut lines = lines.into_iter();
        let first = lines.next()?;
        let steeper = lines.filter(|line| line.rate > first.rate);
        Some(Service {
            first,
            steeper: steeper.max_by(|a, b| a.rate.total_cmp(&b.rate)),
            strict,
        })
    }

    fn lines(self) -> impl Iterator<Item = Line> {
        core::iter::once(self.first).chain(self.steeper)
    }

    /// The same of a class of which `other` holds as well.
    #[must_use]
    pub fn or(self, other: Service) -> Service {
        let lines = self.lines().chain(other.lines());
        Service::of(lines, self.strict && other.strict).unwrap_or(self)
    }

    /// Returns the link, with packets up to `longest`: one may be half sent.
    pub fn of_link(rate: Rate, longest: Length) -> Service {
        Service {
            first: Line {
                rate: rate.bps() as f64 / 8.0,
                lag: longest.get().into(),
            },
            steeper: None,
            strict: true,
        }
    }

    /// Returns a class directly below a link of strict priority, next to or behind others whose ceilings add up to
    /// `bps` bits per second and `burst` bytes, and before others with packets up to `below`, if there are any. `None`
    /// if they may take everything.
    ///
    /// This is [`behind`](Self::behind) without the packet on the wire, which is not of the class. Let t0 be the last
    /// time at which no packet of the level or above it was queued or on the wire: at most a packet from below was. All
    /// that is sent since is of the level or above, and the class enqueued its part since. So the
    /// service is not [strict](Self::is_strict), and holds as [WF2Q](Self#wf2q)'s does.
    #[doc(hidden)]
    pub fn of_level(rate: Rate, below: Option<Length>, bps: u64, burst: u64) -> Option<Service> {
        let mut link = Service::of_link(rate, below.unwrap_or(Length::MAX));
        if below.is_none() {
            link.first.lag = 0.0;
        }
        let service = link.behind(bps, burst)?;
        Some(Service {
            strict: false,
            ..service
        })
    }

    /// Returns a child of share phi with these indexes, taken with [`Transmit::Between`]. Only a
    /// [strict](Self::is_strict) service has children.
    pub fn child(self, share: f64, wfi: Wfi) -> Service {
        Service {
            first: self.first.child(share, wfi),
            steeper: self.steeper.map(|line| line.child(share, wfi)),
            strict: self.strict && wfi.strict,
        }
    }

    /// Returns whether it holds over every time in which the class has something to send. If not, as under
    /// [WF2Q](Self#wf2q), the class has its delay and its room, but may fall behind `rate T - lag` where it waits for
    /// its own packets to leave before it sends more.
    pub fn is_strict(self) -> bool {
        self.strict
    }

    /// The same under a ceiling of `rate` and `burst` bytes, for packets up to `longest`; `None`
    /// where the burst is one packet, which short packets may use for nothing, or the service is not
    /// [strict](Self::is_strict).
    pub fn below_ceiling(self, rate: Rate, burst: u32, longest: Length) -> Option<Service> {
        let ceiling = rate.bps() as f64 / 8.0;
        let lines = self.strict.then(|| self.lines()).into_iter().flatten();
        let below = lines.filter_map(|line| line.below_ceiling(ceiling, burst, longest));
        Service::of(below, true)
    }

    /// Returns how long a class is held at most under a ceiling of `rate`, if it sends nothing meanwhile.
    pub fn hold(rate: Rate, longest: Length) -> Nanos {
        Work(longest.get().into()).time(rate) + Nanos(1)
    }

    /// Returns the least burst, in bytes, with which a ceiling of `rate` costs nothing except the excess over it.
    pub fn burst_for(self, rate: Rate, longest: Length) -> u32 {
        let ceiling = rate.bps() as f64 / 8.0;
        let Line { rate, lag } = self.first;
        let room = lag * (ceiling / rate).min(1.0) + ceiling / 1e9;
        // One byte for the truncation here, one for the rounding above.
        ((room + f64::from(longest.get())) as u32).saturating_add(2)
    }

    /// Returns a child of a node with strict priority, behind or next to others whose ceilings add up to `bps` bits per
    /// second and `burst` bytes, of which each has its longest packet at least; `None` if they may take everything, or
    /// the service is not [strict](Self::is_strict).
    pub fn behind(self, bps: u64, burst: u64) -> Option<Service> {
        let lines = self.strict.then(|| self.lines()).into_iter().flatten();
        Service::of(lines.filter_map(|line| line.behind(bps, burst)), true)
    }

    /// Returns the rate in bits per second, rounded to the nearest.
    pub fn bps(self) -> u64 {
        (self.first.rate * 8.0 + 0.5) as u64
    }

    /// Returns the amount by which it may be behind.
    pub fn lag(self) -> Work {
        Work(self.first.lag)
    }

    /// Returns how long after its arrival a packet is handed to the link and, without a transmit queue, sent at the
    /// latest, where its class then holds `backlog` bytes, its own included.
    pub fn delay(self, backlog: u64) -> Nanos {
        self.time(backlog as f64)
    }

    /// The same of `backlog` bytes that arrive together at an idle child of this class, of share phi and with these
    /// indexes, taken with [`Transmit::Between`].
    pub fn delay_below(self, share: f64, wfi: Wfi, backlog: u64) -> Nanos {
        self.time(wfi.work(share, backlog))
    }

    /// Returns how long after its arrival a packet is sent at the latest, of a child of this class with these indexes
    /// that keeps to its guaranteed rate and to bursts of `burst` bytes: over any time t it enqueues `burst + share
    /// rate t` at most.
    ///
    /// In the node's work the child's packet n has left by e after its clock
    /// ([guaranteed rate](super#guaranteed-rate)): if the last packet up to n that starts at V of its arrival is j, at
    /// most `(sum of l_j to l_n) / share + e` of the work follows a_j. The node has something to
    /// send all that time, so this takes `(sum / share + e + lag) / rate`, and the clock of packet n
    /// is no earlier than `a_j + sum / (share rate)`. So each packet leaves `(e + lag) / rate` after its clock,
    /// which is no more than `burst / (share rate)` after its arrival.
    ///
    /// A service of its own, as behind [strict priority](Self::behind) or below a ceiling, gives a class
    /// [`delay`](Self::delay) of the burst: its packets before n left, but for `burst + rate t`, before t.
    ///
    /// [Below a ceiling](Self::conforming_delay_below) the same holds if the ceiling's burst is long enough.
    pub fn conforming_delay(self, share: f64, wfi: Wfi, burst: u64) -> Nanos {
        self.time(burst as f64 / share + wfi.latency.bytes())
    }

    /// The same where a ceiling of this rate c and burst B is on the child, with packets up to `longest` (L_k); `None`
    /// if B is too short. The child keeps to c, too.
    ///
    /// Let g be the child's share of the rate, and E its latency `(e + lag) / rate`. Either condition is enough:
    ///
    /// ```text
    /// B >= L_k + b + c (b / g + E)        delay <= b / g + E
    /// B >= 2 L_k + min(c, g) E            delay <= b / min(c, g) + E
    /// ```
    ///
    /// *Proof of the first*: no packet is held. Suppose that packet j is the first one, at t. Let x be the last time
    /// before with no debt, when packet m was handed out. Packets m to j - 1 are the debt, less c (t - x). Packet m
    /// arrived no earlier than `x - b / g - E`, and the child keeps to c, so with packet j they are no more than
    /// `b + c (t - x + b / g + E)`. The debt is B - L_k at most.
    ///
    /// *Proof of the second*, by induction over packets, with the clock of the rate min(c, g), which is no earlier than
    /// that of g. Only a packet j that is held until h, and then starts at V, differs. At h the debt is B - L_k. Let x
    /// be the last time before with no debt: since x, `c (h - x) + B - L_k` of the child was handed out, packets m to
    /// j - 1. Packet m left after x and by f_m + E, so
    /// `f_(j-1) >= x - E + (c (h - x) + B - 2 L_k) / min(c, g) >= h`. The sum from j on counts from h, and the clock
    /// from f_(j-1), which is no earlier.
    pub fn conforming_delay_below(
        self,
        share: f64,
        wfi: Wfi,
        burst: u64,
        ceiling: (Rate, u32),
        longest: Length,
    ) -> Option<Nanos> {
        let (rate, depth) = ceiling;
        let (ceiling, longest) = (rate.bps() as f64 / 8.0, f64::from(longest.get()));
        let (burst, spare) = (burst as f64, f64::from(depth) - longest - ceiling / 1e9);
        let delays = self.lines().filter_map(|line| {
            let late = line.time(wfi.latency.bytes());
            let own = share * line.rate;
            let slower = own.min(ceiling);
            let free = burst / own + late;
            if spare >= burst + ceiling * free {
                return Some(free);
            }
            (spare >= longest + slower * late).then_some(burst / slower + late)
        });
        delays.reduce(f64::min).map(nanos)
    }

    /// Returns the least burst of a ceiling of `rate` that leaves a child of this class, with packets up to `longest`
    /// and bursts of one, its [`conforming_delay`](Self::conforming_delay), where it keeps to the ceiling too.
    #[doc(hidden)]
    pub fn conforming_burst(self, share: f64, wfi: Wfi, rate: Rate, longest: Length) -> u32 {
        let (ceiling, longest) = (rate.bps() as f64 / 8.0, f64::from(longest.get()));
        let late = self.first.time(wfi.latency.bytes());
        let own = share * self.first.rate;
        let spare = match ceiling < own {
            true => longest + ceiling * (longest / own + late),
            false => longest + own * late,
        };
        let burst = spare + longest + ceiling / 1e9;
        (burst as u32).saturating_add(1)
    }

    fn time(self, bytes: f64) -> Nanos {
        let seconds = self.lines().map(|line| line.time(bytes));
        nanos(seconds.fold(f64::INFINITY, f64::min))
    }
}

/// Rounds up to whole nanoseconds.
fn nanos(seconds: f64) -> Nanos {
    let exact = seconds * 1e9;
    let whole = exact as u64;
    Nanos(whole.saturating_add(u64::from((whole as f64) < exact)))
}

/// Returns the time that a packet spends in a transmit queue in front of the link: the bytes before the wire, without
/// the packet on it, which [`Service::of_link`] counts.
pub fn transmit_time(transmit: Transmit, rate: Rate) -> Nanos {
    match transmit {
        Transmit::Between | Transmit::Direct => Nanos::ZERO,
        Transmit::Queue(bytes) => Work(bytes as f64).time(rate),
    }
}

/// Returns how long after its entry into the first of several links a packet has left the last one, of a flow that
/// keeps to `rate` and to bursts of `burst` bytes, with packets up to `longest`. `links` has for each one the flow's
/// [`conforming_delay`](Service::conforming_delay) of no burst there and the time to the next one: at each, the flow is
/// guaranteed `rate` or more, whatever it is served beyond. Zero is right for a plain link that only this flow uses.
///
/// ```text
/// b / g + (links - 1) L_k / g + (sum of the latencies)
/// ```
///
/// The burst counts once: a packet leaves link i by its clock there and E_i, and the clock of link i + 1 is no more
/// than `E_i + L_k / g` behind that of link i. For `f_n` is the largest of `a_j + (l_j to l_n) / g` over all j up to n,
/// and a_j at link i + 1 is no later than `f_j + E_i` at link i. (Goyal, Lam, Vin, 1995.)
pub fn end_to_end(
    burst: u64,
    rate: Rate,
    longest: Length,
    links: impl IntoIterator<Item = Nanos>,
) -> Nanos {
    let again = Work(longest.get().into()).time(rate);
    let links = links.into_iter();
    let all = links.map(|link| link + again).reduce(|a, b| a + b);
    let all = all.map_or(0, |all| all.0 - again.0);
    Nanos(all) + Work(burst as f64).time(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Head, Siblings};
    use crate::sched::Algorithm;
    use crate::units::Weight;

    fn length(bytes: u32) -> Length {
        Length::new(bytes).unwrap()
    }

    fn weight(weight: u32) -> Weight {
        Weight::new(weight).unwrap()
    }

    fn mbit(rate: u64) -> Rate {
        Rate::from_bps(rate * 1_000_000).unwrap()
    }

    /// 8 Mbit/s is a byte in a microsecond.
    const LINK: u64 = 8;

    #[test]
    fn two_levels_of_wf2q_plus_add_up_by_hand() {
        // A class of 1/2 of the link, a leaf of 1/4 of that; packets of 1000 bytes.
        let long = length(1000);
        let outer = Siblings::new(Algorithm::Wf2qPlus, [(weight(1), long, 2)]);
        let inner = Siblings::new(Algorithm::Wf2qPlus, [(weight(1), long, 4)]);
        // The class: DS+ = 2000 from S, so T R = 2000 + 2000 + 1000 - 1000, B = half of it.
        let class = outer
            .bound(weight(1), long, Head::Longest, Transmit::Between)
            .unwrap();
        assert_eq!(class.delay, Work(4000.0));
        assert_eq!(class.service, Work(2000.0));
        // The leaf: T R = 4000 + 1000 - 1000, B = 1000 + 3/4 of 1000.
        let leaf = inner
            .bound(weight(1), long, Head::Known, Transmit::Between)
            .unwrap();
        assert_eq!(leaf.delay, Work(4000.0));
        assert_eq!(leaf.service, Work(1750.0));

        let node = Service::of_link(mbit(LINK), long).child(0.5, class);
        // Half of the packet on the wire, and the class's own.
        assert_eq!(node.lag(), Work(500.0 + 2000.0));
        assert_eq!(node.bps(), 4_000_000);
        // 1000 / (1/4) + 4000 + 2500 of the class's work at half a byte per microsecond.
        assert_eq!(
            node.delay_below(0.25, leaf, 1000),
            Nanos::from_micros(21_000)
        );
        let served = node.child(0.25, leaf);
        assert_eq!(served.lag(), Work(2500.0 / 4.0 + 1750.0));
        assert_eq!(served.bps(), 1_000_000);
        // The B-WFI alone is looser: (1000 + 2375) at an eighth of a byte.
        assert_eq!(served.delay(1000), Nanos::from_micros(27_000));
    }

    /// RFC 2212's terms with WF2Q+: 2 of 38 Mbit/s and a burst of one packet, b / g + L / R, and the packet on
    /// the wire.
    #[test]
    fn a_conforming_class_waits_for_its_burst_and_two_packets() {
        let long = length(1522);
        let link = Service::of_link(mbit(38), long);
        let delay = |algorithm| {
            let siblings = Siblings::new(algorithm, [(weight(2), long, 1), (weight(36), long, 1)]);
            let wfi = siblings.bound(weight(2), long, Head::Known, Transmit::Between);
            let (share, wfi) = (siblings.share(weight(2)), wfi.unwrap());
            let conforming = link.conforming_delay(share, wfi, 1522);
            assert!(
                conforming <= link.delay_below(share, wfi, 1522),
                "{algorithm}"
            );
            conforming
        };
        assert_eq!(delay(Algorithm::Wf2qPlus), Nanos(6_728_843));
        assert_eq!(delay(Algorithm::Wf2q), delay(Algorithm::Wf2qPlus));
        let behind = [Algorithm::Gfq, Algorithm::Qfq].map(delay);
        assert!(delay(Algorithm::Wf2qPlus) < behind[0] && behind[0] < behind[1]);
        assert_eq!(delay(Algorithm::SKps), behind[1]);
    }

    #[test]
    fn one_level_is_the_flat_bound_with_a_packet_on_the_wire() {
        let long = length(1500);
        for &algorithm in Algorithm::ALL {
            let flat = Siblings::new(algorithm, [(weight(3), long, 2), (weight(1), long, 5)]);
            let bound = |transmit| flat.bound(weight(3), long, Head::Known, transmit);
            let Some(between) = bound(Transmit::Between) else {
                continue;
            };
            let direct = bound(Transmit::Direct).unwrap();
            let terms = flat.terms(weight(3), long, Transmit::Direct).unwrap();
            let service = Service::of_link(mbit(LINK), long);
            let composed = service.delay_below(flat.share(weight(3)), between, 1500);
            let stated = terms.worst_delay(direct, 1500, mbit(LINK));
            assert!(
                composed.0.abs_diff(stated.0) <= 1,
                "{algorithm}: {composed:?} {stated:?}"
            );
        }
    }

    #[test]
    fn a_ceiling_costs_a_packet_and_what_its_burst_does_not_cover() {
        let first = Line {
            rate: 1_000_000.0,
            lag: 5000.0,
        };
        let service = Service::of([first], true).unwrap();
        let long = length(1000);
        // Room for all of the lag: the ceiling's rate and a packet more.
        let below_ceiling = service.below_ceiling(mbit(4), 6001, long).unwrap();
        assert_eq!(below_ceiling.bps(), 4_000_000);
        assert!((below_ceiling.first.lag - 6000.0).abs() < 1e-3);
        // A fifth of it: credit is lost while it waits.
        let short = service.below_ceiling(mbit(4), 2000, long).unwrap();
        assert!(short.bps().abs_diff(1_600_000) < 10, "{}", short.bps());
        // Enough for a ceiling that is lower still.
        let low = service.below_ceiling(mbit(1), 2000, long).unwrap();
        assert_eq!(low.bps(), 1_000_000);
        assert_eq!(service.below_ceiling(mbit(1), 1000, long), None);
        for rate in [1, 4, 8, 100] {
            let burst = service.burst_for(mbit(rate), long);
            let bps = |burst| {
                service
                    .below_ceiling(mbit(rate), burst, long)
                    .map_or(0, Service::bps)
            };
            assert_eq!(bps(burst), (rate * 1_000_000).min(8_000_000));
            assert!(
                bps(burst - 4) < bps(burst),
                "{burst} bytes are not the least"
            );
        }
    }

    #[test]
    fn a_lower_level_has_what_the_ceilings_above_leave() {
        let link = Service::of_link(mbit(8), length(1000));
        let low = link.behind(2_000_000 + 1_000_000, 3000 + 1500).unwrap();
        assert_eq!(low.bps(), 5_000_000);
        assert_eq!(low.lag(), Work(1000.0 + 4500.0));
        assert_eq!(link.behind(8_000_000, 1000), None);
        assert_eq!(link.behind(0, 0), Some(link));
    }

    /// A class of 100 bytes and 0.8 Mbit/s before one of 1,500 bytes and 12 Mbit/s on 1 Gbit/s: 12.800 us, and
    /// 12.810 us by the residual service.
    #[test]
    fn a_level_waits_for_one_packet_from_below_and_for_all_that_is_above() {
        let rate = mbit(1000);
        let high = Service::of_level(rate, Some(length(1500)), 0, 0).unwrap();
        let low = Service::of_level(rate, None, 800_000, 100).unwrap();
        assert_eq!(
            (high.delay(100), low.delay(1500)),
            (Nanos(12_800), Nanos(12_811))
        );
        assert!(!high.is_strict() && !low.is_strict());
        assert_eq!(Service::of_level(rate, None, 1_000_000_000, 100), None);
    }

    #[test]
    fn a_delay_is_the_shorter_one_by_either_line() {
        let [slow, fast] = [(1000.0, 10.0), (4000.0, 1000.0)].map(|(rate, lag)| Line { rate, lag });
        let service = Service::of(
            [
                slow,
                fast,
                Line {
                    rate: 2000.0,
                    ..slow
                },
            ],
            true,
        )
        .unwrap();
        assert_eq!((service.first, service.steeper), (slow, Some(fast)));
        let millis = |bytes| service.delay(bytes).0 / 1_000_000;
        assert_eq!([90, 320, 3000].map(millis), [100, 330, 1000]);
        // The first decides about rates and rooms, and a flatter line is none.
        assert_eq!((service.bps(), service.lag()), (8000, Work(10.0)));
        let lines = [fast, slow].map(|line| Service::of([line], true).unwrap());
        assert_eq!(lines[0].or(lines[1]), lines[0]);
        assert_eq!(lines[1].or(lines[0]), service);
        let behind = service.behind(8000, 5).unwrap();
        assert_eq!(
            behind,
            Service::of(
                [Line {
                    rate: 3000.0,
                    lag: 1005.0
                }],
                true
            )
            .unwrap()
        );
    }

    #[test]
    fn nothing_stands_on_a_service_that_is_not_strict() {
        let (one, long) = (weight(1), length(1000));
        let [wf2q, plus] = [Algorithm::Wf2q, Algorithm::Wf2qPlus].map(|algorithm| {
            let siblings = Siblings::new(algorithm, [(one, long, 2)]);
            let wfi = siblings.bound(one, long, Head::Known, Transmit::Between);
            Service::of_link(mbit(8), long).child(siblings.share(one), wfi.unwrap())
        });
        assert!(plus.is_strict() && !wf2q.is_strict());
        // The figures are the same: delays and rooms hold for both.
        assert_eq!((wf2q.bps(), wf2q.lag()), (plus.bps(), plus.lag()));
        assert_eq!(
            (wf2q.delay(1000), wf2q.room(0, long)),
            (plus.delay(1000), plus.room(0, long))
        );
        let below = |service: Service| service.below_ceiling(mbit(2), 9000, long);
        assert!(below(plus).is_some() && below(wf2q).is_none());
        let behind = |service: Service| service.behind(1_000_000, 3000);
        assert!(behind(plus).is_some() && behind(wf2q).is_none());
        let wfi = Wfi {
            strict: true,
            service: Work(0.0),
            delay: Work(0.0),
            latency: Work(0.0),
            turn: Work(0.0),
        };
        assert!(!wf2q.child(0.5, wfi).is_strict());
    }

    #[test]
    fn a_queue_in_front_of_the_wire_is_waited_for_once() {
        assert_eq!(transmit_time(Transmit::Direct, mbit(8)), Nanos::ZERO);
        let queue = Transmit::Queue(4500);
        assert_eq!(transmit_time(queue, mbit(8)), Nanos::from_micros(4500));
    }
}
