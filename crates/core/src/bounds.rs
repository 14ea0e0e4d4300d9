//! The largest possible distance of a flow from its fair share: the worst-case fair indexes, and the latency.
//!
//! * *B-WFI* ([`Wfi::service`]): the most by which `phi W(t1, t2)` exceeds the flow's own
//!   service, in bytes, over any interval in which it is backlogged.
//! * *T-WFI* ([`Wfi::delay`]): the most by which a packet leaves later than `B / (phi R)` after its arrival, where B is
//!   its flow's backlog just after it; stored as the work that the link does meanwhile, in bytes, so that it is a time
//!   once the rate R is known.
//! * *Latency* ([`Wfi::latency`]): the most by which a packet leaves later than its flow's
//!   [clock](self#guaranteed-rate) of rate phi R, as work too. The bound of a flow that keeps to its rate.
//!
//! Here phi is the flow's weight over the sum of all weights, idle flows' too; L_k is the flow's longest packet, L the
//! longest of all, and Q the amount between scheduler and wire ([`Transmit`]). A flow is backlogged, and B counts a
//! packet, while it is queued in the scheduler: a packet handed on no longer competes. Weights are constant during the
//! interval. All functions are O(1), except [`Round::of`].
//!
//! Papers: Checconi, Valente, Rizzo, *QFQ*, technical report, 2010; Valente, *Reducing the
//! execution time of fair-queueing packet schedulers*, 2014 (QFQ+); Rizzo, Valente,
//! Lettieri, Maffione, *PSPAT*, 2018; Bennett, Zhang, *Hierarchical packet fair queueing
//! algorithms*, 1996 and 1997.
//!
//! ```
//! use fairlane_core::bounds::{self, Aggregate, Errors, Finish, Round, Slot, Terms, TermsError};
//! use fairlane_core::bounds::{Transmit, Wfi, Work};
//! use fairlane_core::{Length, Rate, Weight};
//!
//! // 5 of 100 parts of 10 Mbit/s, in packets of 200 bytes at most beside others of 1500.
//! let rate: Rate = "10mbit".parse()?;
//! let (short, longest) = (Length::try_from(200u32)?, Length::try_from(1500u32)?);
//! let weight = Weight::try_from(5)?;
//! let terms = Terms::new(weight, 100, short, longest, Transmit::Direct)?;
//! assert_eq!(terms.guaranteed_rate(rate), 500_000);
//! let error = Terms::new(weight, 4, short, longest, Transmit::Direct).unwrap_err();
//! assert_eq!(error, TermsError::Weight);
//!
//! // The least there is, and what rounded timestamps add to it.
//! let least: Wfi = bounds::wf2q_plus(&terms);
//! // WF2Q has the same, but its B-WFI is not for every interval.
//! assert_eq!(bounds::wf2q(&terms), Wfi { strict: false, ..least });
//! let exact = Errors { start: Work::ZERO, finish: Finish::AfterFinish(Work::ZERO) };
//! assert_eq!(bounds::sched(&terms, exact), least);
//! let gfq = bounds::gfq(&terms, Slot::Actual);
//! let qfq = bounds::qfq(&terms, Slot::Actual);
//! assert!(least.delay < gfq.delay && gfq.delay < qfq.delay);
//! assert_eq!(bounds::s_kps(&terms, Slot::Actual), qfq);
//! assert!(bounds::qfq_equal_packets(&terms, Slot::Actual).delay < qfq.delay);
//! // A packet of its own, the only one of its flow, is sent within so much of its arrival.
//! assert!(terms.worst_delay(least, 200, rate) < terms.worst_delay(qfq, 200, rate));
//! // Arithmetic adds little: this is over a gigabyte.
//! let [packets, costs] = [bounds::qfq_rounding, bounds::cost_rounding].map(|of| of(&terms, 1 << 30));
//! assert!(packets.delay < costs.delay);
//!
//! // The same in an aggregate of four flows alike, where there may be eight.
//! let four = Aggregate::new(terms, 4, 8)?;
//! assert_eq!(bounds::wf2q_plus_plus(&four), bounds::sched_plus(&four, Errors::EXACT));
//! for bound in [bounds::gfq_plus, bounds::qfq_plus, bounds::s_kps_plus] {
//!     assert!(bound(&four, Slot::Actual).delay > bounds::wf2q_plus_plus(&four).delay);
//! }
//!
//! // Where a packet of every other flow may come first.
//! let round = Round::of_many([(weight, short, 1), (Weight::ONE, longest, 95)]).ok_or("no flow")?;
//! let [drr, scfq] = [bounds::drr(&round, weight, short, Transmit::Direct),
//!     bounds::scfq(&round, weight, short, Transmit::Direct)].map(Option::unwrap);
//! assert!(least.delay < scfq.delay && scfq.delay < drr.delay);
//! // WFQ may serve a flow ahead, and then leave it without service for a round.
//! assert!(least.delay < bounds::wfq(&terms, round.slowest()).delay);
//! assert!(bounds::drr_in_proportion(&terms, Weight::ONE, 96).is_some());
//! // These promise a flow nothing, but for the highest priority.
//! assert_eq!([bounds::fifo(), bounds::sfq()], [None, None]);
//! assert!(bounds::strict_priority(0, longest, Transmit::Direct).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The surroundings of the algorithm: a transmit queue, an arbiter and its dispatchers, classes above, costs that are
//! estimated:
//!
//! ```
//! use fairlane_core::bounds::{self, Dispatched, Estimates, Guarantees, Service, Terms, Transmit, Work};
//! use fairlane_core::sched::Algorithm;
//! use fairlane_core::{FlowConfig, Length, Nanos, Rate, Weight};
//!
//! let (rate, longest): (Rate, _) = ("10mbit".parse()?, Length::try_from(1500u32)?);
//! let two = Transmit::packets(2, longest);
//! assert_eq!(bounds::transmit_time(two, rate), Nanos::from_micros(2_400));
//!
//! let flows = [1, 4].map(|weight| FlowConfig::new(Weight::new(weight).unwrap(), longest));
//! let wfi = Guarantees::new(Algorithm::Qfq, &flows, 1 << 20).of(&flows[1]).ok_or("no bound")?;
//! let alone = wfi.delay.time(rate);
//!
//! let scan = Nanos::from_micros(10);
//! let direct = bounds::with_arbiter(alone, scan, None, rate, longest);
//! assert_eq!(direct, bounds::pspat_direct(alone, scan));
//! let threads = Dispatched { passes: Nanos::from_micros(20), held: 64 };
//! let block = bounds::pspat_block(scan, rate, longest).min(threads.held);
//! assert_eq!(
//!     bounds::with_arbiter(alone, scan, Some(threads), rate, longest),
//!     bounds::pspat(alone, scan, threads.passes, block)
//! );
//!
//! // A class of four fifths of the link, and one of a tenth of that class.
//! let terms = |weight, of| Terms::new(weight, of, longest, longest, Transmit::Between);
//! let (class, below) = (terms(flows[1].weight, 5)?, terms(Weight::ONE, 10)?);
//! let service = Service::of_link(rate, longest).child(class.share(), bounds::wf2q_plus(&class));
//! let (share, wfi) = (below.share(), bounds::wf2q_plus(&below));
//! assert_eq!(service.child(share, wfi).bps(), 800_000);
//! // A packet of its own has 15 ms at that rate, and waits at one such link for others; two of them count it again.
//! let (one, more) = (service.conforming_delay(share, wfi, 1500), service.conforming_delay(share, wfi, 0));
//! assert_eq!(one.0 - more.0, 15_000_000);
//! let own: Rate = "800kbit".parse()?;
//! let both = bounds::end_to_end(1500, own, longest, [more; 2]);
//! assert_eq!(both, one + more + Nanos::from_millis(15));
//!
//! // Requests of which the cost is known after service.
//! let estimates = Estimates { in_flight: 4, error: 300 };
//! let corrected = bounds::corrected(wfi, class.share(), estimates, Work::ZERO);
//! assert!(corrected.delay > wfi.delay);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Algorithms with timestamps
//!
//! Two facts bound the flow's virtual start S from both sides. In bytes of the whole link's work, so that 1 / phi
//! multiplies the flow's charges:
//!
//! * `S - V <= DS- + (1 / phi - 1) L_k` (QFQ+ paper, Lemma 5): it was eligible by its
//!   rounded start when it was last served, which moved S by l / phi and V by l.
//! * `V - F' <= L - l`, for the rounded finish F' of a packet of length l that waits (QFQ
//!   report, Lemma 2 for V' = F'). Back-shifting keeps it: an entity that starts before
//!   V starts no earlier than the last moment at which V passed a later finish.
//!
//! Where F' exceeds F by DS+ at most, the two add up, just before a packet of length l is taken, to `V(t2) - V(t1) <=
//! W^k / phi + DS- + DS+ + (L_k + l) (1 / phi - 1) + L`. Then that packet counts in W^k, which takes l (1 / phi - 1)
//! away again, and the link lags by Q behind the work it was given. This is Eq. 2 of the QFQ+ paper:
//!
//! ```text
//! T-WFI R = DS- + DS+ + L_k / phi + L - L_k + Q
//! ```
//!
//! B-WFI is phi times as much, and `(1 - phi) L_k` more because its interval may end
//! before the packet: unless F' is that far from S even for the shortest packet, as in
//! QFQ, where DS+ counts from S.
//!
//! # Guaranteed rate
//!
//! The T-WFI allows for a flow that was served ahead of its share and then waits for the others. A flow
//! that keeps to its rate is not served ahead. Give each flow a clock: packet n arrives at a_n, is l_n long, and
//! the clock of a rate g reads
//!
//! ```text
//! f_n = max(a_n, f_(n-1)) + l_n / g
//! ```
//!
//! An algorithm is a guaranteed-rate server with latency e ([`Wfi::latency`], in bytes of the link's work) if each
//! packet leaves by `f_n + e / R` for g = phi R, whatever arrives. A flow that sends `b + g t` at most over any
//! time t arrives no earlier than b / g before its clock, so each of its packets has left
//! `b / g + e / R` after its arrival ([`Service::conforming_delay`]). Sources: Goyal, Lam, Vin, *Determining
//! end-to-end delay bounds in heterogeneous networks*, 1995; Le Boudec, Thiran, *Network calculus*, Section 2.1.
//!
//! * *Timestamps*: e = DS+ + L + Q. *Proof.* For a waiting packet of length l, V - F' is L - l at most (see
//!   above). Let j be the last packet up to n that starts at V of its arrival or before. It is of the same busy
//!   period, since V passes each F when one starts. Later ones up to n start at the finish before them, so `S_n <= V(a_j) + (sum of l_j to l_(n-1)) / phi`, and F' is no later than
//!   DS+ after F_n, or S_n. V grows by no less than the work, and packet n is part of it: until it is
//!   sent, the link does `(sum of l_j to l_n) / phi + DS+ + L` after a_j at most, and Q before. The clock
//!   reads no less than a_j and the sum over g at f_n.
//! * *SCFQ, DRR and SCHED+*: e is the T-WFI. [`scfq`], [`drr`] and [`sched_plus`] count B from any time at which
//!   the flow is backlogged, and allow for all of B: also for packets that arrive later, while it stays so. Under
//!   SCHED+ another flow may have served the aggregate ahead before. The last packet up to n
//!   that finds the flow idle has a clock of its arrival or later, from which B is the sum up to n.
//! * *Any flow with a strict B-WFI* has e = (B-WFI) / phi in the same way: while it is backlogged it is
//!   never further behind its share.
//! * *Strict priority*: Q. All that is sent after an arrival is of the level.
//! * *WF2Q*: L + Q. Each packet leaves by L / R after the fluid server has finished it, which that does by f_n.
//! * *WFQ*: Q ([`wfq`]).
//!
//! # Classes within classes
//!
//! [`Siblings`] has the bounds of a node's children by the node's algorithm, [`Service`] their sum along a path of a
//! [tree](crate::tree).
//!
//! # Costs
//!
//! The same holds of requests by [cost](crate::CostScheduler), in units for bytes. Where costs are estimated, and
//! corrected after service, [`corrected`] has the addition.
//!
//! # Where the papers disagree
//!
//! With counterexamples that `fairlane replay` runs: `docs/corrections.md`.
//!
//! * The QFQ+ paper's Appendix A sets DS+ = L_k / phi for exact timestamps, counted from S.
//!   Eq. 2 has that L_k / phi already: T-WFI would hold it twice. The paper's footnote 5, the
//!   QFQ report, and Bennett and Zhang have it once. Counted from F, as here, DS+ is 0 and
//!   all of them agree; the report's `L_k / phi + 2 L` is for Q = L and leaves out `- L_k`.
//! * The QFQ report's Theorems 1 and 2 state 3 sigma + 2 L for QFQ. Theorem 1's proof takes
//!   the rounded start for the exact one, which lies up to L_k / phi further after V
//!   (Theorem 3 has it right), Theorem 2's rounds the backlog down to whole slots; a
//!   schedule exceeds both. Eq. 2 holds: 3 sigma + L_k / phi + L - L_k + Q.
//! * The report has 3 sigma more for S-KPS, whose slots it releases as they end. None of them is needed,
//!   whether slots are released as they end or, as here, as they begin: [`s_kps`].
//! * Eq. 2 is 7 L_k / phi for QFQ, and so is the QFQ+ paper's Table 2; its summary, and the
//!   PSPAT paper's Eq. 2, have 6. That holds if all packets of the flow are equally long, see
//!   [`qfq_equal_packets`], and not for a short one after long ones.
//! * The QFQ+ paper's Eqs. 6 and 7 end in L and M L / m_k. Both follow from phi L and
//!   phi M L (A.18), which are no larger and stand here.
//! * The QFQ+ paper's Theorems 1 and 2 have (5 - 1 / m_k) L_k / phi for SCHED+. [`sched_plus`] has less.
//! * The PSPAT paper's Eqs. 2 and 3 leave out Q. Its Eq. 1 adds the cost of its dispatchers; a transmit queue behind
//!   them costs Q on top.

