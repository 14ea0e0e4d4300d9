//! What comes to the link of [`fairlane_sim`]: the packets of a capture or of a list of arrivals,
//! replayed ([`replay`]), and the sources of a [`scenario`] of a site.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "for the program, until the next step")]

pub mod arrivals;
pub mod capture;
pub mod csv;
pub mod departures;
pub mod engine;
pub mod flow_key;
pub mod flows;
pub mod in_order;
pub mod links;
pub mod scenario;
pub mod unclassed;
