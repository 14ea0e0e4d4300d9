//! Passive measurement of TCP round-trip times: from the arrival of a segment to the arrival of its acknowledgment, by
//! the timestamps of both ends (RFC 7323), as in K. Nichols' *pping*.
//!
//! The forwarding thread (or each of two) inspects every segment of its links and sends its findings to the control
//! thread, which counts them. If the control thread falls behind, findings are missed, with no other effect.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlane_core::Nanos;
use fairlane_core::tree::ClassFlow;
use fairlane_mailbox::memo::Memo;
use fairlane_mailbox::{Consumer, Producer, mailbox};
use fairlane_runtime::bridge::Side;
use fairlane_wire::{Layer, segment};

use crate::error::{Result, unfit};

/// Times that are remembered of each direction, and connections.
const PLACES: usize = 1 << 13;
/// Places of the queue of findings to be counted.
pub const FINDINGS: usize = 1 << 14;
/// Bits of a time in microseconds, next to the number of a class.
const TIME_BITS: u32 = 40;
/// How far behind the highest sequence number a segment counts as retransmitted, in bytes.
const WINDOW: i32 = 1 << 26;
/// Increment of the numbering of classes: above the bits of the timestamps that it is mixed with.
const NUMBERING: u64 = 1 << 32;
/// The longest valid round trip in microseconds: a longer one means that the clock has wrapped.
const LONGEST: u64 = 60_000_000;

/// State of segments in transit. Lock-free: each direction's entries are written by its forwarding thread. Only
/// answered entries are also written by the other direction's thread.
struct Table {
    /// For each direction, by segment key, the first segment with a timestamp: its class, arrival time, and the digest
    /// of its flow in that class. An acknowledgment consumes it.
    sent: [Box<[Memo; PLACES]>; 2],
    /// For each direction, by connection: some bits of its key, and its highest sequence number so far.
    highest: [Box<[AtomicU64; PLACES]>; 2],
    /// For each direction, a value that changes whenever its classes are renumbered, so that earlier entries are no
    /// longer found.
    numbering: [AtomicU64; 2],
}

/// An observation of a flow of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The digest of the flow; 0 in a class that has none.
    pub flow: u64,
    /// The number of the class.
    pub class: u32,
    /// The device that the link's packets leave by.
    pub side: Side,
    pub what: What,
}

/// Kinds of observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A segment was acknowledged this many microseconds after its arrival.
    Trip(u32),
    /// A segment was retransmitted, or arrived out of order.
    Again,
    /// A segment was marked by a router before: congestion experienced.
    Marked,
}

/// The eyes of one direction: with its link's classifier, on the forwarding thread.
pub struct Watch {
    table: Arc<Table>,
    /// The device that its segments leave by.
    side: Side,
    findings: Producer<Finding>,
}

/// The observations of a direction.
pub type Findings = Consumer<Finding>;

/// Returns an empty table.
fn places<T: Default + fmt::Debug>() -> Box<[T; PLACES]> {
    let places: Box<[T]> = (0..PLACES).map(|_| T::default()).collect();
    places.try_into().expect("as many as were made")
}

/// Creates the observers of both directions, with their findings.
pub fn watches() -> Result<[(Watch, Findings); 2]> {
    let table = Arc::new(Table {
        sent: [places(), places()],
        highest: [places(), places()],
        numbering: Default::default(),
    });
    let watch = |side| {
        let Ok((findings, found)) = mailbox(FINDINGS) else {
            return unfit("no memory for passive measurement");
        };
        let table = Arc::clone(&table);
        Ok((
            Watch {
                table,
                side,
                findings,
            },
            found,
        ))
    };
    let [left, right] = Side::BOTH.map(watch);
    Ok([left?, right?])
}

impl Watch {
    /// Inspects an arriving frame of a flow of a class. O(options) for a TCP segment, with three table entries.
    #[inline]
    pub fn see(&mut self, frame: &[u8], of: ClassFlow, came: Nanos) {
        if let Some(segment) = segment(frame, Layer::Ethernet) {
            self.look(&segment, of, came);
        }
    }