use crate::units::{Charge, Length, Nanos, Rate, Weight};
use core::ops::Add;

pub(crate) mod child;
mod correction;
mod flows;
mod hierarchy;
mod residual;
mod room;
mod rounds;
mod siblings;
mod timestamps;

pub use correction::{Estimates, corrected};
pub use flows::{Dispatched, Guarantees, with_arbiter};
pub use hierarchy::{Service, end_to_end, transmit_time};
pub use rounds::{Round, drr, drr_in_proportion, scfq};
pub use siblings::{Head, Siblings};
pub use timestamps::{
    Aggregate, Errors, Finish, Slot, cost_rounding, gfq, gfq_plus, qfq, qfq_equal_packets,
    qfq_plus, qfq_rounding, s_kps, s_kps_plus, sched, sched_plus, wf2q, wf2q_plus, wf2q_plus_plus,
    wfq,
};

/// Work of the link, or service of a flow, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Work(f64);

impl Work {
    /// No work.
    pub const ZERO: Work = Work(0.0);

    /// `bytes`, or `None` unless they are finite and not negative.
    pub fn new(bytes: f64) -> Option<Work> {
        (0.0..f64::INFINITY).contains(&bytes).then_some(Work(bytes))
    }

    /// In bytes.
    pub const fn bytes(self) -> f64 {
        self.0
    }

