//! The headers from outside, in one binary: what tests share is compiled once.

mod ecn;
mod encapsulated;
mod parse;
mod tcp;
