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
    /// Its flow is removed too.
    pub(crate) gone: bool,
}

/// What a visit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// Nothing new.
    Silent,
    /// Packets.
    Heard,
    /// Neither a client nor packets of it: it is to be forgotten.
    Gone,
}

/// All clients of an arbiter. Which of them a scan visits is decided here alone:
/// now every one of them, O(registered).
#[derive(Debug)]
pub(crate) struct Clients<P> {
    registered: Vec<Registered<P>>,
    /// Where the next scan begins.
    first: usize,
}

impl<P> Clients<P> {
    pub(crate) fn new() -> Self {
        Clients {
            registered: Vec::new(),
            first: 0,
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

    /// Visits each client that may have something to say.
    ///
    /// Where there is room for a few packets only, who comes first gets it. So a
    /// scan begins behind the client that was the first to be heard in the one
    /// before: those that want the room take turns.
    pub(crate) fn scan(&mut self, mut visit: impl FnMut(&mut Registered<P>) -> Visit) {
        let (before, behind) = self.registered.split_at_mut(self.first);
        let (mut heard, mut gone) = (false, false);
        let numbered = (self.first..).zip(behind).chain((0..).zip(before));
        for (index, client) in numbered {
            match visit(client) {
                Visit::Silent => {}
                Visit::Heard if heard => {}
                Visit::Heard => {
                    heard = true;
                    self.first = index + 1;
                }
                Visit::Gone => {
                    gone = true;
                    client.gone = true;
                }
            }
        }
        if gone {
            let forgotten = |client: &&Registered<P>| client.gone;
            let before = self.registered[..self.first].iter().filter(forgotten);
            self.first -= before.count();
            self.registered.retain(|client| !client.gone);
        }
    }
}
