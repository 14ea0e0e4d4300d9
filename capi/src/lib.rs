//! Fair packet scheduling from C: the implementation of `include/fairlane.h`.
//!
//! The header is the documentation for C. The design:
//!
//! * **Handles are numbers** ([`fl_scheduler`], [`fl_client`]), looked up in tables without a lock (`table`). A number
//!   contains the generation of its place, so that a closed one is always detected. Entering is one atomic exchange,
//!   which also rejects a second caller: another thread, or a callback that calls back.
//! * **Arguments from C are checked as far as possible**: pointers for null and alignment, numbers for their range,
//!   sizes against the known ones (`pointers`). Integers replace Rust enumerations, since C may store any value there.
//! * **Packets of C are cells.** A callback may write into them while this crate reads them.
//! * **No panic reaches C.** Every call catches them (`entry`), and the value in use can only be closed afterwards
//!   ([`fl_status::FL_ERR_PANIC`]). That needs panics that unwind: the workspace's profile `release` aborts the process
//!   instead, its profile `capi` is for this crate.
//!
//! A burst costs one exchange and one indirect call, to a loop compiled for each algorithm (`queues`).
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(
    non_camel_case_types,
    reason = "names are C's: the header is made of them"
)]

#[cfg(target_os = "linux")]
mod client;
mod entry;
mod pointers;
mod queues;
mod scheduler;
mod status;
mod table;
mod types;

#[cfg(target_os = "linux")]
pub use client::{fl_client_close, fl_client_get, fl_client_open, fl_client_push};
pub use pointers::fl_discard;
pub use scheduler::{
    fl_class_find, fl_classify, fl_dequeue, fl_enqueue, fl_flow_add, fl_flow_change,
    fl_flow_remove, fl_link_open, fl_scheduler_close, fl_scheduler_open, fl_stats_get,
};
pub use status::{fl_status, fl_strerror};
pub use types::{
    FL_ETHERNET, FL_IP, fl_bytes, fl_client, fl_client_info, fl_flow, fl_flow_options,
    fl_link_options, fl_packet, fl_scheduler, fl_scheduler_options, fl_stats,
};
