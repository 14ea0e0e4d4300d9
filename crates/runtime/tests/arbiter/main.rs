//! Clients, the arbiter and its link, on a clock that the tests turn by hand; only
//! [`threads`] runs in real time.

mod backend;
mod clients;
mod conservation;
mod leaving;
mod pace;
mod rig;
mod shares;
mod steps;
mod threads;
