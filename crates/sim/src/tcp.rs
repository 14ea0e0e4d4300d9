//! A closed-loop source: it keeps a window of packets in flight, and reacts to their fate.
//!
//! The model is Reno's congestion control (RFC 5681) with selective acknowledgements, in whole
//! packets and simplified: connections are not set up, receivers do not delay acknowledgements, no
//! acknowledgement is lost, and the path outside the link takes the same time for all packets. The
//! window is 10 packets first (RFC 6928), grows by one an acknowledgement up to the threshold and
//! by one a round trip above it. A packet is lost when three that were sent after it were
//! acknowledged; then, or when an acknowledgement says that a packet was marked (RFC 3168), the
//! window and the threshold are halved, once for all packets of one window. When nothing was
//! acknowledged for the retransmission timeout (RFC 6298, 200 ms at least, doubled each time), all
//! packets in flight count as lost, and the window is one.
//!
//! Another packet of the same source follows a lost one: a retransmission is like any other packet
//! for the link.

use std::collections::VecDeque;

use crate::time::Picos;

/// How a source in a closed loop sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// From the end of a packet's transmission until its sender knows: the round trip without
    /// queue and transmission.
    pub rtt: Picos,
    /// Most packets in flight, at least 1: the receiver's window.
    pub window: u32,
}

const FIRST_WINDOW: f64 = 10.0;
/// Packets behind it whose arrival says that a packet is lost.
const DUPLICATES: u8 = 3;
const LEAST_TIMEOUT: Picos = Picos::from_millis(200);
/// The timeout is doubled up to this often.
const MOST_DOUBLINGS: u32 = 8;

/// A packet that is on its way, as far as its sender knows.
#[derive(Debug)]
struct OnItsWay {
    number: u64,
    sent: Picos,
    /// Packets sent after it that were acknowledged.
    later: u8,
}

/// The sender's state.
#[derive(Debug)]
pub(crate) struct Sender {
    config: Tcp,
    /// In packets.
    window: f64,
    threshold: f64,
    on_their_way: VecDeque<OnItsWay>,
    /// The last packet sent before the window was last reduced: what becomes of it, and of those
    /// before it, was reacted to.
    recover: Option<u64>,
    last: Option<u64>,
    /// Mean and deviation of the round trips, in picoseconds; of none yet.
    round: Option<(f64, f64)>,
    /// When something was last acknowledged or given up, or the first packet of a window sent.
    moved: Picos,
    doublings: u32,
}

impl Sender {
    pub(crate) fn new(config: Tcp) -> Self {
        Sender {
            config,
            window: FIRST_WINDOW.min(f64::from(config.window.max(1))),
            threshold: f64::INFINITY,
            on_their_way: VecDeque::new(),
            recover: None,
            last: None,
            round: None,
            moved: Picos::ZERO,
            doublings: 0,
        }
    }

    /// From the end of a transmission until its acknowledgement.
    pub(crate) fn rtt(&self) -> Picos {
        self.config.rtt
    }

    /// Returns whether the window has room for another packet.
    pub(crate) fn may_send(&self) -> bool {
        (self.on_their_way.len() as f64) < self.window.floor()
    }

    /// A packet was sent; numbers grow.
    pub(crate) fn sent(&mut self, number: u64, now: Picos) {
        if self.on_their_way.is_empty() {
            self.moved = now;
        }
        self.last = Some(number);
        self.on_their_way.push_back(OnItsWay {
            number,
            sent: now,
            later: 0,
        });
    }

    /// A packet was acknowledged, one that was `marked` on its way perhaps. O(packets before it
    /// that were not).
    pub(crate) fn acknowledged(&mut self, number: u64, marked: bool, now: Picos) {
        let place = self
            .on_their_way
            .binary_search_by_key(&number, |packet| packet.number);
        // A packet that had been given up arrived.
        let Ok(place) = place else {
            return;
        };
        if let Some(packet) = self.on_their_way.remove(place) {
            self.measure(now - packet.sent);
        }
        self.moved = now;
        self.doublings = 0;
        for earlier in self.on_their_way.iter_mut().take(place) {
            earlier.later += 1;
        }
        let mut worst = marked.then_some(number);
        while let Some(lost) = self.on_their_way.front()
            && lost.later >= DUPLICATES
        {
            worst = worst.max(Some(lost.number));
            self.on_their_way.pop_front();
        }
        match worst {
            Some(worst) if self.recover < Some(worst) => {
                self.reduce();
                self.window = self.threshold;
            }
            None if self.recover < Some(number) => self.grow(),
            _ => {}
        }
    }

    fn grow(&mut self) {
        self.window += match self.window < self.threshold {
            true => 1.0,
            false => 1.0 / self.window,
        };
        self.window = self.window.min(f64::from(self.config.window.max(1)));
    }

    fn reduce(&mut self) {
        self.threshold = (self.window / 2.0)
            .max(2.0)
            .min(f64::from(self.config.window.max(1)));
        self.recover = self.last;
    }

