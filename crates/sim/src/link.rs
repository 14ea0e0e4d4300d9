//! The link and the transmit queue in front of it.

use crate::time::{PICOS_PER_SECOND, Picos, Work};
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{Length, Rate};
use std::collections::VecDeque;

/// Capacity of the queue between the scheduler and the link, excluding the packet in service.
///
/// This is Q of the guarantees with a transmit queue (QFQ+ paper, Appendix A.4): packets that have
/// left the scheduler and are not yet being transmitted are out of its control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitQueue {
    /// At most this many packets.
    Packets(u32),
    /// At most this many bytes in whole packets.
    Bytes(u64),
}

impl TransmitQueue {
    /// No queue: the scheduler is asked for a packet when the link is free.
    pub const NONE: TransmitQueue = TransmitQueue::Packets(0);

    /// Most bytes that wait, if no packet is longer than `longest`.
    pub fn bytes(self, longest: Length) -> u64 {
        match self {
            TransmitQueue::Packets(packets) => u64::from(packets) * u64::from(longest.get()),
            TransmitQueue::Bytes(bytes) => bytes,
        }
    }
}

/// A packet that has left the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent<P> {
    /// Its length.
    pub len: Length,
    /// The caller's data of the packet.
    pub payload: P,
    /// When its transmission started, rounded down.
    pub start: Picos,
    /// When it ended, rounded down.
    pub end: Picos,
    /// Work of the link before it, exact.
    pub start_work: Work,
    /// Work of the link with it, exact.
    pub end_work: Work,
}

/// A link of constant rate behind a FIFO transmit queue.
///
/// The end of a packet is the start of its busy period plus *all* bits of that period
/// over the rate, rounded down once: errors do not add up, however long the link is busy.
/// Rounding down keeps the order of events as it is in real numbers: what arrives in the
/// picosecond in which a packet ends arrives before it has ended.
#[derive(Clone, Debug)]
pub struct Link<P> {
    capacity: TransmitQueue,
    /// The first is in service.
    packets: VecDeque<(Length, P)>,
    waiting_bytes: u64,
    progress: Progress,
}

/// How far a link is.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    rate: Rate,
    period_start: Picos,
    /// Bits of the busy period: completed, and with the packet in service.
    period_done: u128,
    period_bits: u128,
    /// The remainder from rounding the packets' time down to whole picoseconds, in fractions of one
    /// by the rate.
    remainder: u64,
    /// Bits sent before the busy period.
    before: u128,
    /// When the packet in service starts and ends, or the last one did.
    service: (Picos, Picos),
}

impl Progress {
    /// A packet of `len` is in service from `now`, or without a gap if the last one ends in this
    /// very picosecond.
    #[inline]
    fn start(&mut self, now: Picos, len: Length) {
        if now > self.service.1 {
            self.before += self.period_done;
            self.period_start = now;
            self.period_done = 0;
            self.period_bits = 0;
            self.remainder = 0;
            self.service.1 = now;
        }
        self.serve(len);
    }

    /// Appends a packet of `len`. It ends when all bits of the busy period have been sent, rounded
    /// down: earlier remainders are kept, so that this is one rounding of all of them.
    #[inline]
    fn serve(&mut self, len: Length) {
        let bits = u64::from(len.get()) * 8;
        self.period_bits += u128::from(bits);
        let parts = bits * PICOS_PER_SECOND + self.remainder;
        self.remainder = parts % self.rate.bps();
        let start = self.service.1;
        self.service = (start, start + Picos((parts / self.rate.bps()).into()));
    }

    /// As [`Link::completed`].
    #[inline]
    fn completed(&self) -> Work {
        Work::from_bits(self.before + self.period_done)
    }

    /// As [`Link::work`].
    pub(crate) fn work(&self, at: Picos) -> Work {
        let elapsed = at.since(self.period_start).0;
        let sent = elapsed.saturating_mul(self.rate.bps().into());
        let most = Work::from_bits(self.period_bits).0;
        let least = Work::from_bits(self.period_done).0;
        Work::from_bits(self.before) + Work(sent.clamp(least, most))
    }
}

impl<P> Link<P> {
    /// Returns an idle link.
    pub fn new(rate: Rate, capacity: TransmitQueue) -> Link<P> {
        Link {
            capacity,
            packets: VecDeque::new(),
            waiting_bytes: 0,
            progress: Progress {
                rate,
                period_start: Picos::ZERO,
                period_done: 0,
                period_bits: 0,
                remainder: 0,
                before: 0,
                service: (Picos::ZERO, Picos::ZERO),
            },
        }
    }

