//! A scenario on a link: the reaction of each sender to packets that are taken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlane_core::scheduler::Violation;

use super::scenario::{Cue, Scenario};
use crate::broken::{Sentence, demand};
use crate::flows::Random;
use crate::meter::Meter;

/// Maximum number of packets of a flow in the scheduler.
const MOST_WAITING: usize = 64;

/// The answer of a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// A packet, by its flow and length.
    Packet(usize, u32),
    /// Nothing before this time.
    NotBefore(u64),
    Empty,
}

/// Orders packets of flows by number. Times are in bytes of the link, which are nanoseconds at 8 Gbit/s.
pub(super) trait Link {
    fn enqueue(&mut self, flow: usize, bytes: u32, now: u64) -> Sentence;
    fn dequeue(&mut self, now: u64) -> Next;
    fn invariants(&self) -> Result<(), Violation>;
}

/// A run in progress.
struct Play<'a> {
    scenario: &'a Scenario,
    link: &'a mut dyn Link,
    meter: Meter,
    random: Random,
    /// First flow of each kind, and one past the last.
    firsts: Vec<usize>,
    /// The kind of each flow.
    kinds: Vec<u8>,
    rates: &'a [f64],
    /// For each kind that follows another: the flow to check next.
    turns: Vec<usize>,
    /// Scheduled bursts: time, flow, number of packets.
    bursts: BinaryHeap<Reverse<(u64, usize, u32)>>,
}

/// Runs a scenario and returns its indexes. `rates` are those that the flows are guaranteed, in parts of the link.
pub(super) fn play(
    scenario: &Scenario,
    link: &mut dyn Link,
    rates: &[f64],
) -> Result<Meter, String> {
    let mut play = Play {
        meter: Meter::new(rates.iter().copied()),
        random: Random(scenario.seed),
        firsts: vec![0],
        kinds: Vec::with_capacity(rates.len()),
        turns: vec![0; scenario.senders.len()],
        bursts: BinaryHeap::new(),
        scenario,
        link,
        rates,
    };
    for (kind, senders) in scenario.senders.iter().enumerate() {
        for n in 0..senders.count {
            let at = u64::from(senders.start) + u64::from(senders.apart) * u64::from(n);
            let burst = (at, play.kinds.len(), senders.at_first);
            play.bursts.push(Reverse(burst));
            play.kinds.push(kind as u8);
        }
        play.firsts.push(play.kinds.len());
    }
    play.run()?;
    Ok(play.meter)
}

impl Play<'_> {
    fn run(&mut self) -> Sentence {
        let (mut now, mut sent) = (0u64, 0);
        while sent < self.scenario.packets {
            self.arrivals(now)?;
            let next = self.bursts.peek().map(|Reverse(burst)| burst.0);
            match (self.link.dequeue(now), next) {
                (Next::Packet(flow, bytes), _) => {
                    let known = self.meter.waiting(flow) > 0;
                    demand!(known, "a packet of flow {flow} leaves that never came");
                    let packet = self.meter.taken(flow, now);
                    demand!(
                        packet.bytes == bytes,
                        "a packet of flow {flow} leaves as one of {bytes} bytes, and came as one of {}",
                        packet.bytes
                    );
                    self.meter.started(packet, now);
                    self.react(flow, now);
                    let end = now + u64::from(bytes);
                    self.arrivals(end - 1)?;
                    now = end;
                    self.meter.sent(packet, now);
                    sent += 1;
                }
                (Next::NotBefore(time), next) => {
                    demand!(
                        time > now,
                        "no packet leaves at {now}, and one may since {time}"
                    );
                    now = next.map_or(time, |next| next.min(time));
                }
                (Next::Empty, Some(next)) => now = next,
                (Next::Empty, None) => break,
            }
        }
        self.meter.ended(now);
        let invariants = self.link.invariants();
        invariants.map_err(|violation| format!("its invariants do not hold: {violation}"))
    }

    /// Enqueues all arrivals until `end` in order of time.
    fn arrivals(&mut self, end: u64) -> Sentence {
        while let Some(&Reverse((at, flow, packets))) = self.bursts.peek()
            && at <= end
        {
            self.bursts.pop();
            let kind = usize::from(self.kinds[flow]);
            let senders = &self.scenario.senders[kind];
            let mut bytes_in_all = 0;
            for n in 0..packets {
                if self.meter.waiting(flow) >= MOST_WAITING {
                    break;
                }
                let length = senders.lengths[usize::from(n > 0)];
                let less = senders.vary.min(length - 1);
                let bytes = length - self.random.below(less + 1);
                bytes_in_all += bytes;
                self.meter.arrived(flow, bytes, at);
                self.link.enqueue(flow, bytes, at)?;
            }
            if let Cue::Share(part) = senders.cue {
                let bytes = f64::from(bytes_in_all.max(senders.longest));
                let time = bytes / self.rates[flow] * f64::from(part) / 100.0;
                self.burst(flow, at + (time as u64).max(1));
            }
        }
        Ok(())
    }

    /// Reacts to the service of a packet of the flow.
    fn react(&mut self, flow: usize, now: u64) {
        let kind = usize::from(self.kinds[flow]);
        if let Cue::Own(left) = self.scenario.senders[kind].cue
            && self.meter.waiting(flow) <= left as usize
        {
            self.burst(flow, now);
        }
        for other in 0..self.scenario.senders.len() {
            if self.scenario.senders[other].cue != Cue::Other(kind) {
                continue;
            }
            let (first, end) = (self.firsts[other], self.firsts[other + 1]);
            let turn = first + self.turns[other] % (end - first);
            self.turns[other] += 1;
            if self.meter.waiting(turn) == 0 {
                self.burst(turn, now);
            }
        }
    }

    /// Schedules the flow's next burst some time after `cue`.
    fn burst(&mut self, flow: usize, cue: u64) {
        let senders = &self.scenario.senders[usize::from(self.kinds[flow])];
        let after = senders.after + self.random.below(senders.jitter + 1);
        let at = cue + u64::from(after);
        self.bursts.push(Reverse((at, flow, senders.burst)));
    }
}
