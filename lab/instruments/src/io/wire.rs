//! The packets of each backend, and their construction.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use fairlane_io::{
    Backend, Datagram, PacketBackend, TunBackend, UdpBackend, Umem, XdpBackend, XdpFrame,
};

/// Flows that packets are of: the last byte of each says which.
pub(super) const FLOWS: u8 = 8;
/// Most packets received or offered at once, with all backends and with the scheduler too.
pub(super) const BATCH: usize = 64;
/// Bytes of the headers of IPv4 and UDP.
pub(super) const HEADERS: usize = 28;

/// A kind of backend with its packets.
pub(crate) trait Wire: Send + Sync {
    type Packet: Send;
    type Backend: Backend<Tx = Self::Packet, Rx = Self::Packet> + Send;

    /// One more packet of this flow to send; `None` while there is no room for it.
    fn make(&mut self, flow: u8) -> Option<Self::Packet>;

    fn bytes(packet: &Self::Packet) -> &[u8];

    /// How the backend exchanges packets with the device, where there are several ways.
    fn mode(backend: &Self::Backend) -> Option<String> {
        let _ = backend;
        None
    }

    /// Makes of a received packet one to send.
    fn pass_on(&self, packet: &mut Self::Packet) {
        let _ = packet;
    }
}

/// Ethernet frames or IP packets in memory of their own.
pub(super) struct Bytes<B> {
    packet: Vec<u8>,
    backend: std::marker::PhantomData<fn() -> B>,
}

impl<B> Bytes<B> {
    pub(super) fn new(packet: Vec<u8>) -> Bytes<B> {
        Bytes {
            packet,
            backend: std::marker::PhantomData,
        }
    }
}

pub(super) type Packets = Bytes<PacketBackend>;
pub(super) type Tunnel = Bytes<TunBackend>;

impl<B: Backend<Tx = Vec<u8>, Rx = Vec<u8>> + Send> Wire for Bytes<B> {
    type Packet = Vec<u8>;
    type Backend = B;

    fn make(&mut self, flow: u8) -> Option<Vec<u8>> {
        mark(&mut self.packet, flow);
        Some(self.packet.clone())
    }

    fn bytes(packet: &Vec<u8>) -> &[u8] {
        packet
    }
}

/// Ethernet frames in memory shared with the kernel.
pub(super) struct Xdp {
    pub umem: Umem,
    pub packet: Vec<u8>,
}

impl Wire for Xdp {
    type Packet = XdpFrame;
    type Backend = XdpBackend;

    fn make(&mut self, flow: u8) -> Option<XdpFrame> {
        mark(&mut self.packet, flow);
        self.umem.frame_from(&self.packet)
    }

    fn bytes(packet: &XdpFrame) -> &[u8] {
        packet.bytes()
    }

    fn mode(backend: &XdpBackend) -> Option<String> {
        Some(backend.mode().to_string())
    }
}

/// Datagrams, all to the same peer.
pub(super) struct Udp {
    pub peer: SocketAddr,
    pub payload: Vec<u8>,
}

impl Wire for Udp {
    type Packet = Datagram;
    type Backend = UdpBackend<Datagram>;

    fn make(&mut self, flow: u8) -> Option<Datagram> {
        mark(&mut self.payload, flow);
        Some(Datagram {
            peer: self.peer,
            bytes: self.payload.clone(),
        })
    }

    fn bytes(packet: &Datagram) -> &[u8] {
        &packet.bytes
    }

    fn pass_on(&self, packet: &mut Datagram) {
        packet.peer = self.peer;
    }
}

fn mark(packet: &mut [u8], flow: u8) {
    if let Some(last) = packet.last_mut() {
        *last = flow;
    }
}

/// Sends packets of all flows in turns.
pub(crate) struct Sender<W: Wire> {
    pub wire: W,
    batch: VecDeque<W::Packet>,
    next: u8,
}

impl<W: Wire> Sender<W> {
    pub(crate) fn new(wire: W) -> Sender<W> {
        Sender {
            wire,
            batch: VecDeque::with_capacity(BATCH),
            next: 0,
        }
    }

    /// Offers a batch to the backend and returns how many packets it took.
    pub(crate) fn send(&mut self, backend: &mut W::Backend) -> io::Result<usize> {
        while self.batch.len() < BATCH
            && let Some(packet) = self.wire.make(self.next)
        {
            self.batch.push_back(packet);
            self.next = (self.next + 1) % FLOWS;
        }
        backend.transmit(&mut self.batch)
    }
}

/// A source of packets for a thread of its own.
pub(super) trait Generate: Send {
    fn generate(&mut self) -> io::Result<usize>;
}

/// A sender with the backend it sends through.
pub(super) struct Generator<W: Wire> {
    pub sender: Sender<W>,
    pub backend: W::Backend,
}

impl<W: Wire> Generate for Generator<W> {
    fn generate(&mut self) -> io::Result<usize> {
        self.sender.send(&mut self.backend)
    }
}
