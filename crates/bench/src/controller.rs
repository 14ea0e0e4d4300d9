//! The controller of the papers' test environment (QFQ report, Fig. 9).
//!
//! It generates packets until `qmax` are queued, then takes packets out until
//! `qmin` are left, and so on. The next packet goes to the flow with the least
//! backlog (*smooth*: flows are filled in turn), or a burst of packets does
//! (*bursty*). A flow never holds more than 30 packets.
//!
//! Packets are numbers, or have [memory](Controller::in_memory) of their own.

use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::blocks::Blocks;
use super::flowsets::FlowSets;
use fairlane_core::Length;

/// Most packets the controller lets one flow hold.
pub const MOST: u32 = 30;

/// How packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// One packet to each flow in turn, the least backlogged first
    Smooth,
    /// Bursts of 1 to 16 times the flow's weight
    Bursty,
}

/// A target of the controller.
pub trait Subject {
    /// Takes packet number `packet`, of flow number `flow`; `false` if it was dropped.
    fn enqueue(&mut self, flow: u32, len: Length, packet: u32) -> bool;
    /// Hands out a packet.
    fn dequeue(&mut self) -> Option<Dequeued>;
}

/// A packet that was handed out.
#[derive(Clone, Copy, Debug)]
pub struct Dequeued {
    /// The number of its flow, as the scheduler knows it.
    pub flow: u32,
    /// Its own number.
    pub packet: u32,
}

/// Representation of queued packets.
pub trait Packets {
    /// Generates a packet of flow number `flow`; returns the packet's number.
    fn generate(&mut self, flow: u32, len: Length) -> u32;
    /// A packet is of no use any more: the number of its flow.
    fn dispose(&mut self, packet: Dequeued) -> u32;
}

/// Numbers alone: that of its flow for each.
#[derive(Clone, Copy, Debug)]
pub struct Numbers;

impl Packets for Numbers {
    #[inline(always)]
    fn generate(&mut self, flow: u32, _: Length) -> u32 {
        flow
    }

    #[inline(always)]
    fn dispose(&mut self, packet: Dequeued) -> u32 {
        packet.flow
    }
}

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub enqueues: u64,
    pub dequeues: u64,
    pub drops: u64,
}

/// A flow, or the head of the list of all flows with one backlog.
#[derive(Clone, Copy, Debug)]
struct Node {
    previous: u32,
    next: u32,
    backlog: u32,
    len: Length,
}

/// A generator and consumer of packets.
#[derive(Debug)]
pub struct Controller<P = Numbers> {
    /// The flows, then the head of one circular list for each backlog.
    nodes: Vec<Node>,
    flows: u32,
    /// Bit b: some flow holds b packets, and may hold one more.
    levels: u32,
    pending: u64,
    filling: bool,
    qmin: u64,
    qmax: u64,
    bursts: Option<Bursts>,
    packets: P,
}

#[derive(Debug)]
struct Bursts {
    weights: Vec<u32>,
    random: SmallRng,
    flow: u32,
    left: u32,
}

impl Controller {
    /// Returns a controller for these flows, all of them idle.
    pub fn new(sets: &FlowSets, qmin: u64, qmax: u64, arrivals: Arrivals, seed: u64) -> Self {
        let flows = sets.flows() as u32;
        let node = |len| Node {
            previous: 0,
            next: 0,
            backlog: 0,
            len,
        };
        let mut nodes = Vec::with_capacity(flows as usize + MOST as usize + 1);
        let mut weights = Vec::new();
        for set in sets.sets() {
            nodes.extend(std::iter::repeat_n(node(set.length), set.flows));
            if arrivals == Arrivals::Bursty {
                weights.extend(std::iter::repeat_n(set.weight.get(), set.flows));
            }
        }
        for head in flows..=flows + MOST {
            let mut list = node(Length::MAX);
            (list.previous, list.next) = (head, head);
            nodes.push(list);
        }
        let mut controller = Controller {
            nodes,
            flows,
            levels: 1,
            pending: 0,
            filling: true,
            qmin,
            qmax: qmax.max(qmin + 1),
            bursts: (arrivals == Arrivals::Bursty).then(|| Bursts {
                weights,
                random: SmallRng::seed_from_u64(seed),
                flow: 0,
                left: 0,
            }),
            packets: Numbers,
        };
        for flow in 0..flows {
            controller.append(flow, 0);
        }
        controller
    }

