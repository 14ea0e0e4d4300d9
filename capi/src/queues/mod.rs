//! The queues of a scheduler: flows or classes, each with its own loops over a burst.

mod classes;
mod flat;

use std::mem::MaybeUninit;

use fairlane_core::{Count, FlowConfig, Nanos};
use fairlane_wire::Layer;

pub(crate) use classes::Classes;
pub(crate) use flat::flat;

use crate::pointers::Discard;
use crate::status::fl_status::{self, FL_ERR_KIND, FL_OK};
use crate::types::{Room, fl_flow, fl_packet, fl_stats};

/// The result of enqueuing a burst.
pub(crate) struct Offered {
    pub(crate) accepted: usize,
    /// The reason why the first packet was rejected, if any.
    pub(crate) rejected: Result<(), fl_status>,
}

/// The result of dequeuing a burst.
pub(crate) struct Taken {
    pub(crate) packets: usize,
    /// The time of the next call, in nanoseconds: 0 if there may be more at once, `u64::MAX` if no packet is queued.
    pub(crate) again: u64,
}

/// Packets of C by flow or by class. Calls of the other kind are rejected.
pub(crate) trait Queues: Send {
    fn add_flow(&mut self, _: FlowConfig) -> Result<fl_flow, fl_status> {
        Err(FL_ERR_KIND)
    }

    fn change_flow(&mut self, _: fl_flow, _: FlowConfig) -> Result<(), fl_status> {
        Err(FL_ERR_KIND)
    }

    fn remove_flow(&mut self, _: fl_flow, _: &Discard) -> Result<(), fl_status> {
        Err(FL_ERR_KIND)
    }

    fn class(&self, _: &str) -> Result<fl_flow, fl_status> {
        Err(FL_ERR_KIND)
    }

    /// Returns the class and the digest of a frame.
    fn classify(&mut self, _: &[u8], _: Layer) -> Result<(fl_flow, u64), fl_status> {
        Err(FL_ERR_KIND)
    }

    /// Accepts as many packets as there is room for, and sets the result of each.
    fn enqueue(&mut self, packets: &[fl_packet], now: Nanos, discard: &Discard) -> Offered;

    /// Returns the next packets.
    fn dequeue(&mut self, rooms: &[Room], now: Nanos, discard: &Discard) -> Taken;

    /// Returns the counters of a flow or a class, or of all.
    fn stats(&self, flow: fl_flow) -> Result<fl_stats, fl_status>;

    /// Discards all queued packets.
    fn flush(&mut self, discard: &Discard);
}

#[inline]
fn offer(packets: &[fl_packet], mut accept: impl FnMut(&fl_packet) -> fl_status) -> Offered {
    let mut offered = Offered {
        accepted: 0,
        rejected: Ok(()),
    };
    for packet in packets {
        let status = accept(packet);
        packet.became(status);
        match status {
            FL_OK => offered.accepted += 1,
            why if offered.rejected.is_ok() => offered.rejected = Err(why),
            _ => {}
        }
    }
    offered
}

/// Fills `rooms` from `next`, which returns the time of the next call if it has no packet.
#[inline]
fn fill(rooms: &[Room], mut next: impl FnMut() -> Result<fl_packet, u64>) -> Taken {
    for (packets, room) in rooms.iter().enumerate() {
        match next() {
            Ok(packet) => room.set(MaybeUninit::new(packet)),
            Err(again) => return Taken { packets, again },
        }
    }
    Taken {
        packets: rooms.len(),
        again: 0,
    }
}

/// Returns the counters for C, from those of either kind.
fn counts([accepted, sent, queued, dropped, discarded]: [Count; 5]) -> fl_stats {
    fl_stats {
        size: size_of::<fl_stats>(),
        accepted_packets: accepted.packets,
        accepted_bytes: accepted.bytes,
        sent_packets: sent.packets,
        sent_bytes: sent.bytes,
        queued_packets: queued.packets,
        queued_bytes: queued.bytes,
        dropped_packets: dropped.packets,
        dropped_bytes: dropped.bytes,
        discarded_packets: discarded.packets,
        discarded_bytes: discarded.bytes,
    }
}
