//! The classifier from outside, in one binary: what tests share is compiled once.

mod classifier;
mod digest;
mod fields;
mod fragments;
mod link;
#[path = "../../benches/classify/lists.rs"]
mod lists;
mod support;
mod unreachable;
