//! The registered clients, and which of them to look at.

use std::sync::Arc;

use fairlane_core::FlowId;
use fairlane_mailbox::Consumer;

use crate::client::{ClientId, Counters, Request};

/// A client as the arbiter sees it.
#[derive(Debug)]
pub(crate) struct Registered<P> {
    pub(crate) id: ClientId,
    pub(crate) flow: FlowId,
    pub(crate) mailbox: Consumer<Request<P>>,
    pub(crate) counters: Arc<Counters>,
    /// The client is gone and its mailbox empty: only its flow is left.
    pub(crate) leaving: bool,
}

/// All clients of an arbiter. Which of them a scan visits is decided here alone:
/// now every one of them, O(registered).
#[derive(Debug)]
pub(crate) struct Clients<P> {
    registered: Vec<Registered<P>>,
}

impl<P> Clients<P> {
    pub(crate) fn new() -> Self {
        Clients {
            registered: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.registered.len()
    }

    pub(crate) fn insert(&mut self, client: Registered<P>) {
        self.registered.push(client);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Registered<P>> {
        self.registered.iter()
    }

    /// Visits each client that may have something to say, in an order that favours
    /// none over time; those for which `visit` returns `false` are forgotten.
    pub(crate) fn scan(&mut self, mut visit: impl FnMut(&mut Registered<P>) -> bool) {
        self.registered.retain_mut(|client| visit(client));
    }
}
