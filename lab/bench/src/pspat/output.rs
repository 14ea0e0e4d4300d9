//! Where released packets end: each device takes numbers of clients and sends one packet of
//! that client for each.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use fairlane_io::{Backend, Frame, UdpBackend, Umem, XdpBackend, XdpFrame, XdpOptions};
use fairlane_netlab::Link;

use super::case::{Case, Transmit};

/// A packet of the client with this number. A separate type gives the algorithms compiled code of
/// their own, apart from that whose instructions other measurements count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of(pub u32);

/// An output for packets of any client.
pub(super) type Device = Box<dyn Backend<Tx = Of, Rx = ()> + Send>;

/// Most sockets that receive: clients beyond them share.
const MOST_SINKS: u32 = 64;

/// Of the cable that AF_XDP sends over, in bytes.
const MTU: u32 = 1_500;
/// Frames of AF_XDP, and the bytes of each.
const FRAMES: u32 = 8_192;
const FRAME_BYTES: u32 = 2_048;

/// Makes devices.
pub(super) enum Outputs {
    Noop,
    Udp {
        /// Bound and never read, so that receiving costs little.
        sinks: Vec<UdpSocket>,
        peers: Arc<[SocketAddr]>,
        packet: Arc<[u8]>,
    },
    /// One queue of one interface, for all.
    Xdp(Arc<Mutex<Interface>>),
}

impl Outputs {
    pub(super) fn new(case: &Case) -> Result<Outputs> {
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
                // The packet's length includes IPv4 and UDP headers.
                let payload = case.packet.get().saturating_sub(28) as usize;
                Ok(Outputs::Udp {
                    sinks,
                    peers,
                    packet: vec![0; payload].into(),
                })
            }
            Transmit::Xdp => Ok(Outputs::Xdp(Arc::new(Mutex::new(Interface::new(case)?)))),
        }
    }

    /// One more device.
    pub(super) fn device(&self) -> Result<Device> {
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
            Outputs::Xdp(interface) => Ok(Box::new(Queue(Arc::clone(interface)))),
        }
    }
}

/// Takes everything and does nothing.
struct Nothing;

impl Backend for Nothing {
    type Tx = Of;
    type Rx = ();

    fn transmit(&mut self, batch: &mut VecDeque<Of>) -> io::Result<usize> {
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
    type Tx = Of;
    type Rx = ();

    fn transmit(&mut self, batch: &mut VecDeque<Of>) -> io::Result<usize> {
        // Packets that the socket did not accept last time come first.
        self.batch.extend(batch.drain(..).map(|Of(client)| Copy {
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

/// An AF_XDP socket on one end of a cable between two network namespaces of its own.
pub(super) struct Interface {
    socket: XdpBackend,
    umem: Umem,
    packet: Vec<u8>,
    batch: VecDeque<XdpFrame>,
    /// The other end takes the frames, without a listener.
    _cable: (Link, Link),
}

impl Interface {
    fn new(case: &Case) -> Result<Interface> {
        let longest = MTU + 14;
        ensure!(
            case.packet.get() <= longest,
            "packets of {} do not fit the cable of --transmit xdp: at most {longest} bytes do",
            case.packet
        );
        let (near, far) = fairlane_netlab::cable(MTU)?;
        let umem = Umem::new(FRAMES, FRAME_BYTES).context("memory for AF_XDP")?;
        let socket = near
            .namespace()
            .run(|| XdpBackend::bind(&umem, near.name(), 0, &XdpOptions::default()))?;
        let mut packet = vec![0; case.packet.get() as usize];
        // An experimental protocol.
        packet[..6].copy_from_slice(&far.mac());
        packet[6..12].copy_from_slice(&near.mac());
        packet[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
        Ok(Interface {
            socket,
            umem,
            packet,
            batch: VecDeque::new(),
            _cable: (near, far),
        })
    }

    fn transmit(&mut self, batch: &mut VecDeque<Of>) -> io::Result<usize> {
        let before = self.batch.len();
        while !batch.is_empty()
            && let Some(frame) = self.umem.frame_from(&self.packet)
        {
            batch.pop_front();
            self.batch.push_back(frame);
        }
        let taken = self.batch.len() - before;
        self.socket.transmit(&mut self.batch)?;
        Ok(taken)
    }
}

/// A transmitting thread holds the queue's lock, as in a kernel.
struct Queue(Arc<Mutex<Interface>>);

impl Backend for Queue {
    type Tx = Of;
    type Rx = ();

    fn transmit(&mut self, batch: &mut VecDeque<Of>) -> io::Result<usize> {
        let mut interface = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        interface.transmit(batch)
    }

    fn receive(&mut self, _: &mut Vec<()>, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    fn in_flight(&self) -> io::Result<u64> {
        let interface = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        interface.socket.in_flight()
    }

    fn refused(&self) -> u64 {
        let interface = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        interface.socket.refused()
    }
}
