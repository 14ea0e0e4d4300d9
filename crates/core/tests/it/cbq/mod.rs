//! CBQ: rates, borrowing, bursts, limits, queue management, and counts that add up whatever
//! happens.

mod borrowing;
mod changes;
mod model;
mod queues;
mod rig;
mod times;
