//! The core's tests of its public API, in one binary: shared code is compiled once.

#[macro_use]
mod support;

mod allowance;
mod aqm_codel;
mod aqm_red;
mod bounds;
mod bursts;
mod cbq;
mod certified;
mod changes;
mod costs;
mod discipline;
mod eligible;
mod equations;
mod failures;
mod failures_of_aggregates;
mod failures_of_shares;
mod gfq;
mod idle_flows;
mod late_release;
mod listings;
mod no_std;
mod nodes;
mod operations;
mod priority;
mod published;
mod returning_flows;
mod scales;
mod scfq;
mod shares;
mod tree_ceilings;
mod tree_failures;
mod tree_flows;
mod tree_moves;
mod tree_operations;
mod tree_room;
mod tree_shares;
mod tree_steps;
mod tree_tally;
mod views;
mod wf2q_service;
mod wheels;