    /// Returns its rate.
    pub fn rate(&self) -> Rate {
        self.progress.rate
    }

    /// Returns the capacity of its queue.
    pub fn capacity(&self) -> TransmitQueue {
        self.capacity
    }

    /// Packets waiting or in service. O(1).
    pub fn held(&self) -> usize {
        self.packets.len()
    }

    /// Returns whether nothing is in service. O(1).
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns whether a packet of `len` would be taken. An idle link takes any. O(1).
    #[inline]
    #[doc(hidden)]
    pub fn has_room(&self, len: Length) -> bool {
        match (self.packets.len(), self.capacity) {
            (0, _) => true,
            (held, TransmitQueue::Packets(packets)) => held <= packets as usize,
            (_, TransmitQueue::Bytes(bytes)) => self.waiting_bytes + u64::from(len.get()) <= bytes,
        }
    }

    /// Returns whether no packet of any length would be taken. O(1).
    #[inline]
    pub fn is_full(&self) -> bool {
        !self.has_room(Length::new(1).unwrap_or(Length::MAX))
    }

    /// Takes a packet at time `now`, or hands it back for want of room. It starts at once
    /// if the link is idle, without a gap if the last packet ends in this very picosecond.
    /// Whether it started. O(1).
    #[inline]
    pub fn push(&mut self, now: Picos, len: Length, payload: P) -> Result<bool, P> {
        if !self.has_room(len) {
            return Err(payload);
        }
        let starts = self.packets.is_empty();
        if starts {
            self.progress.start(now, len);
        } else {
            self.waiting_bytes += u64::from(len.get());
        }
        self.packets.push_back((len, payload));
        Ok(starts)
    }

    /// Returns the packet in service. O(1).
    pub fn in_service(&self) -> Option<(Length, &P)> {
        self.packets.front().map(|(len, payload)| (*len, payload))
    }

    /// Returns the last packet, if it is still here. O(1).
    #[inline]
    #[doc(hidden)]
    pub fn newest(&self) -> Option<&P> {
        self.packets.back().map(|(_, payload)| payload)
    }

    /// Returns all packets here, in order.
    #[doc(hidden)]
    pub fn payloads_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.packets.iter_mut().map(|(_, payload)| payload)
    }

    /// Returns when the packet in service ends. O(1).
    #[inline]
    pub fn next_completion(&self) -> Option<Picos> {
        (!self.packets.is_empty()).then_some(self.progress.service.1)
    }

    /// Ends the packet in service, whenever that is; the next in the queue follows it
    /// without a gap. O(1).
    #[inline]
    pub fn complete(&mut self) -> Option<Sent<P>> {
        let (len, payload) = self.packets.pop_front()?;
        let progress = &mut self.progress;
        let (start, end) = progress.service;
        let start_work = progress.completed();
        progress.period_done = progress.period_bits;
        let end_work = progress.completed();
        if let Some(&(next, _)) = self.packets.front() {
            progress.serve(next);
            self.waiting_bytes -= u64::from(next.get());
        }
        Some(Sent {
            len,
            payload,
            start,
            end,
            start_work,
            end_work,
        })
    }

    /// Bits of completed packets. O(1).
    pub fn completed(&self) -> Work {
        self.progress.completed()
    }

    /// W(`at`): the bits transmitted until `at`, including the transmitted part of the packet in
    /// service. Exact for any time from the last completion to the next. O(1).
    pub fn work(&self, at: Picos) -> Work {
        self.progress.work(at)
    }

    /// Returns the work that is left to transmit of the packets here: exact as
    /// [`work`](Self::work). O(1).
    pub(crate) fn unsent(&self, at: Picos) -> Work {
        let progress = &self.progress;
        let in_service = Work::from_bits(progress.before + progress.period_bits);
        in_service - progress.work(at) + Work::from_bytes(self.waiting_bytes)
    }

    /// Returns how far it is.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }
}

// The transmission time of a packet plus the previous remainder is computed in 64 bits.
const _: () = assert!(MAX_LENGTH as u64 * 8 <= (u64::MAX - Rate::MAX.bps()) / PICOS_PER_SECOND);
const _: () = assert!(PICOS_PER_SECOND == Rate::MAX.bps());
