//! The papers' test environment: the cost of an enqueue/dequeue pair ([`pairs`]), as in the QFQ report. `fairlane bench`
//! is its command line.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "what a program measures with: --help has the words"
)]

pub mod blocks;
pub mod controller;
pub mod flowsets;
pub mod pairs;
