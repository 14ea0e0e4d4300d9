//! The surroundings that a backend is measured in: cables, tunnels, sockets of its own; or
//! an interface that there is.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Error, Result, anyhow};
use clap::ValueEnum;
use etherparse::{IpNumber, Ipv4Header, UdpHeader};
use fairlane_core::Length;
use fairlane_io::tun::Layer;
use fairlane_io::{
    Datagram, PacketBackend, TunBackend, UdpBackend, Umem, XdpBackend, XdpOptions, packet,
};
use fairlane_netlab::{LabError, Link, Namespace, cable};

use super::subject::{Bench, Inlet, Subject};
use super::wire::{Generator, HEADERS, Packets, Sender, Tunnel, Udp, Wire, Xdp};

/// A kind of backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum BackendKind {
    /// AF_PACKET: Ethernet frames through packet sockets
    Packet,
    /// AF_XDP: Ethernet frames in memory shared with the kernel
    Xdp,
    /// TUN: IP packets of an interface whose other end is the program
    Tun,
    /// UDP over loopback; needs no privilege
    Udp,
}

impl BackendKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            BackendKind::Packet => "packet",
            BackendKind::Xdp => "xdp",
            BackendKind::Tun => "tun",
            BackendKind::Udp => "udp",
        }
    }

    /// Returns whether an interface can be given for it.
    pub(super) fn takes_interface(self) -> bool {
        matches!(self, BackendKind::Packet | BackendKind::Xdp)
    }
}

/// A queue of an interface that there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interface<'a> {
    pub name: &'a str,
    pub queue: u32,
}

/// This machine, or this user, cannot have it.
#[derive(Debug)]
pub(super) struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// The MTU of cables and tunnels, and so the longest packet.
pub(super) const MTU: u32 = 1_500;
/// That, as an Ethernet frame.
pub(super) const LONGEST: Length = match Length::new(MTU + 14) {
    Some(length) => length,
    None => unreachable!(),
};
/// Frames of AF_XDP, and the bytes of each.
const FRAMES: u32 = 8_192;
const FRAME_BYTES: u32 = 2_048;
/// An experimental Ethernet protocol, which no station receives.
const PROTOCOL: [u8; 2] = [0x88, 0xb5];
/// On an existing network, frames go from a station to itself: a switch that has learned its port
/// does not forward them.
const STATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// Returns a backend in an environment of its own, with packets of `packet` bytes: Ethernet frames,
/// or IP packets.
pub(super) fn subject(kind: BackendKind, packet: u32) -> Result<Box<dyn Subject>> {
    match kind {
        BackendKind::Packet => {
            let [into, out] = cables()?;
            let open = |link: &Link| {
                let open = || PacketBackend::open(link.name(), &packet::Options::default());
                link.namespace().run(open).map_err(device)
            };
            let inlet = Inlet {
                backend: open(&into.far)?,
                generator: Box::new(frames(&into, packet)?),
            };
            let wire = Packets::new(out.frame(packet));
            let outlet = open(&out.near)?;
            bench(wire, outlet, Some(inlet), (into, out))
        }
        BackendKind::Xdp => {
            let [into, out] = cables()?;
            // One memory for both: no packet is copied between them.
            let umem = umem()?;
            let inlet = Inlet {
                backend: bind(&umem, &into.far, 2_048)?,
                generator: Box::new(frames(&into, packet)?),
            };
            let outlet = bind(&umem, &out.near, 64)?;
            let packet = out.frame(packet);
            bench(Xdp { umem, packet }, outlet, Some(inlet), (into, out))
        }
        BackendKind::Tun => {
            let (into, out) = (Tun::new([10, 0, 0, 1])?, Tun::new([10, 0, 1, 1])?);
            let sender = into.link.namespace().run(|| bind_udp([10, 0, 0, 1]))?;
            let peer = ([10, 0, 0, 2], 9).into();
            let inlet = Inlet {
                backend: into.backend,
                generator: Box::new(Generator {
                    sender: Sender::new(datagrams(peer, packet)),
                    backend: sender,
                }),
            };
            // For a host that is not there, as seen from the second tunnel's end.
            let bytes = datagram([10, 0, 0, 1], [10, 0, 0, 2], packet)?;
            let lab = (into.link, out.link);
            bench(Tunnel::new(bytes), out.backend, Some(inlet), lab)
        }
        BackendKind::Udp => {
            let localhost = Ipv4Addr::LOCALHOST.octets();
            // Never read, so that arrivals are soon dropped.
            let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("opening a socket")?;
            let backend = bind_udp(localhost)?;
            // As much as it is granted.
            backend.set_receive_buffer(8 << 20)?;
            let inlet = Inlet {
                generator: Box::new(Generator {
                    sender: Sender::new(datagrams(backend.local_addr()?, packet)),
                    backend: bind_udp(localhost)?,
                }),
                backend,
            };
            let wire = datagrams(sink.local_addr()?, packet);
            bench(wire, bind_udp(localhost)?, Some(inlet), sink)
        }
    }
}