    /// Returns how long a link of `rate` takes for it, rounded up.
    pub fn time(self, rate: Rate) -> Nanos {
        let exact = self.0 * 8e9 / rate.bps() as f64;
        let whole = exact as u64;
        Nanos(whole.saturating_add(u64::from((whole as f64) < exact)))
    }
}

impl Add for Work {
    type Output = Work;
    fn add(self, other: Work) -> Work {
        Work(self.0 + other.0)
    }
}

/// The worst-case fair indexes of a flow, and its latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wfi {
    /// Whether the B-WFI holds over every interval in which the flow is backlogged. Under WFQ and WF2Q it holds only
    /// while the fluid server has packets of the flow too ([`wf2q`]). The T-WFI holds always.
    pub strict: bool,
    /// B-WFI: service that the flow may be behind its share.
    pub service: Work,
    /// T-WFI as work: the link's work beyond the flow's fair completion time.
    pub delay: Work,
    /// Latency of the algorithm as a [guaranteed-rate server](self#guaranteed-rate), as work of the link.
    pub latency: Work,
    /// Bytes that an idle flow sends in its first turn, and in each further one, where it waits for turns as under
    /// [`drr`]: 0 where it does not.
    pub turn: Work,
}

impl Wfi {
    fn of(share: f64, delay: f64) -> Wfi {
        Wfi {
            strict: true,
            service: Work(share * delay),
            delay: Work(delay),
            latency: Work(delay),
            turn: Work::ZERO,
        }
    }

