//! A running site asked and changed: over a Unix socket, and over HTTP on loopback.
//!
//! A [`Service`] is a thread of its own beside a [`Daemon`](fairlane_site::Daemon). It answers with
//! the last state that the site told, and makes changes by writing them into the configuration
//! ([`Document`]), which is then checked and taken over as any file is: whole or not at all, between
//! two rounds, at the cost of what it touches. What it does to what every class is promised is
//! computed beforehand ([`Effect`]).
//!
//! A [`Client`] asks such a service. What can be asked is in [`OPENAPI`].
//!
//! The thread that forwards knows nothing of all this.
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

pub use change::{Changed, Effect, Ended, Refused, change};
pub use classify::{PacketClass, classify};
pub use client::{Client, ClientError, Target, encoded};
pub use document::{Document, EditError, FilterText, Keys, value_of};
pub use explain::Explanation;
pub use hyper::Method;
pub use metrics::Format;
pub use save::{create, save};
pub use service::{Inherited, ServeError, Service, check_tokens};

/// What can be asked, as an OpenAPI 3.1 document.
pub const OPENAPI: &str = include_str!("../openapi.json");
