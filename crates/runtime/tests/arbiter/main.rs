//! Clients, the arbiter and its link, on a clock that the tests turn by hand; only
//! [`threads`] runs in real time.

mod backend;
mod client_list;
mod clients;
mod conservation;
mod leaving;
mod pace;
mod remote;
mod rig;
mod shares;
mod sleep;
mod steps;
mod threads;
mod time;
