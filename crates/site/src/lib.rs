//! A site as a running daemon: the frames that pass between two interfaces, in the classes of its
//! configuration.
//!
//! A [`Daemon`] opens the configured interfaces, forwards until it is [stopped](Handle::stop), and delivers its state
//! as a [`Report`] at an interval: for each class its rate, share and delays, recent and over the whole run, its drops
//! by reason, and its guarantees. Another configuration [replaces](Handle::reload) it while frames pass. Other events
//! are [`Notice`]s, and events of `tracing`; the forwarding thread emits none.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use fairlane_site::{Daemon, Options, Source};
//!
//! # fn main() -> Result<(), fairlane_site::Error> {
//! let path = Path::new("site.toml");
//! let site = fairlane_site::read(path)?;
//! let daemon = Daemon::open(site, &Options::default(), |notice| eprintln!("{notice}"))?;
//! let handle = daemon.handle();
//! std::thread::spawn(move || {
//!     handle.reload(Source::File(path.to_owned()));
//!     handle.stop();
//! });
//! let outcome = daemon.run(|report| {
//!     for class in report.links.iter().flat_map(|link| &link.classes) {
//!         println!("{}: {} bit/s", class.terms.name, class.sent_bps);
//!     }
//! });
//! outcome.result
//! # }
//! ```
//!
//! The forwarding thread reads no file, prints nothing and waits for no lock: other threads build changed parts, which
//! are exchanged between two rounds (`order`).
#![forbid(unsafe_code)]

mod bridge;
mod bypass;
mod classifier;
mod control;
mod counts;
mod daemon;
mod device;
mod early;
mod error;
mod event;
mod failure;
mod flows;
mod forward;
mod frame;
mod hand_over;
mod handle;
mod here;
mod interfaces;
#[doc(hidden)]
pub mod measured;
mod meter;
mod names;
mod note;
mod notice;
mod offer;
mod opaque;
mod order;
mod passing;
mod pipeline;
mod plan;
mod reload;
mod report;
#[cfg(test)]
mod rig;
mod rounds;
mod standby;
mod steps;
mod stop;
mod threads;
mod transmitting;
mod unshaped;
mod waits;
mod walk;
mod work;
mod workers;

pub use bypass::{Bypass, bypasses};
pub use control::Outcome;
pub use daemon::{Daemon, Options};
pub use device::lasting::OnLoss;
pub use failure::Error;
pub use fairlane_io::interface::{addresses, gateways};
pub use flows::{FlowReport, TopFlows};
pub use hand_over::give::Beside;
pub use hand_over::take::Running;
pub use handle::{Attaching, Handle};
pub use here::fits_here;
pub use meter::Delays;
pub use notice::Notice;
pub use pipeline::pipeline_terms;
pub use reload::{Source, mtu_beside, read};
pub use report::{
    ConfigurationReport, ForwardingReport, Interface, InterfaceReport, LinkReport, OpenReport,
    PipelineReport, Report,
};
pub use rounds::RoundWatch;
pub use standby::Standby;
pub use steps::StepReport;
