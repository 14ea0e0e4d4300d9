//! The papers' test environments: what an enqueue/dequeue pair costs ([`pairs`], as in the QFQ
//! report), what an arbiter decides in a second beside the lock that it replaces ([`pspat`]), and what each stage
//! of the data path takes ([`path`]).
//! `fairlane bench` asks and prints.
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
