//! Tests of reading files, in one binary.

mod changes;
mod examples;
mod grants;
mod guarantees;
mod link_control;
mod refusals;
mod reloads;
mod schema;
mod warnings;
mod workers;