    /// Renumbers the classes of its link: acknowledgments of earlier segments produce no finding. O(1).
    pub fn renumbered(&mut self) {
        let numbering = &self.table.numbering[self.side as usize];
        // No other thread writes.
        let next = numbering.load(Ordering::Relaxed).wrapping_add(NUMBERING);
        numbering.store(next, Ordering::Relaxed);
    }

    fn look(&mut self, segment: &fairlane_wire::Segment, of: ClassFlow, came: Nanos) {
        let ClassFlow { class, flow } = of;
        let class = class.number();
        let side = self.side;
        let finding = |what| Finding {
            flow,
            class,
            side,
            what,
        };
        let us = (came.0 / 1_000) & ((1 << TIME_BITS) - 1);
        let (own, other) = (self.side as usize, self.side.other() as usize);
        if segment.marked {
            self.find(finding(What::Marked));
        }
        if let Some(echo) = segment.echo {
            let key = self.key(other, segment.reverse, echo);
            if let Some([then, flow]) = self.table.sent[other][place(key)].answer(key) {
                let took = us.wrapping_sub(then) & ((1 << TIME_BITS) - 1);
                if took < LONGEST {
                    self.find(Finding {
                        flow,
                        class: (then >> TIME_BITS) as u32,
                        side: side.other(),
                        what: What::Trip(took as u32),
                    });
                }
            }
        }
        // A pure acknowledgment is not acknowledged.
        if segment.length == 0 {
            return;
        }
        let key = self.key(own, segment.flow, segment.value);
        let noted = u64::from(class) << TIME_BITS | us;
        self.table.sent[own][place(key)].note(key, [noted, flow]);
        if self.is_retransmitted(segment) {
            self.find(finding(What::Again));
        }
    }

    /// Returns the key of a segment of a direction: its connection and timestamp.
    #[inline]
    fn key(&self, direction: usize, flow: u64, value: u32) -> u64 {
        let numbering = self.table.numbering[direction].load(Ordering::Relaxed);
        let mixed = (flow ^ numbering ^ u64::from(value)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ mixed >> 33) | 1
    }

    /// Returns whether the connection has passed this sequence number already.
    fn is_retransmitted(&self, segment: &fairlane_wire::Segment) -> bool {
        let highest = &self.table.highest[self.side as usize][place(segment.flow)];
        let known = highest.load(Ordering::Relaxed);
        let whose = segment.flow & !u64::from(u32::MAX);
        let ahead = segment.next.wrapping_sub(known as u32) as i32;
        // A segment further back is no retransmission but belongs to another connection of the same endpoints.
        if known & !u64::from(u32::MAX) == whose && (-WINDOW..=0).contains(&ahead) {
            return true;
        }
        highest.store(whose | u64::from(segment.next), Ordering::Relaxed);
        false
    }

    fn find(&mut self, finding: Finding) {
        // A full queue means the control thread has not counted for long; the findings it has suffice.
        let _ = self.findings.push(finding);
    }
}

