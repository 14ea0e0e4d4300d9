//! Clients, the arbiter and its link, most of it on a clock that the tests turn by hand;
//! [`threads`], [`sleep`], [`time`] and parts of others run in real time.

mod backend;
mod clearing;
mod client_list;
mod client_list_model;
mod clients;
mod conservation;
mod dispatchers;
#[path = "../support/executor.rs"]
mod executor;
mod holding_back;
mod leaving;
mod pace;
mod queues;
mod remote;
mod rig;
mod shares;
mod sleep;
mod steps;
mod tasks;
mod threads;
mod time;
