//! The simulator from outside, in one binary: what tests share is compiled once.

mod bounds;
mod cbq;
mod classes;
mod fluid;
mod golden;
mod gps;
mod link;
mod meters;
mod network;
mod sharing;
mod sources;
mod support;
mod tcp;
mod textbooks;
mod wfi;
