//! Flows that are never idle, and how far each is behind its share.

use fairlane_core::random::splitmix64;
use fairlane_core::{FlowId, PacketScheduler, Scheduler};

use crate::numbers::{config, length, scheduler};

/// Numbers at random, the same in every run.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Any number of 64 bits.
    pub fn number(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// 0 to `count` - 1.
    pub fn below(&mut self, count: u32) -> u32 {
        (self.number() % u64::from(count)) as u32
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// A flow of a test: its weight, its longest packet, the lengths that it sends.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Weight.
    pub weight: u32,
    /// Longest packet, in bytes.
    pub max_length: u32,
    /// Lengths that it sends, in bytes: any of them, at random.
    pub lengths: Vec<u32>,
}

impl Offer {
    /// All packets of one length.
    pub fn of(weight: u32, length: u32) -> Offer {
        Offer {
            weight,
            max_length: length,
            lengths: vec![length],
        }
    }

    /// Short and long packets and some in between.
    pub fn mixed(weight: u32, max_length: u32) -> Offer {
        let lengths = [1, 2, 3, 10, 29, 67, 90, 100].map(|percent| max_length * percent / 100);
        Offer {
            weight,
            max_length,
            lengths: lengths.into_iter().filter(|&length| length > 0).collect(),
        }
    }
}

/// Flows that are never idle: numbers 0 and up, in the order of their offers.
#[derive(Debug)]
pub struct Backlogged<A: Scheduler> {
    /// The scheduler.
    pub link: PacketScheduler<A, ()>,
    /// The flows.
    pub offers: Vec<Offer>,
    random: Random,
}

impl<A: Scheduler> Backlogged<A> {
    /// Flows that hold two packets each.
    pub fn new(algorithm: A, offers: Vec<Offer>) -> Self {
        Self::holding(algorithm, offers, |_| 2)
    }

    /// Flows that hold so many packets each.
    ///
    /// # Panics
    ///
    /// If the scheduler takes no flow or packet of those.
    pub fn holding(algorithm: A, offers: Vec<Offer>, packets: impl Fn(&Offer) -> u32) -> Self {
        let mut link = scheduler(algorithm);
        for offer in &offers {
            link.add_flow(config(offer.weight, offer.max_length))
                .expect("there is room for the flow");
        }
        let mut all = Backlogged {
            link,
            offers,
            random: Random(1),
        };
        for flow in 0..all.offers.len() {
            for _ in 0..packets(&all.offers[flow]) {
                all.refill(flow);
            }
        }
        all
    }

    fn refill(&mut self, flow: usize) {
        let bytes = self.random.pick(&self.offers[flow].lengths);
        let id = FlowId::new(flow as u32);
        self.link
            .enqueue(id, length(bytes), ())
            .expect("there is room for the packet");
    }

    /// Who would be served next.
    ///
    /// # Panics
    ///
    /// If it is nobody.
    pub fn next_flow(&mut self) -> usize {
        let packet = self.link.peek().expect("all flows are backlogged");
        packet.owner.number() as usize
    }

    /// Serves one packet, in whose place another comes: its flow and bytes.
    ///
    /// # Panics
    ///
    /// If nobody is selected.
    pub fn serve(&mut self) -> (usize, u32) {
        let Some(packet) = self.link.dequeue() else {
            panic!("{}: {} packets wait", A::NAME, self.link.len());
        };
        let flow = packet.owner.number() as usize;
        self.refill(flow);
        (flow, packet.len.get())
    }
}

/// B-WFI (Eq. 7) of every flow while the sum of weights is constant:
/// the most by which `phi W(t1, t2)` exceeds `W^k(t1, t2)` over any interval in which
/// flow k is backlogged. Counted in bytes times the sum of weights, it is exact.
///
/// It is enough to look at intervals from the end of one of the flow's packets (or
/// the start of its backlog) to the start of another: within its own packets the
/// difference only falls.
#[derive(Clone, Debug)]
pub struct Wfi {
    offers: Vec<Offer>,
    weight_sum: i128,
    work: i128,
    /// Of each flow: W^k, the largest `W^k - phi W` of this backlog, the B-WFI so far.
    served: Vec<i128>,
    ahead: Vec<i128>,
    worst: Vec<i128>,
}

impl Wfi {
    /// Of these flows.
    pub fn new(offers: &[Offer]) -> Self {
        let count = offers.len();
        Wfi {
            weight_sum: offers.iter().map(|offer| i128::from(offer.weight)).sum(),
            offers: offers.to_vec(),
            work: 0,
            served: vec![0; count],
            ahead: vec![0; count],
            worst: vec![0; count],
        }
    }

    /// The flows.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// The sum of their weights.
    pub fn weight_sum(&self) -> i128 {
        self.weight_sum
    }

    fn difference(&self, flow: usize) -> i128 {
        self.served[flow] * self.weight_sum - i128::from(self.offers[flow].weight) * self.work
    }

    /// The flow was idle until now.
    pub fn backlogged(&mut self, flow: usize) {
        self.ahead[flow] = self.difference(flow);
    }

    /// Measures the flow from here on.
    pub fn forget(&mut self, flow: usize) {
        self.worst[flow] = 0;
        self.backlogged(flow);
    }

    /// A packet of the flow is about to leave, or the run to end.
    pub fn look(&mut self, flow: usize) {
        let behind = self.ahead[flow] - self.difference(flow);
        self.worst[flow] = self.worst[flow].max(behind);
    }

    /// A packet of the flow left.
    pub fn serve(&mut self, flow: usize, bytes: u32) {
        self.look(flow);
        self.work += i128::from(bytes);
        self.served[flow] += i128::from(bytes);
        self.ahead[flow] = self.ahead[flow].max(self.difference(flow));
    }

    /// B-WFI of the flow so far, in bytes times the sum of weights.
    pub fn exact(&self, flow: usize) -> i128 {
        self.worst[flow]
    }

    /// B-WFI of the flow so far, in bytes.
    pub fn service(&self, flow: usize) -> f64 {
        self.worst[flow] as f64 / self.weight_sum as f64
    }

    /// Bytes that the flow sent.
    pub fn served(&self, flow: usize) -> u64 {
        self.served[flow] as u64
    }

    /// What the link did in all, in bytes.
    pub fn work(&self) -> u64 {
        self.work as u64
    }
}
