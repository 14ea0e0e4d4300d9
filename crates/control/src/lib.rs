//! The control interface of a running site, over a Unix socket and over HTTP on loopback.
//!
//! A [`Service`] is a thread next to a [`Daemon`](fairlane_daemon::Daemon). It answers with the last state that the site
//! published. It makes a change by writing it into the configuration ([`Document`]), which is then checked and applied
//! as any file is: whole or not at all, between two rounds, at the cost of the changed classes. The effects on the
//! guarantees of all classes are computed beforehand ([`Effect`]).
//!
//! A [`Client`] sends requests to such a service. [`OPENAPI`] lists them.
//!
//! The forwarding thread takes no part in this.
#![forbid(unsafe_code)]

mod change;
mod classify;
mod client;
mod document;
mod draft;
mod edit;
mod explain;
mod flows;
mod grants;
mod history;
mod metrics;
mod operate;
mod page;
mod patient;
mod reading;
mod routes;
mod save;
mod service;
mod stream;
mod token;
pub mod view;

pub use change::{Changed, Effect, EndedGrant, Refused, change};
pub use classify::{PacketClass, classify};
pub use client::{Client, ClientError, Target, encoded};
pub use document::{Document, EditError, FilterText, Keys, value_of};
pub use explain::Explanation;
pub use hyper::Method;
pub use metrics::Format;
pub use save::{create, save};
pub use service::{Inherited, ServeError, Service, check_tokens};

/// The requests of the interface, as an OpenAPI 3.1 document.
pub const OPENAPI: &str = include_str!("../openapi.json");
