//! The codes that calls return, and their sentences.

use std::ffi::{CStr, c_char};

use fairlane_core::tree::Reason;
use fairlane_core::{ChangeError, Rejection};

/// The result of a call, or of a packet.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fl_status {
    /// Success.
    FL_OK = 0,
    /// A pointer is null, or not aligned for its type.
    FL_ERR_POINTER = -1,
    /// The size that a struct begins with is too small, or a member that this library does not know is not 0.
    FL_ERR_SIZE = -2,
    /// There is no such scheduler or client: it was closed, or never opened.
    FL_ERR_HANDLE = -3,
    /// Another call is using it: one of another thread, or the one that runs the callback.
    FL_ERR_BUSY = -4,
    /// There is no such flow or class: it was removed, or never added.
    FL_ERR_FLOW = -5,
    /// A weight is out of range: 1 to 1000000.
    FL_ERR_WEIGHT = -6,
    /// A length is out of range: 1 to 65535 bytes; a number of packets is more than memory can hold.
    FL_ERR_LENGTH = -7,
    /// No scheduling algorithm has this name.
    FL_ERR_ALGORITHM = -8,
    /// A text is not UTF-8.
    FL_ERR_TEXT = -9,
    /// The text of a site is invalid, or has no link of this name.
    FL_ERR_SITE = -10,
    /// The scheduler is of the other kind: only one of flows adds and removes flows, only one of a link has classes.
    FL_ERR_KIND = -11,
    /// The largest number of schedulers, clients or flows exists.
    FL_ERR_MANY = -12,
    /// A packet is queued that is longer than the new maximum.
    FL_ERR_QUEUED = -13,
    /// The packet is longer than its flow or class declared.
    FL_ERR_TOO_LONG = -14,
    /// The queue of the flow or class is full.
    FL_ERR_QUEUE_FULL = -15,
    /// All queues together are full.
    FL_ERR_LINK_FULL = -16,
    /// Queue management dropped the packet to signal congestion.
    FL_ERR_CONGESTION = -17,
    /// The class has child classes, and no queue of its own.
    FL_ERR_NO_QUEUE = -18,
    /// The packet's flow was removed, or its scheduler closed.
    FL_ERR_FLUSHED = -19,
    /// The packet was evicted for another: the link was full, and its class exceeded its room most.
    FL_ERR_DISPLACED = -20,
    /// No daemon listens at the socket, or it does not answer.
    FL_ERR_UNREACHABLE = -21,
    /// The daemon rejected the client.
    FL_ERR_REFUSED = -22,
    /// The daemon's answer is invalid.
    FL_ERR_ANSWER = -23,
    /// The client's mailbox is full.
    FL_ERR_MAILBOX_FULL = -24,
    /// The daemon has ended, or has disconnected the client.
    FL_ERR_GONE = -25,
    /// The library had an internal error; the scheduler or client can only be closed.
    FL_ERR_PANIC = -26,
    /// A frame begins with neither FL_ETHERNET nor FL_IP.
    FL_ERR_LAYER = -27,
}

use fl_status::*;

impl fl_status {
    /// All codes, each at the index of its negative.
    pub(crate) const ALL: [fl_status; 28] = [
        FL_OK,
        FL_ERR_POINTER,
        FL_ERR_SIZE,
        FL_ERR_HANDLE,
        FL_ERR_BUSY,
        FL_ERR_FLOW,
        FL_ERR_WEIGHT,
        FL_ERR_LENGTH,
        FL_ERR_ALGORITHM,
        FL_ERR_TEXT,
        FL_ERR_SITE,
        FL_ERR_KIND,
        FL_ERR_MANY,
        FL_ERR_QUEUED,
        FL_ERR_TOO_LONG,
        FL_ERR_QUEUE_FULL,
        FL_ERR_LINK_FULL,
        FL_ERR_CONGESTION,
        FL_ERR_NO_QUEUE,
        FL_ERR_FLUSHED,
        FL_ERR_DISPLACED,
        FL_ERR_UNREACHABLE,
        FL_ERR_REFUSED,
        FL_ERR_ANSWER,
        FL_ERR_MAILBOX_FULL,
        FL_ERR_GONE,
        FL_ERR_PANIC,
        FL_ERR_LAYER,
    ];

