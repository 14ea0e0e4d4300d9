//! The relay of other programs' datagrams: a flow of weight 1 for each source address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use fairlane_core::{FlowConfig, Length, Weight};
use fairlane_io::{Backend, Datagram, UdpBackend, Waiter};
use fairlane_runtime::Clock;

use crate::Opener;
use crate::sender::Outlet;

/// Most source addresses relayed: each costs a socket.
pub const MOST_SOURCES: usize = 64;

/// The relaying thread's work.
pub(crate) struct Relay {
    pub socket: UdpBackend<Datagram>,
    pub opener: Opener,
    pub clock: Clock,
    /// The longest packet the link carries.
    pub longest: Length,
}

impl Relay {
    /// Relays until `stop`, and returns how many datagrams were ignored: those from
    /// more than [`MOST_SOURCES`] addresses, or more than there are sockets for, and
    /// those too long for the link. No sender can end the run.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<u64> {
        let mut waiter = Waiter::new();
        let mut received = Vec::with_capacity(64);
        let mut outlets: HashMap<SocketAddr, Outlet> = HashMap::new();
        let mut ignored = 0;
        while !stop.load(Ordering::Acquire) {
            let socket = [&self.socket];
            let wait = waiter.wait_readable(&socket, Duration::from_millis(20));
            if wait?.next().is_none() {
                continue;
            }
            self.socket.receive(&mut received, 64)?;
            for Datagram { peer, bytes } in received.drain(..) {
                if !outlets.contains_key(&peer)
                    && outlets.len() < MOST_SOURCES
                    && let Ok(outlet) = self.open(peer)
                {
                    outlets.insert(peer, outlet);
                }
                let pushed = outlets
                    .get_mut(&peer)
                    .map(|outlet| outlet.push(bytes, self.clock.now()));
                match pushed {
                    Some(Ok(())) => {}
                    None | Some(Err(_)) => ignored += 1,
                }
            }
        }
        Ok(ignored)
    }

    fn open(&self, peer: SocketAddr) -> Result<Outlet> {
        let config = FlowConfig::new(Weight::ONE, self.longest);
        self.opener.open(peer.to_string(), config)
    }
}
