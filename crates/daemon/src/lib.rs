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
//! use fairlane_daemon::{Daemon, Options, Source};
//!
//! # fn main() -> Result<(), fairlane_daemon::Error> {
//! let path = Path::new("site.toml");
//! let site = fairlane_daemon::read(path)?;
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
//! Frames pass the [data plane](fairlane_dataplane). This crate has the control thread, reload, reports, handover and
//! fail-open.
#![forbid(unsafe_code)]

mod bypass;
mod control;
mod daemon;
mod error;
mod flows;
mod hand_over;
mod handle;
mod notice;
mod offer;
mod order;
mod reload;
mod report;
mod standby;

pub use bypass::{Bypass, bypasses};
pub use control::Outcome;
pub use daemon::{Daemon, Options};
pub use error::Error;
pub use fairlane_dataplane::device::lasting::OnLoss;
pub use fairlane_dataplane::meter::Delays;
pub use fairlane_dataplane::steps::StepReport;
pub use fairlane_dataplane::{RoundWatch, fits_here, pipeline_terms};
pub use fairlane_io::interface::{addresses, gateways};
pub use flows::{FlowReport, TopFlows};
pub use hand_over::give::HandoverExtra;
pub use hand_over::take::Running;
pub use handle::{Attaching, Handle};
pub use notice::Notice;
pub use reload::{Source, mtu_beside, read};
pub use report::{
    ConfigurationReport, ForwardingReport, Interface, InterfaceReport, LinkReport, OpenReport,
    PipelineReport, Report,
};
pub use standby::Standby;
