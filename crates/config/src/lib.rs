//! One TOML file to a checked plan of a site.
//!
//! [`Site::parse`] reads a file into links, each with its class tree and its filters, or says
//! what is wrong with it: `file:line:column: sentence`, with the nearest known name.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod algorithms;
mod change;
pub mod class_report;
mod diagnostic;
mod discipline;
mod draft;
mod file;
mod grants;
mod guarantee;
pub mod link_report;
mod parse;
mod read;
mod schema;
mod shares;
mod site;
mod text;
mod units;
mod unmatched;
mod written;

pub use change::Steps;
pub use diagnostic::{Diagnostic, Report, SiteError, suggestion};
pub use discipline::{BuildError, Discipline};
pub use draft::{Draft, Table};
pub use grants::{Broken, Grant, NotGranted, Offer, Terms};
pub use guarantee::{Each, Guarantee, NoGuarantee};
pub use parse::parse;
pub use read::{INTERFACE_NAME, XDP_MOST_WAITING, is_interface_name};
pub use schema::schema;
pub use site::{
    Attach, Backend, Ceiling, Class, ClassKind, Control, Flows, Interfaces, Link, LinkAlgorithm,
    LongestBy, MtuOf, Near, Queue, Role, Site, Tables,
};
pub use text::{MAX_FILE, read as read_text};
pub use units::{ParseSizeError, ParseTimeError, Size, Time};
pub use unmatched::Unmatched;
pub use written::{At, Scalar, Text};
