//! The receiving end: a socket for each flow, so that the port identifies the flow.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use fairlane_io::{Backend, Datagram, UdpBackend, Waiter};

use crate::flow::Flow;

/// Requested receive buffer, in bytes; the system may grant less.
const BUFFER: usize = 4 << 20;

/// A socket that no flow has yet.
pub(crate) struct Socket(UdpBackend<Datagram>);

impl Socket {
    /// Opens a socket on the loopback interface.
    pub(crate) fn open() -> Result<Socket> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = UdpBackend::bind(any_port).context("opening a socket to receive on")?;
        socket.set_receive_buffer(BUFFER)?;
        Ok(Socket(socket))
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }
}

struct Receiving {
    socket: UdpBackend<Datagram>,
    flow: Arc<Flow>,
}

impl AsFd for Receiving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where new flows' sockets are handed to the receiving thread.
#[derive(Clone)]
pub(crate) struct Sinks(Sender<Receiving>);

impl Sinks {
    pub(crate) fn add(&self, socket: Socket, flow: Arc<Flow>) {
        let socket = socket.0;
        // The receiver goes away only when the run ends.
        let _ = self.0.send(Receiving { socket, flow });
    }
}

/// The receiving thread's work.
pub(crate) struct Sink {
    arrivals: Receiver<Receiving>,
    flows: Vec<Receiving>,
}

impl Sink {
    pub(crate) fn new() -> (Sinks, Sink) {
        let (sender, arrivals) = channel();
        let flows = Vec::new();
        (Sinks(sender), Sink { arrivals, flows })
    }

    /// Counts arrivals until `stop`, and then those still in the sockets.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<()> {
        let mut waiter = Waiter::new();
        let mut received = Vec::with_capacity(256);
        loop {
            let stopping = stop.load(Ordering::Acquire);
            self.flows.extend(self.arrivals.try_iter());
            let timeout = if stopping {
                Duration::ZERO
            } else {
                Duration::from_millis(20)
            };
            let mut any = false;
            for index in waiter.wait_readable(&self.flows, timeout)? {
                let Receiving { socket, flow } = &mut self.flows[index];
                socket.receive(&mut received, 256)?;
                for datagram in received.drain(..) {
                    flow.received.add(datagram.bytes.len());
                    any = true;
                }
            }
            if stopping && !any {
                return Ok(());
            }
        }
    }
}