    const fn sentence(self) -> &'static CStr {
        match self {
            FL_OK => c"done",
            FL_ERR_POINTER => c"a pointer is null or not aligned",
            FL_ERR_SIZE => c"the size that a struct begins with is not one that this library knows",
            FL_ERR_HANDLE => {
                c"there is no such scheduler or client: it was closed, or never opened"
            }
            FL_ERR_BUSY => {
                c"another call is using it, of another thread or the one that called back"
            }
            FL_ERR_FLOW => c"there is no such flow or class",
            FL_ERR_WEIGHT => c"a weight is 1 to 1000000",
            FL_ERR_LENGTH => c"a length is 1 to 65535 bytes, and an array no longer than memory",
            FL_ERR_ALGORITHM => c"no scheduling algorithm has this name",
            FL_ERR_TEXT => c"a text is not UTF-8",
            FL_ERR_SITE => c"the text of the site is not sound, or has no link of this name",
            FL_ERR_KIND => {
                c"flows come and go in a scheduler of flows, classes are those of a link"
            }
            FL_ERR_MANY => c"the limit of schedulers, clients or flows is reached",
            FL_ERR_QUEUED => c"a packet is queued that is longer than the new maximum",
            FL_ERR_TOO_LONG => c"the packet is longer than its flow or class declared",
            FL_ERR_QUEUE_FULL => c"the queue of the flow or class is full",
            FL_ERR_LINK_FULL => c"all queues together are full",
            FL_ERR_CONGESTION => c"queue management dropped the packet to signal congestion",
            FL_ERR_NO_QUEUE => c"the class has child classes and no queue",
            FL_ERR_FLUSHED => c"the packet's flow was removed, or its scheduler closed",
            FL_ERR_DISPLACED => c"the packet was evicted for another one, since the link was full",
            FL_ERR_UNREACHABLE => c"no daemon listens at the socket, or it does not answer",
            FL_ERR_REFUSED => c"the daemon refused the client",
            FL_ERR_ANSWER => c"the daemon's answer cannot be used",
            FL_ERR_MAILBOX_FULL => c"the mailbox is full",
            FL_ERR_GONE => c"the daemon is gone",
            FL_ERR_PANIC => c"internal error in the library; close the handle",
            FL_ERR_LAYER => c"a frame begins with FL_ETHERNET or FL_IP",
        }
    }
}

const _: () = {
    let mut place = 0;
    while place < fl_status::ALL.len() {
        assert!(fl_status::ALL[place] as i32 == -(place as i32));
        place += 1;
    }
};

impl From<Rejection> for fl_status {
    fn from(reason: Rejection) -> fl_status {
        match reason {
            Rejection::Unknown => FL_ERR_FLOW,
            Rejection::NoQueue => FL_ERR_NO_QUEUE,
            Rejection::TooLong { .. } => FL_ERR_TOO_LONG,
            Rejection::QueueFull => FL_ERR_QUEUE_FULL,
            Rejection::LinkFull => FL_ERR_LINK_FULL,
            Rejection::Congestion => FL_ERR_CONGESTION,
            // No other exists today; a new one needs its own code.
            _ => FL_ERR_LINK_FULL,
        }
    }
}

impl From<ChangeError> for fl_status {
    fn from(error: ChangeError) -> fl_status {
        match error {
            ChangeError::UnknownFlow => FL_ERR_FLOW,
            ChangeError::TooManyFlows => FL_ERR_MANY,
            ChangeError::LongerPacketQueued { .. } => FL_ERR_QUEUED,
            _ => FL_ERR_QUEUED,
        }
    }
}

impl From<Reason> for fl_status {
    fn from(reason: Reason) -> fl_status {
        match reason {
            Reason::Congestion => FL_ERR_CONGESTION,
            Reason::Flushed => FL_ERR_FLUSHED,
            Reason::Displaced => FL_ERR_DISPLACED,
            _ => FL_ERR_FLUSHED,
        }
    }
}

/// Returns the sentence of a code, in English, which is never freed. An unknown number has a sentence too.
#[unsafe(no_mangle)]
pub extern "C" fn fl_strerror(code: i32) -> *const c_char {
    let place = usize::try_from(code.unsigned_abs()).ok();
    let known = place
        .filter(|_| code <= 0)
        .and_then(|place| fl_status::ALL.get(place));
    known
        .map_or(c"there is no such code", |code| code.sentence())
        .as_ptr()
}