    /// The same with memory for each packet: for as many as are ever queued at a time, each as long as the
    /// longest of all. Its header is written where a packet is generated, and read where it is disposed of.
    ///
    /// # Errors
    ///
    /// There is not as much memory.
    pub fn in_memory(self, sets: &FlowSets) -> Result<Controller<Blocks>> {
        // Room for all that is ever let wait, however high it aims, and for the next.
        let queued = self.qmax.min(u64::from(self.flows) * u64::from(MOST));
        let lengths = sets.sets().iter().map(|set| set.length);
        let longest = lengths.max().unwrap_or(Length::MAX);
        Ok(Controller {
            packets: Blocks::new(queued + 1, longest)?,
            nodes: self.nodes,
            flows: self.flows,
            levels: self.levels,
            pending: self.pending,
            filling: self.filling,
            qmin: self.qmin,
            qmax: self.qmax,
            bursts: self.bursts,
        })
    }
}

impl<P: Packets> Controller<P> {
    /// Makes `loops` requests: each an enqueue or a dequeue.
    pub fn drive(&mut self, subject: &mut impl Subject, loops: u64) -> Tally {
        let before = self.pending;
        let (mut enqueues, mut drops) = (0, 0);
        for _ in 0..loops {
            if self.filling && self.pending >= self.qmax {
                self.filling = false;
            } else if !self.filling && self.pending <= self.qmin {
                self.filling = true;
            }
            match self.filling.then(|| self.generate()).flatten() {
                Some((flow, len)) => {
                    enqueues += 1;
                    let packet = self.packets.generate(flow, len);
                    if subject.enqueue(flow, len, packet) {
                        self.pending += 1;
                    } else {
                        drops += 1;
                        self.dispose(Dequeued { flow, packet });
                    }
                }
                None => {
                    if let Some(packet) = subject.dequeue() {
                        self.pending -= 1;
                        self.dispose(packet);
                    }
                }
            }
        }
        Tally {
            enqueues,
            dequeues: before + enqueues - drops - self.pending,
            drops,
        }
    }

    /// Generates a packet for the current flow; `None` if all flows are full.
    #[inline(always)]
    fn generate(&mut self) -> Option<(u32, Length)> {
        let flow = match &mut self.bursts {
            None => self.least_backlogged()?,
            Some(bursts) if bursts.left > 0 && self.nodes[bursts.flow as usize].backlog < MOST => {
                bursts.left -= 1;
                bursts.flow
            }
            Some(_) => self.start_burst()?,
        };
        let Node { backlog, len, .. } = self.nodes[flow as usize];
        self.take(flow, backlog);
        self.append(flow, backlog + 1);
        Some((flow, len))
    }

    #[inline]
    fn least_backlogged(&self) -> Option<u32> {
        if self.levels == 0 {
            return None;
        }
        let head = self.flows + self.levels.trailing_zeros();
        Some(self.nodes[head as usize].next)
    }

    fn start_burst(&mut self) -> Option<u32> {
        let flow = self.least_backlogged()?;
        let bursts = self.bursts.as_mut()?;
        let longest = bursts.weights[flow as usize].saturating_mul(16);
        bursts.flow = flow;
        bursts.left = bursts.random.random_range(1..=longest) - 1;
        Some(flow)
    }

    /// A packet has left.
    #[inline(always)]
    fn dispose(&mut self, packet: Dequeued) {
        let flow = self.packets.dispose(packet);
        let level = self.nodes[flow as usize].backlog;
        self.take(flow, level);
        self.append(flow, level - 1);
    }

    #[inline(always)]
    fn take(&mut self, flow: u32, level: u32) {
        let Node { previous, next, .. } = self.nodes[flow as usize];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        if previous == next {
            self.levels &= !(1 << level);
        }
    }

