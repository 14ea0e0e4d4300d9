//! Where released packets end: each device takes numbers of clients and sends one packet of
//! that client for each.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fairlane_io::{Backend, Frame, UdpBackend};

use super::case::{Case, Transmit};

/// A way out for packets of any client.
pub type Device = Box<dyn Backend<Tx = u32, Rx = ()> + Send>;

/// Most sockets that receive: clients beyond them share.
const MOST_SINKS: u32 = 64;

/// Makes devices.
pub enum Outputs {
    Noop,
    Udp {
        /// Bound and never read, so that receiving costs little.
        sinks: Vec<UdpSocket>,
        peers: Arc<[SocketAddr]>,
        packet: Arc<[u8]>,
    },
}

impl Outputs {
    pub fn new(case: &Case) -> Result<Outputs> {
        match case.transmit {
            Transmit::Noop => Ok(Outputs::Noop),
            Transmit::Udp => {
                let bind =
                    |_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("opening a socket");
                let sinks: Vec<_> = (0..case.active.min(MOST_SINKS))
                    .map(bind)
                    .collect::<Result<_>>()?;
                let peers = sinks
                    .iter()
                    .map(UdpSocket::local_addr)
                    .collect::<io::Result<_>>()?;
                // What IPv4 and UDP add is a part of the packet's length.
                let payload = case.packet.get().saturating_sub(28) as usize;
                Ok(Outputs::Udp {
                    sinks,
                    peers,
                    packet: vec![0; payload].into(),
                })
            }
            Transmit::Xdp => bail!("not yet"),
        }
    }

    /// One more device.
    pub fn device(&self) -> Result<Device> {
        match self {
            Outputs::Noop => Ok(Box::new(Nothing)),
            Outputs::Udp {
                sinks,
                peers,
                packet,
            } => {
                debug_assert_eq!(sinks.len(), peers.len());
                let any = (Ipv4Addr::LOCALHOST, 0).into();
                Ok(Box::new(Socket {
                    socket: UdpBackend::bind(any).context("opening a socket")?,
                    peers: Arc::clone(peers),
                    packet: Arc::clone(packet),
                    batch: VecDeque::new(),
                }))
            }
        }
    }
}

/// Takes everything and does nothing.
struct Nothing;

impl Backend for Nothing {
    type Tx = u32;
    type Rx = ();

    fn transmit(&mut self, batch: &mut VecDeque<u32>) -> io::Result<usize> {
        let packets = batch.len();
        for packet in batch.drain(..) {
            black_box(packet);
        }
        Ok(packets)
    }

    fn receive(&mut self, _: &mut Vec<()>, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    fn in_flight(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn refused(&self) -> u64 {
        0
    }
}

/// A datagram like all others.
struct Copy {
    peer: SocketAddr,
    bytes: Arc<[u8]>,
}

impl Frame for Copy {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

struct Socket {
    socket: UdpBackend<Copy>,
    peers: Arc<[SocketAddr]>,
    packet: Arc<[u8]>,
    batch: VecDeque<Copy>,
}

impl Backend for Socket {
    type Tx = u32;
    type Rx = ();

    fn transmit(&mut self, batch: &mut VecDeque<u32>) -> io::Result<usize> {
        // What the socket did not take last time stands first.
        self.batch.extend(batch.drain(..).map(|client| Copy {
            peer: self.peers[client as usize % self.peers.len()],
            bytes: Arc::clone(&self.packet),
        }));
        self.socket.transmit(&mut self.batch)
    }

    fn receive(&mut self, _: &mut Vec<()>, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.socket.in_flight()
    }

    fn refused(&self) -> u64 {
        self.socket.refused()
    }
}