    /// RFC 6298, Section 2.
    fn measure(&mut self, round: Picos) {
        let round = round.0 as f64;
        self.round = Some(match self.round {
            None => (round, round / 2.0),
            Some((mean, deviation)) => (
                mean + (round - mean) / 8.0,
                deviation + ((round - mean).abs() - deviation) / 4.0,
            ),
        });
    }

    /// When all that is on its way is given up, if nothing is acknowledged until then; none if
    /// nothing is.
    pub(crate) fn deadline(&self) -> Option<Picos> {
        let (mean, deviation) = self.round.unwrap_or((1e12, 0.0));
        let timeout = Picos((mean + 4.0 * deviation) as u128).max(LEAST_TIMEOUT);
        let timeout = Picos(timeout.0 << self.doublings);
        (!self.on_their_way.is_empty()).then(|| self.moved + timeout)
    }

    /// The deadline is over.
    pub(crate) fn give_up(&mut self, now: Picos) {
        self.reduce();
        self.window = 1.0;
        self.on_their_way.clear();
        self.moved = now;
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const RTT: Picos = Picos::from_millis(100);

    /// Packets a round trip, over a path that takes `RTT` and loses or marks what `fails` says.
    fn rate(window: u32, rounds: u64, mark: bool, mut fails: impl FnMut(u64) -> bool) -> f64 {
        let mut sender = Sender::new(Tcp { rtt: RTT, window });
        let mut acks = BinaryHeap::new();
        let (mut now, mut number) = (Picos::ZERO, 0u64);
        let end = Picos(RTT.0 * u128::from(rounds));
        let mut arrived = 0u64;
        while now < end {
            while sender.may_send() {
                let failed = fails(number);
                sender.sent(number, now);
                if !failed || mark {
                    acks.push(Reverse((now + RTT, number, failed)));
                }
                number += 1;
            }
            let next = acks.peek().map(|&Reverse((at, ..))| at);
            match (next, sender.deadline()) {
                (Some(at), Some(deadline)) if at > deadline => {
                    now = deadline;
                    sender.give_up(now);
                }
                (Some(_), _) => {
                    if let Some(Reverse((at, number, marked))) = acks.pop() {
                        now = at;
                        arrived += 1;
                        sender.acknowledged(number, marked, now);
                    }
                }
                (None, Some(deadline)) => {
                    now = deadline;
                    sender.give_up(now);
                }
                (None, None) => unreachable!("there is room, or something is on its way"),
            }
        }
        arrived as f64 / rounds as f64
    }

    #[test]
    fn a_window_that_nothing_disturbs_is_full_every_round_trip() {
        for window in [1, 7, 500] {
            let rate = rate(window, 2_000, false, |_| false);
            assert!(
                (rate / f64::from(window) - 1.0).abs() < 0.02,
                "{rate} of {window}"
            );
        }
    }

    /// Mathis, Semke, Mahdavi, Ott: The macroscopic behavior of the TCP congestion avoidance
    /// algorithm, 1997, Eq. 3: sqrt(3/2) / sqrt(p) packets a round trip, where every packet is
    /// acknowledged and losses are periodic. A window that does not grow in the round trip of a
    /// loss costs one of the sqrt(2/3 / p) round trips between two.
    #[test]
    fn the_rate_follows_the_square_root_of_the_losses() {
        for (one_in, least) in [(100u64, 0.84), (1_000, 0.94), (10_000, 0.95)] {
            let law = (1.5 * one_in as f64).sqrt();
            for mark in [false, true] {
                let periodic = rate(u32::MAX, 6_000, mark, |number| number % one_in == 0) / law;
                assert!(
                    (least..1.02).contains(&periodic),
                    "1 in {one_in}, {mark}: {periodic}"
                );
                let mut random = SmallRng::seed_from_u64(one_in);
                let fails = |_| random.random_range(0..one_in) == 0;
                let random = rate(u32::MAX, 6_000, mark, fails) / law;
                assert!(
                    (0.9..1.1).contains(&random),
                    "1 in {one_in}, {mark}: {random}"
                );
            }
        }
    }

    #[test]
    fn tcp_backs_off_exponentially_and_recovers() {
        let mut sender = Sender::new(Tcp {
            rtt: RTT,
            window: 100,
        });
        let mut now = Picos::ZERO;
        let mut waits = Vec::new();
        for number in 0..6 {
            while sender.may_send() {
                sender.sent(number * 100 + sender.on_their_way.len() as u64, now);
            }
            let deadline = sender.deadline().unwrap();
            waits.push((deadline - now).0 / Picos::from_millis(1).0);
            now = deadline;
            sender.give_up(now);
            assert_eq!(sender.window, 1.0);
        }
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]);
        sender.sent(10_000, now);
        sender.acknowledged(10_000, false, now + RTT);
        assert!(sender.window > 1.0);
    }
}
