//! The data plane of the daemon: all that a frame passes between two interfaces, and the changes that are applied to it
//! between two rounds.
//!
//! | a frame is | by |
//! | --- | --- |
//! | received | [`device`], or a receive worker ([`workers`]) whose notes come with it ([`note`]) |
//! | classified and metered | [`classifier`], with [`meter`], [`passing`] and [`early`] |
//! | enqueued and dequeued | the [`bridge`] in the rounds of the [forwarding thread](forward) |
//! | transmitted | the device, or a transmit worker ([`transmitting`]) |
//!
//! [`work`] is what the forwarding thread does between two rounds, and [`plan`] the links whose classes it changes. The
//! forwarding thread reads no file, prints nothing and waits for no lock. The data plane knows no control thread: a
//! daemon sends it [work](steps::Work) and hears of [events](event::Event).
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "the daemon and tests alone use this crate")]

pub mod bridge;
pub mod classifier;
pub mod counts;
pub mod device;
pub mod early;
pub mod error;
pub mod event;
pub mod forward;
pub mod frame;
mod here;
pub mod interfaces;
#[doc(hidden)]
pub mod measured;
pub mod meter;
pub mod names;
pub mod note;
mod opaque;
pub mod passing;
pub mod pipeline;
pub mod plan;
#[doc(hidden)]
pub mod rig;
pub mod rounds;
pub mod steps;
pub mod stop;
pub mod threads;
pub mod transmitting;
pub mod unshaped;
pub mod waits;
pub mod walk;
pub mod work;
mod worker;
pub mod workers;

pub use here::fits_here;
pub use pipeline::pipeline_terms;
pub use rounds::RoundWatch;