fn place(key: u64) -> usize {
    (key >> 7) as usize % PLACES
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use fairlane_core::tree::ClassId;

    pub const A: [u8; 4] = [10, 0, 0, 1];
    pub const B: [u8; 4] = [10, 0, 0, 2];

    /// Returns a segment between two addresses, with a sequence number, length in bytes, TSval and TSecr.
    pub fn frame(ends: [[u8; 4]; 2], sequence: u32, bytes: u16, stamps: [u32; 2]) -> Vec<u8> {
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend([0x45, 0]);
        frame.extend((52 + bytes).to_be_bytes());
        frame.extend([0, 0, 0, 0, 9, 6, 0, 0]);
        ends.iter().for_each(|end| frame.extend(end));
        frame.extend([0, 80, 0, 80]);
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 0, 8 << 4, ACK, 0, 0, 0, 0, 0, 0]);
        frame.extend([1, 1, 8, 10]);
        stamps
            .iter()
            .for_each(|stamp| frame.extend(stamp.to_be_bytes()));
        frame.extend(vec![0; bytes.into()]);
        frame
    }

    const ACK: u8 = 16;

    pub fn class(number: u32) -> ClassFlow {
        ClassId::new(number).into()
    }

    /// Returns a finding for class 3 of the link to the right, and this flow in it.
    fn found(flow: u64, what: What) -> Finding {
        Finding {
            flow,
            class: 3,
            side: Side::Right,
            what,
        }
    }

    pub fn all(findings: &mut Findings) -> Vec<Finding> {
        std::iter::from_fn(|| findings.pop()).collect()
    }

    #[test]
    fn a_trip_is_from_a_segment_to_its_first_acknowledgment() {
        let [(mut left, mut at_left), (mut right, mut at_right)] = watches().unwrap();
        let ms = Nanos::from_millis;
        let (first, later) = (
            ClassFlow {
                flow: 77,
                ..class(3)
            },
            class(3),
        );
        right.see(&frame([A, B], 0, 1_000, [100, 1]), first, ms(5));
        // With the same timestamp: the first counts.
        right.see(&frame([A, B], 1_000, 1_000, [100, 1]), later, ms(6));
        assert_eq!(all(&mut at_right), []);
        left.see(&frame([B, A], 0, 0, [7, 100]), class(1), ms(25));
        left.see(&frame([B, A], 0, 0, [7, 100]), class(1), ms(26));
        // Of another connection.
        left.see(&frame([B, B], 0, 0, [7, 100]), class(1), ms(27));
        assert_eq!(all(&mut at_left), [found(77, What::Trip(20_000))]);
        // A pure acknowledgment is not acknowledged, even if its timestamp is echoed.
        right.see(&frame([A, B], 2_000, 1_000, [101, 7]), class(3), ms(30));
        assert_eq!(all(&mut at_right), []);
    }

    #[test]
    fn an_acknowledgment_counts_for_no_class_that_has_a_former_ones_number() {
        let [(mut left, mut at_left), (mut right, mut at_right)] = watches().unwrap();
        let ms = Nanos::from_millis;
        right.see(&frame([A, B], 0, 1_000, [100, 1]), class(3), ms(5));
        left.see(&frame([B, A], 0, 1_000, [7, 1]), class(1), ms(5));
        right.renumbered();
        right.see(&frame([A, B], 1_000, 1_000, [101, 7]), class(3), ms(15));
        // Those of the other direction have theirs.
        let trip = Finding {
            class: 1,
            side: Side::Left,
            ..found(0, What::Trip(10_000))
        };
        assert_eq!(all(&mut at_right), [trip]);
        left.see(&frame([B, A], 1_000, 0, [8, 100]), class(1), ms(25));
        assert_eq!(all(&mut at_left), []);
        left.see(&frame([B, A], 1_000, 0, [8, 101]), class(1), ms(25));
        assert_eq!(all(&mut at_left), [found(0, What::Trip(10_000))]);
    }

    #[test]
    fn what_comes_again_is_noticed() {
        let [_, (mut right, mut findings)] = watches().unwrap();
        let ms = Nanos::from_millis;
        for (sequence, at) in [(u32::MAX - 999, 1), (1_000, 2), (0, 3), (2_000, 4)] {
            right.see(&frame([A, B], sequence, 1_000, [at, 1]), class(3), ms(5));
        }
        assert_eq!(all(&mut findings), [found(0, What::Again)]);
        // Another connection of the same ends begins anywhere.
        for (sequence, at) in [(2_000_000_000, 6), (2_000_001_000, 7)] {
            right.see(&frame([A, B], sequence, 1_000, [at, 1]), class(3), ms(5));
        }
        right.see(&frame([A, B], 100, 1_000, [8, 1]), class(3), ms(5));
        right.see(&frame([A, B], 1_100, 1_000, [8, 1]), class(3), ms(5));
        assert_eq!(all(&mut findings), []);
        // Keeping a connection alive repeats a byte of length 0: no segment that takes any of the sequence.
        right.see(&frame([A, B], 2_999, 0, [9, 1]), class(3), ms(9));
        assert_eq!(all(&mut findings), []);
    }

    #[test]
    fn whoever_counts_late_misses_some_and_holds_nobody_up() {
        let [_, (mut right, mut findings)] = watches().unwrap();
        for number in 0..100_000 {
            let mut marked = frame([A, B], number, 1, [number, 1]);
            marked[15] = 3;
            right.see(&marked, class(3), Nanos::from_millis(1));
        }
        let all = all(&mut findings);
        assert!((1..100_000).contains(&all.len()), "{}", all.len());
        assert_eq!(all[0], found(0, What::Marked));
    }
}
