//! What comes to the simulated link of [`fairlane_sim`] from files, and what became of it: the
//! packets of a capture or of a list of arrivals ([`replay`]), or the sources of a [`scenario`].
//!
//! Apart from the simulator, since that needs neither files of a site nor captures: who simulates a
//! queue of his own has nothing of this to compile.
#![forbid(unsafe_code)]

mod digest_map;
mod ledger;
mod links;
pub mod replay;
pub mod scenario;

pub use links::{choose_link, other_side};