    #[inline(always)]
    fn append(&mut self, flow: u32, level: u32) {
        let head = self.flows + level;
        let last = self.nodes[head as usize].previous;
        self.nodes[head as usize].previous = flow;
        self.nodes[last as usize].next = flow;
        let node = &mut self.nodes[flow as usize];
        (node.previous, node.next, node.backlog) = (last, head, level);
        if level < MOST {
            self.levels |= 1 << level;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A plain queue that records its calls.
    #[derive(Default)]
    struct Recorder {
        /// Flows and numbers of packets.
        queue: VecDeque<(u32, u32)>,
        arrivals: Vec<u32>,
        backlogs: Vec<u32>,
        highest: usize,
    }

    impl Recorder {
        fn new(flows: usize) -> Self {
            Recorder {
                backlogs: vec![0; flows],
                ..Self::default()
            }
        }
    }

    impl Subject for Recorder {
        fn enqueue(&mut self, flow: u32, _: Length, packet: u32) -> bool {
            self.arrivals.push(flow);
            self.queue.push_back((flow, packet));
            self.backlogs[flow as usize] += 1;
            assert!(self.backlogs[flow as usize] <= MOST);
            self.highest = self.highest.max(self.queue.len());
            true
        }
        fn dequeue(&mut self) -> Option<Dequeued> {
            let (flow, packet) = self.queue.pop_front()?;
            self.backlogs[flow as usize] -= 1;
            Some(Dequeued { flow, packet })
        }
    }

    fn sets(text: &str) -> FlowSets {
        text.parse().unwrap()
    }

    #[test]
    fn the_backlog_swings_between_its_bounds() {
        let mut recorder = Recorder::new(8);
        let mut controller = Controller::new(&sets("1::8"), 24, 240, Arrivals::Smooth, 1);
        let tally = controller.drive(&mut recorder, 240 + 216 + 216);
        assert_eq!((tally.enqueues, tally.dequeues), (240 + 216, 216));
        assert_eq!(recorder.highest, 240);
        assert_eq!(recorder.queue.len(), 240);
    }

    #[test]
    fn smooth_arrivals_fill_the_flows_in_turn() {
        let mut recorder = Recorder::new(4);
        Controller::new(&sets("1::4"), 0, 8, Arrivals::Smooth, 1).drive(&mut recorder, 8);
        assert_eq!(recorder.arrivals, [0, 1, 2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn a_burst_stays_with_its_flow_up_to_16_times_the_weight() {
        let mut recorder = Recorder::new(16);
        Controller::new(&sets("2::16"), 0, 300, Arrivals::Bursty, 7).drive(&mut recorder, 300);
        let mut runs = vec![1];
        for pair in recorder.arrivals.windows(2) {
            if pair[0] == pair[1] {
                *runs.last_mut().unwrap() += 1;
            } else {
                runs.push(1);
            }
        }
        assert!(runs.iter().all(|&run| run <= 32), "{runs:?}");
        assert!(runs.iter().any(|&run| run > 8), "{runs:?}");
    }

    #[test]
    fn a_seed_repeats_its_bursts_and_another_has_others() {
        let arrivals = |seed| {
            let mut recorder = Recorder::new(16);
            Controller::new(&sets("1::16"), 40, 300, Arrivals::Bursty, seed)
                .drive(&mut recorder, 2000);
            recorder.arrivals
        };
        assert_eq!(arrivals(1), arrivals(1));
        assert_ne!(arrivals(1), arrivals(2));
    }

    #[test]
    fn packets_in_memory_come_in_the_same_order_and_each_has_its_own() {
        let drive = |in_memory: bool| {
            let sets = sets("1:60:8,2:1700:4");
            let mut recorder = Recorder::new(12);
            let mut controller = Controller::new(&sets, 5, 1_000, Arrivals::Bursty, 3);
            let tally = match in_memory {
                true => (controller.in_memory(&sets).unwrap()).drive(&mut recorder, 3_000),
                false => controller.drive(&mut recorder, 3_000),
            };
            (tally, recorder)
        };
        let ((numbers, of_flows), (memory, of_blocks)) = (drive(false), drive(true));
        assert_eq!(numbers, memory);
        assert_eq!(of_flows.arrivals, of_blocks.arrivals);
        let mut packets: Vec<_> = of_blocks.queue.iter().map(|&(_, packet)| packet).collect();
        packets.sort_unstable();
        packets.dedup();
        assert_eq!(packets.len(), of_blocks.queue.len());
        assert!(packets.len() > 12, "more than flows");
    }

    #[test]
    fn when_all_flows_are_full_packets_are_taken_out() {
        let mut recorder = Recorder::new(1);
        let mut controller = Controller::new(&sets("1::1"), 0, 100, Arrivals::Smooth, 1);
        let tally = controller.drive(&mut recorder, 41);
        assert_eq!((tally.enqueues, tally.dequeues), (35, 6));
    }
}
