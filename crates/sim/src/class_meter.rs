//! Counts each class's transmitted bytes, by interval.

use crate::delay::Delays;
use crate::observer::{Completion, Now, Observer};
use crate::queue::PacketInfo;
use crate::time::{PICOS_PER_SECOND, Picos};
use fairlane_core::Length;
use fairlane_core::Rejection;
use fairlane_core::tree::{ClassFlow, ClassId};

/// Counts of the packets of one class.
#[derive(Clone, Debug, Default)]
struct Measured {
    /// Bytes of packets that ended in each interval.
    bytes: Vec<u64>,
    delays: Delays,
    marked: u64,
    dropped: u64,
    discarded: u64,
}

/// Counts bytes of each class by intervals of time, and measures delays from arrival until the last
/// bit has left the link. Of leaves only: inner classes are sums. O(1) a packet; memory grows with
/// the intervals.
#[derive(Clone, Debug)]
pub struct ClassMeter {
    interval: Picos,
    classes: Vec<Measured>,
}

impl ClassMeter {
    /// Returns a meter by intervals of this length, from time 0; at least a picosecond.
    pub fn new(interval: Picos) -> ClassMeter {
        ClassMeter {
            interval: interval.max(Picos(1)),
            classes: Vec::new(),
        }
    }

    /// Length of an interval.
    pub fn interval(&self) -> Picos {
        self.interval
    }

    /// Intervals in which something was sent, and those before.
    pub fn intervals(&self) -> usize {
        let lengths = self.classes.iter().map(|class| class.bytes.len());
        lengths.max().unwrap_or(0)
    }

    /// Bytes of the packets of a class that ended in the `number`-th interval, from 0.
    pub fn bytes(&self, class: ClassId, number: usize) -> u64 {
        let bytes = self.class(class).and_then(|class| class.bytes.get(number));
        bytes.copied().unwrap_or(0)
    }

    /// Mean rate of a class in whole intervals from `from` until before `until`, in bit/s. 0
    /// for none.
    pub fn rate(&self, class: ClassId, from: Picos, until: Picos) -> f64 {
        let first = from.0.div_ceil(self.interval.0) as usize;
        let last = (until.0 / self.interval.0) as usize;
        if last <= first {
            return 0.0;
        }
        let bytes: u64 = (first..last).map(|number| self.bytes(class, number)).sum();
        let picos = self.interval.0 * (last - first) as u128;
        bytes as f64 * 8.0 * PICOS_PER_SECOND as f64 / picos as f64
    }

    /// Delays of a class's packets, or `None` if none was sent or lost.
    pub fn delays(&self, class: ClassId) -> Option<&Delays> {
        Some(&self.class(class)?.delays)
    }

    /// Packets of a class that were sent with a mark.
    pub fn marked(&self, class: ClassId) -> u64 {
        self.class(class).map_or(0, |class| class.marked)
    }

    /// Packets of a class that were rejected on arrival.
    pub fn dropped(&self, class: ClassId) -> u64 {
        self.class(class).map_or(0, |class| class.dropped)
    }

    /// Packets of a class that were accepted and discarded by queue management.
    pub fn discarded(&self, class: ClassId) -> u64 {
        self.class(class).map_or(0, |class| class.discarded)
    }

    fn class(&self, class: ClassId) -> Option<&Measured> {
        self.classes.get(class.number() as usize)
    }

    fn class_mut(&mut self, class: ClassId) -> &mut Measured {
        let number = class.number() as usize;
        if self.classes.len() <= number {
            self.classes.resize_with(number + 1, Measured::default);
        }
        &mut self.classes[number]
    }
}

impl Observer<ClassFlow> for ClassMeter {
    fn completed(&mut self, completion: &Completion<ClassFlow>) {
        let (packet, end) = (&completion.packet, completion.end.time);
        // A packet that ends with an interval belongs to it.
        let number = (end.0.saturating_sub(1) / self.interval.0) as usize;
        let class = self.class_mut(packet.flow.class);
        if class.bytes.len() <= number {
            class.bytes.resize(number + 1, 0);
        }
        class.bytes[number] += u64::from(packet.len.get());
        class.delays.record(end - packet.arrival);
        class.marked += u64::from(packet.marked);
    }

    fn dropped(&mut self, _: Now, to: ClassFlow, _: Length, _: Rejection) {
        self.class_mut(to.class).dropped += 1;
    }

    fn discarded(&mut self, _: Now, packet: &PacketInfo<ClassFlow>) {
        self.class_mut(packet.flow.class).discarded += 1;
    }
}