    /// Work of the link until `backlog` bytes that arrive together at an idle flow of share phi have been sent: `B /
    /// phi` and the T-WFI, less the value of [`drr`] for whole turns.
    fn work(self, share: f64, backlog: u64) -> f64 {
        let backlog = backlog as f64;
        let work = backlog / share + self.delay.0;
        if self.turn.0 == 0.0 {
            return work;
        }
        let turns = backlog / self.turn.0;
        // Rounded up. A quantum covers the longest packet, and is otherwise cut off by a millionth at most.
        let whole = match turns <= 1.0 + 1e-12 {
            true => 1.0,
            false => (turns * (1.0 + 1e-6)) as u64 as f64 + 1.0,
        };
        work - (turns + 1.0 - whole).max(0.0) * self.turn.0 * (1.0 / share - 1.0)
    }

    /// Returns the larger of both, in each index.
    fn or_looser(self, other: Wfi) -> Wfi {
        let larger = |one: Work, other: Work| Work(one.0.max(other.0));
        Wfi {
            strict: self.strict && other.strict,
            service: larger(self.service, other.service),
            delay: larger(self.delay, other.delay),
            latency: larger(self.latency, other.latency),
            turn: larger(self.turn, other.turn),
        }
    }

    fn with_service(self, more: f64) -> Wfi {
        Wfi {
            service: Work(self.service.0 + more),
            ..self
        }
    }
}

