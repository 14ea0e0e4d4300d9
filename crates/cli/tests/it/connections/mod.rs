//! TCP connections through the daemon. They take longest of all tests here, which begin in the order of their
//! names: none of these is to be the last.

mod classes;
mod offloads;
mod queue_management;
mod seen;
