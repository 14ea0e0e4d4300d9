//! A link that sends a byte in a unit of time, with a transmit queue in front.

use std::collections::VecDeque;

use super::{Offer, Random, config, length, next, scheduler};
use fairlane_core::bounds::Wfi;
use fairlane_core::{FlowId, Scheduler};
use fairlane_testkit::meter::{Meter, Taken};

/// The link, with the indexes of every flow.
pub(crate) struct Wire<A: Scheduler> {
    link: fairlane_core::PacketScheduler<A, ()>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) meter: Meter,
    queue: VecDeque<Taken>,
    queued: u64,
    capacity: u64,
    /// Bytes sent, or the time: while the wire idles, nothing counts.
    pub(crate) sent: u64,
}

impl<A: Scheduler> Wire<A> {
    pub(crate) fn new(algorithm: A, offers: &[Offer], capacity: u64) -> Self {
        let mut link = scheduler(algorithm);
        for offer in offers {
            link.add_flow(config(offer.weight, offer.max_length))
                .unwrap();
        }
        let sum: f64 = offers.iter().map(|offer| f64::from(offer.weight)).sum();
        let rates = offers.iter().map(|offer| f64::from(offer.weight) / sum);
        Wire {
            link,
            offers: offers.to_vec(),
            meter: Meter::new(rates),
            queue: VecDeque::new(),
            queued: 0,
            capacity,
            sent: 0,
        }
    }

    /// A packet arrives when the wire has sent `at` bytes.
    pub(crate) fn arrive(&mut self, flow: usize, bytes: u32, at: u64) {
        self.link
            .enqueue(FlowId::new(flow as u32), length(bytes), ())
            .unwrap();
        self.meter.arrived(flow, bytes, at);
    }

    fn take(&mut self) -> Option<Taken> {
        if self.link.is_empty() {
            return None;
        }
        let flow = next(&mut self.link).owner.number() as usize;
        Some(self.meter.taken(flow, self.sent))
    }

    fn fill(&mut self) {
        while let Some(head) = self.link.peek() {
            let bytes = u64::from(head.len.get());
            if self.queued + bytes > self.capacity {
                return;
            }
            self.queued += bytes;
            let packet = self.take().unwrap();
            self.queue.push_back(packet);
        }
    }

    /// Returns the packet that goes to the wire now, if any.
    pub(crate) fn next_packet(&mut self) -> Option<Taken> {
        self.fill();
        let packet = match self.queue.pop_front() {
            Some(packet) => {
                self.queued -= u64::from(packet.bytes);
                packet
            }
            None => self.take()?,
        };
        self.fill();
        self.meter.started(packet, self.sent);
        Some(packet)
    }

    pub(crate) fn end(&mut self, packet: Taken) {
        self.sent += u64::from(packet.bytes);
        self.meter.sent(packet, self.sent);
    }

    /// Up to six packets of a flow, when this much of the next packet is sent.
    pub(crate) fn burst(&mut self, sent: u32, random: &mut Random) {
        let flow = random.below(self.offers.len() as u32) as usize;
        for _ in 0..1 + random.below(6) {
            let bytes = random.pick(&self.offers[flow].lengths);
            self.arrive(flow, bytes, self.sent + u64::from(sent));
        }
    }

    /// Measured B-WFI and T-WFI over the bounds, the largest of any flow.
    pub(crate) fn of_bounds(&self, bound: impl Fn(usize) -> Wfi) -> (f64, f64) {
        let mut worst = (0.0f64, 0.0f64);
        for flow in 0..self.offers.len() {
            let bound = bound(flow);
            let (service, delay) = (self.meter.service(flow), self.meter.delay(flow));
            worst.0 = worst.0.max(service / bound.service.bytes());
            worst.1 = worst.1.max(delay / bound.delay.bytes());
        }
        worst
    }
}
