//! The simulator from outside, in one binary: what tests share is compiled once.

mod bounds;
mod cbq;
mod classes;
mod fluid;
mod gps;
mod link;
mod meters;
mod sharing;
mod sources;
mod support;
mod tcp;
mod wfi;
