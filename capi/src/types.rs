//! The types of the C interface: handles, packets, options.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use fairlane_core::Length;

use crate::pointers::fl_discard;
use crate::status::fl_status;

/// A scheduler: queues of packets, and their order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct fl_scheduler {
    /// Private to the library.
    pub id: u64,
}

/// A client that is attached to a daemon.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct fl_client {
    /// Private to the library.
    pub id: u64,
}

/// A flow or a class of one scheduler. 0 is none; for counters, 0 is the sum of all.
pub type fl_flow = u64;

/// A packet to enqueue, or a dequeued one.
// Each is a cell, since a callback may write to the array that is being read. Setting a cell reads it, so a member that
// C need not initialise is `MaybeUninit`.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct fl_packet {
    /// The caller's pointer, never dereferenced.
    pub data: Cell<*mut c_void>,
    /// The flow or class of the packet.
    pub flow: Cell<fl_flow>,
    /// Identifies the flow within a class of flows; otherwise ignored, and 0 after a dequeue.
    pub digest: Cell<u64>,
    /// Its length on the link, in bytes with all framing: 1 to 65535.
    pub length: Cell<u32>,
    /// Its result, an fl_status. Set by the library.
    pub status: Cell<MaybeUninit<i32>>,
}

/// Options of a scheduler of flows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_scheduler_options {
    /// sizeof(fl_scheduler_options)
    pub size: usize,
    /// Name of the algorithm, as on the command line: "qfq+", "drr", "wf2q+", ...; null: "qfq".
    pub algorithm: *const c_char,
    /// Flows in an aggregate, for algorithms that have these ("qfq+"); 0: 8.
    pub aggregate: u32,
    /// Limit of queued packets in all flows; 0: 2^20.
    pub packets: u32,
    /// Limit of queued bytes in all flows; 0: 2^30.
    pub bytes: u64,
    /// Default limit of queued packets in one flow; 0: no limit.
    pub flow_packets: u32,
    /// Default limit of queued bytes in one flow; 0: no limit.
    pub flow_bytes: u32,
    /// Called for discarded packets; may be null.
    pub discard: fl_discard,
    /// Argument of discard.
    pub argument: *mut c_void,
}

/// Options of a scheduler of the classes of a link, from the text of a site file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_link_options {
    /// sizeof(fl_link_options)
    pub size: usize,
    /// The text: TOML, UTF-8, ended by a zero.
    pub text: *const c_char,
    /// Name of the link; null: the first one.
    pub link: *const c_char,
    /// Called for discarded packets; may be null.
    pub discard: fl_discard,
    /// Argument of discard.
    pub argument: *mut c_void,
}

/// Options of a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_flow_options {
    /// sizeof(fl_flow_options)
    pub size: usize,
    /// Its share is its weight over the sum of all: 1 to 1000000.
    pub weight: u32,
    /// Its actual longest packet in bytes: shares are exact to within a few of these. Longer packets are rejected.
    pub max_length: u32,
    /// Limit of its queued packets; 0: the scheduler's default.
    pub packets: u32,
    /// Limit of its queued bytes; 0: the scheduler's default.
    pub bytes: u32,
}

/// Counters: accepted = sent + discarded + queued.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct fl_stats {
    /// sizeof(fl_stats)
    pub size: usize,
    /// Accepted.
    pub accepted_packets: u64,
    /// Accepted.
    pub accepted_bytes: u64,
    /// Dequeued.
    pub sent_packets: u64,
    /// Dequeued.
    pub sent_bytes: u64,
    /// Queued now.
    pub queued_packets: u64,
    /// Queued now.
    pub queued_bytes: u64,
    /// Rejected on arrival.
    pub dropped_packets: u64,
    /// Rejected on arrival.
    pub dropped_bytes: u64,
    /// Accepted and discarded later.
    pub discarded_packets: u64,
    /// Accepted and discarded later.
    pub discarded_bytes: u64,
}

/// The bytes of a packet, for a client.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_bytes {
    /// The first byte.
    pub data: *const c_void,
    /// Number of bytes.
    pub length: usize,
}

/// The properties of a client, and the daemon's counters for it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_client_info {
    /// sizeof(fl_client_info)
    pub size: usize,
    /// The weight of its flow.
    pub weight: u32,
    /// The longest packet that it may push, in bytes.
    pub max_length: u32,
    /// Capacity of its mailbox in packets.
    pub capacity: u64,
    /// Packets that the daemon has taken.
    pub taken: u64,
    /// Packets that the daemon has taken and dropped.
    pub dropped: u64,
    /// 1 once the daemon has ended, or has disconnected the client; otherwise 0.
    pub gone: u32,
    /// Private to the library.
    pub reserved: u32,
    /// Name of the class that the daemon assigned, ended by a zero, truncated if too long.
    pub class_name: [c_char; 64],
}

/// A frame begins with an Ethernet header.
pub const FL_ETHERNET: u32 = 0;

/// A frame begins with an IP header.
pub const FL_IP: u32 = 1;

/// Memory for a packet of C, which may never have been written.
pub(crate) type Room = Cell<MaybeUninit<fl_packet>>;

impl fl_packet {
    /// Returns a packet for a dequeue or a callback.
    #[inline]
    pub(crate) fn new(data: usize, flow: fl_flow, length: Length, status: fl_status) -> fl_packet {
        fl_packet {
            data: Cell::new(ptr::with_exposed_provenance_mut(data)),
            flow: Cell::new(flow),
            digest: Cell::new(0),
            length: Cell::new(length.get()),
            status: Cell::new(MaybeUninit::new(status as i32)),
        }
    }

    /// Sets its result.
    #[inline]
    pub(crate) fn became(&self, status: fl_status) {
        self.status.set(MaybeUninit::new(status as i32));
    }

    /// Returns the caller's pointer as the queues store it: a number, since it is never dereferenced here.
    #[inline]
    pub(crate) fn kept(&self) -> usize {
        self.data.get().expose_provenance()
    }
}
