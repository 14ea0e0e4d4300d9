//! The headers from outside, in one binary: what tests share is compiled once.

mod ecn;
mod parse;
mod tcp;
