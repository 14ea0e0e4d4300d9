//! Flows that are never idle, and the lag of each behind its share.

use fairlane_core::random::splitmix64;
use fairlane_core::{FlowId, PacketScheduler, Scheduler};

use crate::numbers::{config, length, scheduler};

/// A generator of random numbers, the same in every run.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns any 64-bit number.
    pub fn number(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// Returns a number from 0 to `count` - 1.
    pub fn below(&mut self, count: u32) -> u32 {
        (self.number() % u64::from(count)) as u32
    }

    /// Returns an element of a list.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// A flow of a test: its weight, its maximum packet length, and the lengths that it sends.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Weight.
    pub weight: u32,
    /// Maximum packet length in bytes.
    pub max_length: u32,
    /// Lengths that it sends, in bytes, selected at random.
    pub lengths: Vec<u32>,
}

impl Offer {
    /// Returns a flow with packets of one length.
    pub fn of(weight: u32, length: u32) -> Offer {
        Offer {
            weight,
            max_length: length,
            lengths: vec![length],
        }
    }

    /// Returns a flow with short, long and intermediate packets.
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
    /// Returns flows with two queued packets each.
    pub fn new(algorithm: A, offers: Vec<Offer>) -> Self {
        Self::holding(algorithm, offers, |_| 2)
    }

    /// Returns flows with a number of queued packets each.
    ///
    /// # Panics
    ///
    /// If the scheduler rejects one of these flows or packets.
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

    /// Returns the flow to be served next.
    ///
    /// # Panics
    ///
    /// If the scheduler is empty.
    pub fn next_flow(&mut self) -> usize {
        let packet = self.link.peek().expect("all flows are backlogged");
        packet.owner.number() as usize
    }

    /// Serves one packet, enqueues another instead, and returns the flow and the bytes served.
    ///
    /// # Panics
    ///
    /// If the scheduler selects no flow.
    pub fn serve(&mut self) -> (usize, u32) {
        let Some(packet) = self.link.dequeue() else {
            panic!("{}: {} packets wait", A::NAME, self.link.len());
        };
        let flow = packet.owner.number() as usize;
        self.refill(flow);
        (flow, packet.len.get())
    }
}

/// B-WFI (Eq. 7) of every flow while the sum of weights is constant: the most by which `phi W(t1, t2)` exceeds `W^k(t1,
/// t2)` over any interval in which flow k is backlogged. Counted in bytes times the sum of weights, it is exact.
///
/// Only intervals from the end of one of the flow's packets (or the start of its backlog) to the start of another
/// matter: within its own packets the difference only falls.
#[derive(Clone, Debug)]
pub struct Wfi {
    offers: Vec<Offer>,
    weight_sum: i128,
    work: i128,
    /// For each flow: W^k, the largest `W^k - phi W` in this backlog, the B-WFI so far.
    served: Vec<i128>,
    ahead: Vec<i128>,
    worst: Vec<i128>,
}

impl Wfi {
    /// Returns a measurement of these flows.
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

    /// Returns the flows.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Returns the sum of their weights.
    pub fn weight_sum(&self) -> i128 {
        self.weight_sum
    }

    fn difference(&self, flow: usize) -> i128 {
        self.served[flow] * self.weight_sum - i128::from(self.offers[flow].weight) * self.work
    }

    /// Records that an idle flow becomes backlogged.
    pub fn backlogged(&mut self, flow: usize) {
        self.ahead[flow] = self.difference(flow);
    }

    /// Restarts the measurement of a flow.
    pub fn forget(&mut self, flow: usize) {
        self.worst[flow] = 0;
        self.backlogged(flow);
    }

    /// Updates the flow's index before one of its packets leaves, or at the end of the run.
    pub fn look(&mut self, flow: usize) {
        let behind = self.ahead[flow] - self.difference(flow);
        self.worst[flow] = self.worst[flow].max(behind);
    }

    /// Records that a packet of the flow left.
    pub fn serve(&mut self, flow: usize, bytes: u32) {
        self.look(flow);
        self.work += i128::from(bytes);
        self.served[flow] += i128::from(bytes);
        self.ahead[flow] = self.ahead[flow].max(self.difference(flow));
    }

    /// Returns the flow's B-WFI so far, in bytes times the sum of weights.
    pub fn exact(&self, flow: usize) -> i128 {
        self.worst[flow]
    }

    /// Returns the flow's B-WFI so far, in bytes.
    pub fn service(&self, flow: usize) -> f64 {
        self.worst[flow] as f64 / self.weight_sum as f64
    }

    /// Returns the bytes that the flow sent.
    pub fn served(&self, flow: usize) -> u64 {
        self.served[flow] as u64
    }

    /// Returns the total work of the link in bytes.
    pub fn work(&self) -> u64 {
        self.work as u64
    }
}
