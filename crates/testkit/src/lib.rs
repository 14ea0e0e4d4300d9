#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod adversary;
mod broken;
mod conformance;
mod fairness;
#[doc(hidden)]
pub mod flows;
mod form;
#[doc(hidden)]
pub mod guarantee;
#[doc(hidden)]
pub mod meter;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod numbers;
#[doc(hidden)]
pub mod operations;
#[doc(hidden)]
pub mod scale;
mod statements;
#[doc(hidden)]
pub mod tape;

pub use adversary::{Adversary, Index, Nearest};
pub use broken::{Broken, Sentence};
pub use conformance::{Conformance, Scale, Shares, conforms};
pub use form::{check_is_due, long_tests};
