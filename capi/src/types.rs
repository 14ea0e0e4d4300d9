//! What C sees: handles, packets, options.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use fairlane_core::Length;

use crate::pointers::fl_discard;
use crate::status::fl_status;

/// A scheduler: queues of packets, and who is next among them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct fl_scheduler {
    /// The library's.
    pub id: u64,
}

/// A client that is attached to a daemon.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct fl_client {
    /// The library's.
    pub id: u64,
}

/// A flow or a class of one scheduler. 0 is none; where counts are asked for, 0 is all together.
pub type fl_flow = u64;

/// A packet as it goes in and comes out.
// Each is a cell, as a callback may write to the array that is looked at; to set one reads it, so that what C need
// not have set is none that can be read.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct fl_packet {
    /// The caller's, and never looked into.
    pub data: Cell<*mut c_void>,
    /// Where it goes, or where it waited.
    pub flow: Cell<fl_flow>,
    /// What tells flows apart within a class of flows; elsewhere not looked at, and 0 when it comes out.
    pub digest: Cell<u64>,
    /// What it takes on the link, in bytes with all framing: 1 to 65535.
    pub length: Cell<u32>,
    /// What became of it: an fl_status. Set by the library.
    pub status: Cell<MaybeUninit<i32>>,
}

/// A scheduler of flows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_scheduler_options {
    /// sizeof(fl_scheduler_options)
    pub size: usize,
    /// Name of the algorithm, as the command line has it: "qfq+", "drr", "wf2q+", ...; null: "qfq".
    pub algorithm: *const c_char,
    /// Flows in an aggregate, for algorithms that have these ("qfq+"); 0: 8.
    pub aggregate: u32,
    /// Packets that wait in all flows; 0: 2^20.
    pub packets: u32,
    /// Bytes that wait in all flows; 0: 2^30.
    pub bytes: u64,
    /// Packets that wait in one flow, unless it says otherwise; 0: no limit.
    pub flow_packets: u32,
    /// Bytes that wait in one flow, unless it says otherwise; 0: no limit.
    pub flow_bytes: u32,
    /// Told of packets that are discarded; may be null.
    pub discard: fl_discard,
    /// Handed to discard.
    pub argument: *mut c_void,
}

/// A scheduler of the classes of a link, from the text of a site's file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_link_options {
    /// sizeof(fl_link_options)
    pub size: usize,
    /// The text: TOML, UTF-8, ended by a zero.
    pub text: *const c_char,
    /// Name of the link; null: the first one.
    pub link: *const c_char,
    /// Told of packets that are discarded; may be null.
    pub discard: fl_discard,
    /// Handed to discard.
    pub argument: *mut c_void,
}

/// A flow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_flow_options {
    /// sizeof(fl_flow_options)
    pub size: usize,
    /// Its share is its weight over the sum of all: 1 to 1000000.
    pub weight: u32,
    /// Its longest packet in bytes, as it is: shares are exact to within a few of these. Longer ones are rejected.
    pub max_length: u32,
    /// Packets that wait in it; 0: as the scheduler says.
    pub packets: u32,
    /// Bytes that wait in it; 0: as the scheduler says.
    pub bytes: u32,
}

/// What became of packets: accepted = sent + discarded + queued.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct fl_stats {
    /// sizeof(fl_stats)
    pub size: usize,
    /// Accepted.
    pub accepted_packets: u64,
    /// Accepted.
    pub accepted_bytes: u64,
    /// Came out.
    pub sent_packets: u64,
    /// Came out.
    pub sent_bytes: u64,
    /// Wait now.
    pub queued_packets: u64,
    /// Wait now.
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

/// A packet's bytes, for a client.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_bytes {
    /// Where they begin.
    pub data: *const c_void,
    /// How many they are.
    pub length: usize,
}

/// What a client is and was told.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_client_info {
    /// sizeof(fl_client_info)
    pub size: usize,
    /// The weight of its flow.
    pub weight: u32,
    /// The longest packet that it may push, in bytes.
    pub max_length: u32,
    /// Packets that can wait in its mailbox.
    pub capacity: u64,
    /// Packets that the daemon has taken.
    pub taken: u64,
    /// Packets that the daemon has taken and dropped.
    pub dropped: u64,
    /// 1 once the daemon is gone, or has cut the client off; else 0.
    pub gone: u32,
    /// The library's.
    pub reserved: u32,
    /// Name of the class that the daemon put it into, ended by a zero; what is too long is cut off.
    pub class_name: [c_char; 64],
}

/// A frame begins with an Ethernet header.
pub const FL_ETHERNET: u32 = 0;

/// A frame begins with an IP header.
pub const FL_IP: u32 = 1;

/// Room for a packet of C's, which may never have been written.
pub(crate) type Room = Cell<MaybeUninit<fl_packet>>;

impl fl_packet {
    /// One that comes out, or is told of.
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

    /// Says what became of it.
    #[inline]
    pub(crate) fn became(&self, status: fl_status) {
        self.status.set(MaybeUninit::new(status as i32));
    }

    /// The caller's pointer as queues keep it: a number, as nobody here follows it.
    #[inline]
    pub(crate) fn kept(&self) -> usize {
        self.data.get().expose_provenance()
    }
}
