//! The papers' test environments: the cost of an enqueue/dequeue pair ([`pairs`], as in the QFQ report), an
//! arbiter's decisions a second compared with those of the lock that it replaces ([`pspat`]), and the cost of
//! each stage of the data path ([`path`]). `fairlane bench` is their command line.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "what a program measures with: --help has the words"
)]

pub mod blocks;
pub mod controller;
pub mod flowsets;
pub mod instructions;
pub mod pairs;
pub mod path;
pub mod pspat;
