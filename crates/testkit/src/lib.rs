#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod adversary;
mod broken;
mod conformance;
mod fairness;
pub mod flows;
mod form;
pub mod meter;
pub mod model;
pub mod numbers;
pub mod operations;
pub mod scale;
mod statements;
pub mod tape;

pub use adversary::{Adversary, Index, Nearest};
pub use broken::{Broken, Sentence};
pub use conformance::{Conformance, Scale, Shares, conforms};
pub use form::{check_is_due, long_tests};
