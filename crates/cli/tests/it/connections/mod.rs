//! TCP connections through the daemon. These tests take longest, and tests start in the order of their names, so none
//! of these should be the last.

mod classes;
mod offloads;
mod queue_management;
mod seen;
