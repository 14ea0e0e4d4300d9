//! Benchmarks of the laboratory: an arbiter's decisions a second compared with those of the lock that it replaces
//! ([`pspat`]), and the cost of each stage of the data path ([`path`]). `fairlane-instruments bench` is their command
//! line.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "the parts of a measurement: --help explains them"
)]

pub mod instructions;
pub mod path;
pub mod pspat;