impl Add for Wfi {
    type Output = Wfi;
    fn add(self, other: Wfi) -> Wfi {
        Wfi {
            strict: self.strict && other.strict,
            service: self.service + other.service,
            delay: self.delay + other.delay,
            latency: self.latency + other.latency,
            turn: self.turn + other.turn,
        }
    }
}

/// The capacity between scheduler and wire: work taken from the scheduler and not yet sent is never more than Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Q = 0: for packets that arrive and intervals that begin between two transmissions.
    Between,
    /// Q = L: the link takes a packet when it has sent the last. Arrivals may find one half
    /// sent.
    Direct,
    /// Q = L and this many bytes: a queue of that size, in addition to the packet on the wire. This is Q of the QFQ+
    /// paper ("plus L"), there also `Qpkts L`.
    Queue(u64),
}

impl Transmit {
    /// Returns a queue of `packets` packets up to `longest`: Q = (packets + 1) L.
    pub fn packets(packets: u32, longest: Length) -> Transmit {
        Transmit::Queue(u64::from(packets) * u64::from(longest.get()))
    }

    /// Q, where no packet is longer than `longest`.
    pub fn work(self, longest: impl Into<Charge>) -> Work {
        let longest = f64::from(longest.into().get());
        Work(match self {
            Transmit::Between => 0.0,
            Transmit::Direct => longest,
            Transmit::Queue(bytes) => bytes as f64 + longest,
        })
    }
}

/// Why numbers are not the terms of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// Weights larger than their sum.
    #[error("a weight is part of the sum of all weights, so it is not larger")]
    Weight,
    /// A flow's longest packet longer than the longest of all.
    #[error("no flow's longest packet is longer than the longest of all")]
    Length,
    /// An aggregate of no flow, or of more than there may be.
    #[error("an aggregate has at least one flow, and at most M")]
    Members,
}

/// The properties that the bounds of a flow depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    weight: Weight,
    weight_sum: u64,
    length: Charge,
    longest: Charge,
    transmit: Transmit,
}

impl Terms {
    /// Returns the terms of a flow of `weight` of `weight_sum`, with packets up to `length` (L_k), among packets up to
    /// `longest` (L). Both may be costs: statements about bytes hold for their units.
    pub fn new(
        weight: Weight,
        weight_sum: u64,
        length: impl Into<Charge>,
        longest: impl Into<Charge>,
        transmit: Transmit,
    ) -> Result<Terms, TermsError> {
        let (length, longest) = (length.into(), longest.into());
        if u64::from(weight.get()) > weight_sum {
            Err(TermsError::Weight)
        } else if length > longest {
            Err(TermsError::Length)
        } else {
            Ok(Terms {
                weight,
                weight_sum,
                length,
                longest,
                transmit,
            })
        }
    }