/// Returns a backend that transmits Ethernet frames of `packet` bytes on an interface.
pub(super) fn on_interface(
    kind: BackendKind,
    interface: Interface,
    packet: u32,
) -> Result<Box<dyn Subject>> {
    let Interface { name, queue } = interface;
    let packet = frame(STATION, STATION, packet);
    if kind == BackendKind::Xdp {
        let umem = umem()?;
        let outlet = XdpBackend::bind(&umem, name, queue, &XdpOptions::default())?;
        return bench(Xdp { umem, packet }, outlet, None, ());
    }
    let outlet = PacketBackend::open(name, &packet::Options::default())?;
    bench(Packets::new(packet), outlet, None, ())
}

fn bench<W: Wire + 'static>(
    wire: W,
    outlet: W::Backend,
    inlet: Option<Inlet<W>>,
    lab: impl Send + 'static,
) -> Result<Box<dyn Subject>> {
    Ok(Box::new(Bench::new(wire, outlet, inlet, lab)?))
}

/// Two ends of a cable.
struct Cable {
    near: Link,
    far: Link,
}

impl Cable {
    /// Returns a frame from the near end to the far one.
    fn frame(&self, length: u32) -> Vec<u8> {
        frame(self.far.mac(), self.near.mac(), length)
    }
}

/// Returns the ingress cable and the egress cable.
fn cables() -> Result<[Cable; 2]> {
    let new = || cable(MTU).map(|(near, far)| Cable { near, far });
    Ok([new().map_err(lab)?, new().map_err(lab)?])
}

fn frame(to: [u8; 6], from: [u8; 6], length: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &PROTOCOL].concat();
    frame.resize(length as usize, 0);
    frame
}

/// Sends frames over a cable, by the fastest means that there is.
fn frames(cable: &Cable, length: u32) -> Result<Generator<Xdp>> {
    let umem = umem()?;
    Ok(Generator {
        backend: bind(&umem, &cable.near, 64)?,
        sender: Sender::new(Xdp {
            packet: cable.frame(length),
            umem,
        }),
    })
}

pub(crate) fn umem() -> Result<Umem> {
    Umem::new(FRAMES, FRAME_BYTES).context("memory for AF_XDP")
}

pub(crate) fn bind(umem: &Umem, link: &Link, rx_ring: u32) -> Result<XdpBackend> {
    let options = XdpOptions {
        rx_ring,
        ..XdpOptions::default()
    };
    let bind = || XdpBackend::bind(umem, link.name(), 0, &options);
    link.namespace().run(bind).map_err(device)
}

/// A tunnel into a namespace of its own.
struct Tun {
    backend: TunBackend,
    link: Link,
}

impl Tun {
    fn new(address: [u8; 4]) -> Result<Tun> {
        let namespace = Namespace::new().map_err(lab)?;
        let open = || TunBackend::open("lane%d", Layer::Ip);
        let backend = namespace.run(open).map_err(device)?;
        let link = Link::find(&namespace, backend.name()).map_err(lab)?;
        link.add_address(address.into(), 24).map_err(lab)?;
        link.up().map_err(lab)?;
        Ok(Tun { backend, link })
    }
}

fn bind_udp(address: [u8; 4]) -> Result<UdpBackend<Datagram>> {
    UdpBackend::bind((address, 0).into()).context("opening a socket")
}

/// The packet's length includes IPv4 and UDP headers.
fn payload(packet: u32) -> usize {
    (packet as usize).saturating_sub(HEADERS)
}

/// Returns an IP packet of `length` bytes.
pub(crate) fn datagram(from: [u8; 4], to: [u8; 4], length: u32) -> Result<Vec<u8>> {
    let (payload, port) = (payload(length), 9);
    let udp = UdpHeader::without_ipv4_checksum(port, port, payload)?;
    let ttl = 64;
    let mut ip = Ipv4Header::new(udp.length, ttl, IpNumber::UDP, from, to)?;
    ip.header_checksum = ip.calc_header_checksum();
    let mut packet = [&ip.to_bytes()[..], &udp.to_bytes()].concat();
    packet.resize(length as usize, 0);
    Ok(packet)
}

fn datagrams(peer: SocketAddr, packet: u32) -> Udp {
    Udp {
        peer,
        payload: vec![0; payload(packet)],
    }
}

fn lab(error: LabError) -> Error {
    match error.is_not_to_be_had() {
        true => Unavailable(error.to_string()).into(),
        // The sentence has its source in it.
        false => anyhow!("{error}"),
    }
}

fn device(error: io::Error) -> Error {
    use io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
    match error.kind() {
        PermissionDenied | Unsupported | NotFound => Unavailable(error.to_string()).into(),
        _ => error.into(),
    }
}