    /// phi: the weight over the sum of weights.
    pub fn share(&self) -> f64 {
        f64::from(self.weight.get()) / self.weight_sum as f64
    }

    /// L_k / phi: the link's work during one packet service time of the flow.
    #[doc(hidden)]
    pub fn packet_service(&self) -> Work {
        Work(self.length() * self.weight_sum as f64 / f64::from(self.weight.get()))
    }

    /// Returns the rate that the flow has at least while it is backlogged, in the long run: phi R in bits per second,
    /// rounded down.
    pub fn guaranteed_rate(&self, rate: Rate) -> u64 {
        let product = u128::from(rate.bps()) * u128::from(self.weight.get());
        (product / u128::from(self.weight_sum)) as u64
    }

    /// Returns how long after their arrival `backlog` bytes that arrive together at an idle flow are sent at the
    /// latest: B / (phi R) and the T-WFI, or less under [`drr`].
    pub fn worst_delay(&self, wfi: Wfi, backlog: u64, rate: Rate) -> Nanos {
        Work(wfi.work(self.share(), backlog)).time(rate)
    }

    fn length(&self) -> f64 {
        f64::from(self.length.get())
    }

    fn longest(&self) -> f64 {
        f64::from(self.longest.get())
    }

    fn queued(&self) -> f64 {
        self.transmit.work(self.longest).0
    }
}

/// FIFO: none. Others' packets that arrived earlier are sent first, and their number is unlimited.
pub const fn fifo() -> Option<Wfi> {
    None
}

/// SFQ, stochastic fairness queueing: none for a flow. It is fair to its queues, and any
/// number of flows may be hashed to one: which share of its queue's a flow gets follows
/// from the arrivals, as in [`fifo`].
pub const fn sfq() -> Option<Wfi> {
    None
}

/// Strict priority: only for the highest level, with none above, as one flow with a share of 1. It waits for the
/// packets that the link has taken already: both are Q. A level with others above has none, since those may take the
/// whole link, and so has a flow among others of its level.
pub fn strict_priority(levels_above: usize, longest: Length, transmit: Transmit) -> Option<Wfi> {
    (levels_above == 0).then(|| Wfi::of(1.0, transmit.work(longest).0))
}

/// T-WFI of PSPAT (its Eq. 1), `T-WFI_SA + D_A + (2 + k) D_D`: `algorithm` is the T-WFI of the algorithm alone, the
/// arbiter makes decisions every `scan` (D_A) for blocks of `block` packets (k, [`pspat_block`]), and dispatchers send
/// them every `dispatch` (D_D).
///
/// The paper's examples add 2 D_A + 2 D_D instead. For k = 1 its Eq. 1, which stands
/// here, is D_A + 3 D_D: the same for D_A = D_D.
pub fn pspat(algorithm: Nanos, scan: Nanos, dispatch: Nanos, block: u64) -> Nanos {
    let dispatches = Nanos(dispatch.0.saturating_mul(block.saturating_add(2)));
    algorithm + scan + dispatches
}

/// Returns T-WFI of PSPAT without a dispatcher between arbiter and link, which sends in the order of release:
/// `algorithm` and 2 D_A. A packet is seen up to D_A after its arrival, and is released up to D_A later than the link
/// could have begun with it; the terms of [`pspat`] for parallel dispatchers do not apply.
pub fn pspat_direct(algorithm: Nanos, scan: Nanos) -> Nanos {
    algorithm + scan + scan
}

/// k of [`pspat`]: packets of `longest` that a link of `rate` sends in `scan`, rounded up,
/// and at least one.
pub fn pspat_block(scan: Nanos, rate: Rate, longest: Length) -> u64 {
    let bits = u128::from(scan.0) * u128::from(rate.bps());
    let packet = u128::from(longest.get()) * 8_000_000_000;
    u64::try_from(bits.div_ceil(packet))
        .unwrap_or(u64::MAX)
        .max(1)
}
