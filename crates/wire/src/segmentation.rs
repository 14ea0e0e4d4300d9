//! Segmentation offload in software: one long frame of a connection becomes the frames that hardware would
//! have made of it.
//!
//! A sender that relies on its hardware hands over up to 64 KiB of one connection as one frame (TSO, or GSO
//! over UDP), and a receiving kernel coalesces frames of one connection into similar ones (GRO). A virtual
//! device segments nothing, and no interface transmits a frame longer than its MTU. The kernel describes the
//! pending work in a header of such a frame ([`Offload`], its `virtio_net_hdr`), and a [`Cut`] makes the
//! frames that the kernel would have made, byte by byte:
//!
//! | field | in the frames |
//! | --- | --- |
//! | addresses, VLAN tags, MPLS labels, IP options, IPv6 extension headers, TOS with ECN, TCP options | copied |
//! | PPPoE length, IPv4 total length, IPv6 payload length, UDP length | of each |
//! | IPv4 identification | counted up from that of the whole; 0 with *don't fragment* over TCP stays 0 |
//! | IPv4 header checksum, TCP and UDP checksum | computed; none over UDP stays none |
//! | TCP sequence number | that of its first byte |
//! | TCP FIN and PSH | in the last alone |
//! | TCP CWR | in the first alone; in all where the kernel says that it means something else (Accurate ECN) |
//!
//! The identification is the exception, as the kernel does not report whether all frames that it coalesced
//! had the same one. Senders that do not number their packets (RFC 6864 allows that, where nothing may be
//! fragmented) write 0, so 0 is kept, even from a sender that numbers and has just wrapped to 0. If all had
//! the same non-zero number, they differ here, which no receiver checks.
//!
//! [`Uncut`] gives the reasons why a frame cannot be segmented: tunnels (VXLAN, GRE, IP in IP), whose inner
//! packet would be segmented and whose outer headers the kernel's header does not describe; fragments; and
//! frames that contradict their headers.
//!
//! # Cost
//!
//! One pass over the bytes copies and sums them: some 300 ns for a frame of 1,500 bytes (`cargo bench -p
//! fairlane-io`).
//!
//! # Example
//!
//! A [`Cut`] follows either the kernel's description ([`Offload`]) or, in a capture that has none, the
//! longest packet that a link carries ([`Cut::to_fit`]).
//!
//! ```
//! use fairlane_wire::checksum::{fold, internet_sum};
//! use fairlane_wire::segmentation::{Cut, Offload, Protocol, Segments, Uncut};
//!
//! // 2,500 bytes of UDP over IPv4, for a link whose MTU is 1,028 bytes.
//! let mut whole = vec![0x45, 0, 0x09, 0xe0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
//! whole.extend([0x30, 0x39, 0x00, 0x35, 0x09, 0xcc, 0, 0]);
//! whole.extend([1; 2_500]);
//! let cut = Cut::to_fit(&whole, 0, 1_028)?;
//! let frames: Vec<_> = (0..cut.frames()).map(|number| cut.frame(&whole, number)).collect();
//! let lengths: Vec<_> = frames.iter().map(Vec::len).collect();
//! assert_eq!(lengths, [1_028, 1_028, 528]);
//! // The sum over an IPv4 header, its checksum included, has all bits set.
//! assert_eq!(internet_sum(&frames[2][..20]), 0xffff);
//! assert_eq!(fold(0x1_fffe), 0xffff);
//! // UDP may leave out its own.
//! assert_eq!((cut.checksum(), cut.headers(), cut.part(2)), (None, 28, 2_000..2_500));
//!
//! assert_eq!(Cut::to_fit(&whole[..20], 0, 1_028), Err(Uncut::Headers));
//!
//! // The same in an Ethernet frame, in the kernel's words.
//! let frame = [&[2; 12][..], &[0x08, 0x00], &whole].concat();
//! let segments = Segments { protocol: Some(Protocol::Udp), size: 1_000, reduced_once: false };
//! let offload = Offload { segments: Some(segments), ..Offload::default() };
//! assert_eq!(Cut::new(&frame, &offload)?.frames(), 3);
//! # Ok::<(), Uncut>(())
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::bytes::{put, u16_at, u32_at};
use crate::checksum::{internet_sum, pseudo_sum};
use crate::{ipv4, ipv6, network, pppoe, tcp, udp};

/// Bytes of a `virtio_net_hdr`.
pub const HEADER: usize = 10;

/// The flag in its first byte: a checksum is left to do.
pub const NEEDS_CHECKSUM: u8 = 1;

/// Most frames that one is cut into.
///
/// A sender that writes such a header itself (a container may, on its own interface) could otherwise make
/// 65,000 frames of one, with one byte in each. This many are 64 KiB in pieces of 32 bytes. Linux accepts
/// no maximum segment size below 48, and so never sends shorter segments with timestamps.
pub const MOST_FRAMES: usize = 2_048;

/// Work that a sender left to hardware and that is still to do (`virtio_net_hdr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// To sum the frame from the first position on, and to write the checksum at the second.
    pub checksum: Option<(usize, usize)>,
    /// To cut it.
    pub segments: Option<Segments>,
}

/// The segments of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// The protocol of the payload; `None` for one that this version does not know.
    pub protocol: Option<Protocol>,
    /// Bytes of payload in each but the last.
    pub size: u16,
    /// The flag CWR of TCP means that the window was reduced (RFC 3168), so it is said once.
    pub reduced_once: bool,
}

/// The protocol that carries the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// Datagrams of UDP over either.
    Udp,
}

/// Why a frame cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Uncut {
    /// Its headers are not those of the packet to segment: a tunnel, or none.
    Headers,
    /// It would be pieces of no bytes or longer than any IP packet, or more than [`MOST_FRAMES`].
    Pieces,
}

impl fmt::Display for Uncut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headers => "is not plainly TCP or UDP over IP, so it cannot be cut",
            Self::Pieces => "would be cut into too many frames, or into such as there are none",
        })
    }
}

impl core::error::Error for Uncut {}

impl Offload {
    /// Decodes the header that the kernel wrote before a frame.
    pub fn decode(header: &[u8; HEADER]) -> Self {
        const NONE: u8 = 0;
        const TCP4: u8 = 1;
        const TCP6: u8 = 4;
        const UDP: u8 = 5;
        const REDUCED_ONCE: u8 = 0x80;
        let [flags, kind, ..] = *header;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        // Bytes 2 and 3 are the length of the piece that is contiguous in the kernel's memory, no more.
        let (size, start, offset) = (half(4), usize::from(half(6)), usize::from(half(8)));
        Self {
            checksum: (flags & NEEDS_CHECKSUM != 0).then_some((start, start + offset)),
            segments: (kind != NONE).then_some(Segments {
                protocol: match kind & !REDUCED_ONCE {
                    TCP4 => Some(Protocol::Tcp4),
                    TCP6 => Some(Protocol::Tcp6),
                    UDP => Some(Protocol::Udp),
                    _ => None,
                },
                size,
                reduced_once: kind & REDUCED_ONCE != 0,
            }),
        }
    }

    /// The same for a frame with `by` more bytes before those that are summed.
    #[must_use]
    pub fn moved(self, by: usize) -> Self {
        let checksum = self.checksum.map(|(start, field)| (start + by, field + by));
        Self { checksum, ..self }
    }
}

/// How one frame is cut: where its headers are, and which part of the payload each piece has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    network: Network,
    transport: Transport,
    /// Bytes of payload in each but the last.
    size: usize,
    /// Bytes of payload in all.
    total: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// IPv4; the headers of each frame are numbered.
    Four {
        at: usize,
        numbered: bool,
    },
    Six {
        at: usize,
    },
}

/// A transport header, the payload behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp {
        at: usize,
        payload: usize,
        reduced_once: bool,
    },
    Udp {
        at: usize,
        summed: bool,
    },
}

/// Bytes of the longest IP packet that IPv4 can state.
const LONGEST: usize = 65_535;

impl Cut {
    /// How to cut this frame, which has an Ethernet header and no tag outside its bytes. O(1), or
    /// O(length of the headers) where they are extended.
    ///
    /// A frame whose payload is within one piece is one frame, which [`frame`](Self::frame) copies
    /// with its checksums computed.
    ///
    /// # Errors
    ///
    /// It cannot be cut, or `offload` does not ask for it. No header is believed: whatever `frame` and
    /// `offload` say, nothing beyond the frame is read.
    pub fn new(frame: &[u8], offload: &Offload) -> Result<Self, Uncut> {
        let segments = offload.segments.ok_or(Uncut::Pieces)?;
        let (network, transport) = described(frame, &segments, offload).ok_or(Uncut::Headers)?;
        Self::of(frame, network, transport, segments.size.into())
    }

    /// How to cut a frame whose IP header begins at `ip` so that no IP packet is longer than `mtu`: as its
    /// sender had it cut where nothing says into which pieces. O(1), or O(length of the headers) where they
    /// are extended.
    ///
    /// # Errors
    ///
    /// It cannot be cut: it is not plainly TCP or UDP, or its headers alone are as long as that. No header
    /// is believed.
    pub fn to_fit(frame: &[u8], ip: usize, mtu: usize) -> Result<Self, Uncut> {
        let (network, transport) = headers(frame, ip).ok_or(Uncut::Headers)?;
        let before = transport.payload() - network.at();
        Self::of(frame, network, transport, mtu.saturating_sub(before))
    }

    fn of(
        frame: &[u8],
        network: Network,
        transport: Transport,
        size: usize,
    ) -> Result<Self, Uncut> {
        let total = frame.len() - transport.payload();
        let longest = transport.payload() - network.at() + size.min(total);
        if size == 0 || total.div_ceil(size) > MOST_FRAMES || longest > LONGEST {
            return Err(Uncut::Pieces);
        }
        Ok(Self {
            network,
            transport,
            size,
            total,
        })
    }

    /// Returns the number of frames: at least 1, as an empty payload is a frame too, and at most
    /// [`MOST_FRAMES`].
    pub fn frames(&self) -> usize {
        self.total.div_ceil(self.size).max(1)
    }

    /// Returns the bytes of headers that each frame begins with.
    pub fn headers(&self) -> usize {
        self.transport.payload()
    }

    /// Returns the part of the whole's payload that the frame of this number has, from 0.
    ///
    /// # Panics
    ///
    /// If there are fewer frames.
    pub fn part(&self, number: usize) -> Range<usize> {
        assert!(number < self.frames());
        let from = number * self.size;
        from..self.total.min(from + self.size)
    }

    /// Returns the frame of this number, from 0, of `whole`: that for which this was made.
    /// O(length).
    ///
    /// # Panics
    ///
    /// If there are fewer, or `whole` is shorter than the frame this was made for.
    pub fn frame(&self, whole: &[u8], number: usize) -> Vec<u8> {
        let room = Vec::with_capacity(self.headers() + self.part(number).len());
        self.frame_in(room, whole, number)
    }

    /// The same in memory that is there already: `room`, which is empty.
    ///
    /// # Panics
    ///
    /// As [`frame`](Self::frame).
    pub fn frame_in(&self, room: Vec<u8>, whole: &[u8], number: usize) -> Vec<u8> {
        let mut frame = self.unsummed_in(room, whole, number);
        if let Some((start, field)) = self.checksum() {
            // To UDP zero means that there is none; the kernel leaves it to TCP.
            let checksum = match (!internet_sum(&frame[start..]), self.transport) {
                (0, Transport::Udp { .. }) => 0xffff,
                (checksum, _) => checksum,
            };
            put(&mut frame, field, checksum);
        }
        frame
    }

    /// Returns where [`unsummed_in`](Self::unsummed_in) leaves each frame to be summed: the first byte
    /// that is summed, and the field of the checksum; `None` where there is no checksum.
    pub fn checksum(&self) -> Option<(usize, usize)> {
        let field = self.transport.checksum()?;
        Some((self.transport.at(), field))
    }

    /// Returns the frame of this number without the checksum of its transport: its field holds the
    /// sum of the pseudo-header, as a sender leaves it.
    ///
    /// # Panics
    ///
    /// As [`frame`](Self::frame).
    pub fn unsummed_in(&self, room: Vec<u8>, whole: &[u8], number: usize) -> Vec<u8> {
        let (part, payload) = (self.part(number), self.headers());
        let mut frame = room;
        frame.extend_from_slice(&whole[..payload]);
        frame.extend_from_slice(&whole[payload..][part.clone()]);
        self.network.adapt(&mut frame, number);
        if let Some(field) = pppoe::length_before(&frame, self.network.at()) {
            let length = frame.len() - field - (pppoe::PROTOCOL - pppoe::PAYLOAD_LENGTH);
            put(&mut frame, field, length as u16);
        }
        let last = number + 1 == self.frames();
        (self.transport).adapt(&mut frame, part.start, number == 0, last);
        if let Some((start, field)) = self.checksum() {
            let length = frame.len() - start;
            let addresses = &frame[self.network.addresses()];
            let sum = pseudo_sum(addresses, self.transport.protocol(), length);
            put(&mut frame, field, sum);
        }
        frame
    }
}

impl Network {
    fn at(self) -> usize {
        match self {
            Network::Four { at, .. } | Network::Six { at } => at,
        }
    }

    /// Writes the fields that differ from frame to frame.
    fn adapt(self, frame: &mut [u8], number: usize) {
        match self {
            Network::Four { at, numbered } => {
                let length = frame.len() - at;
                put(frame, at + ipv4::TOTAL_LENGTH, length as u16);
                if numbered {
                    let field = at + ipv4::IDENTIFICATION;
                    let first = u16_at(frame, field);
                    put(frame, field, first.wrapping_add(number as u16));
                }
                ipv4::write_checksum(&mut frame[at..]);
            }
            Network::Six { at } => {
                let length = frame.len() - at - ipv6::LENGTH;
                put(frame, at + ipv6::PAYLOAD_LENGTH, length as u16);
            }
        }
    }

    /// Returns the place of both addresses.
    fn addresses(self) -> Range<usize> {
        match self {
            Network::Four { at, .. } => at + ipv4::SOURCE..at + ipv4::LENGTH,
            Network::Six { at } => at + ipv6::SOURCE..at + ipv6::LENGTH,
        }
    }
}

impl Transport {
    fn at(self) -> usize {
        match self {
            Transport::Tcp { at, .. } | Transport::Udp { at, .. } => at,
        }
    }

    fn payload(self) -> usize {
        match self {
            Transport::Tcp { payload, .. } => payload,
            Transport::Udp { at, .. } => at + udp::LENGTH,
        }
    }

    fn protocol(self) -> crate::Protocol {
        match self {
            Transport::Tcp { .. } => crate::Protocol::TCP,
            Transport::Udp { .. } => crate::Protocol::UDP,
        }
    }

    /// Where the checksum stands, if there is one.
    fn checksum(self) -> Option<usize> {
        match self {
            Transport::Tcp { at, .. } => Some(at + tcp::CHECKSUM),
            Transport::Udp { at, summed } => summed.then_some(at + udp::CHECKSUM),
        }
    }

    /// Writes the fields that differ from segment to segment, except the checksum. The payload begins
    /// `from` bytes into that of the whole.
    fn adapt(self, frame: &mut [u8], from: usize, first: bool, last: bool) {
        match self {
            Transport::Tcp {
                at, reduced_once, ..
            } => {
                let field = at + tcp::SEQUENCE;
                let sequence = u32_at(frame, field).wrapping_add(from as u32);
                frame[field..field + 4].copy_from_slice(&sequence.to_be_bytes());
                let flags = &mut frame[at + tcp::FLAGS];
                if !last {
                    *flags &= !(tcp::FIN | tcp::PSH);
                }
                if !first && reduced_once {
                    *flags &= !tcp::CWR;
                }
            }
            Transport::Udp { at, .. } => {
                let length = frame.len() - at;
                put(frame, at + udp::DATAGRAM_LENGTH, length as u16);
            }
        }
    }
}

/// Returns the headers of a frame, if they are those that `offload` describes.
fn described(frame: &[u8], segments: &Segments, offload: &Offload) -> Option<(Network, Transport)> {
    let (ether_type, ip) = network(frame)?;
    let (network, mut transport) = headers(frame, ip)?;
    match (ether_type, segments.protocol?, network, &mut transport) {
        (ipv4::TYPE, Protocol::Tcp4, Network::Four { .. }, Transport::Tcp { reduced_once, .. })
        | (ipv6::TYPE, Protocol::Tcp6, Network::Six { .. }, Transport::Tcp { reduced_once, .. }) => {
            *reduced_once = segments.reduced_once;
        }
        (ipv4::TYPE, Protocol::Udp, Network::Four { .. }, Transport::Udp { summed, .. })
        | (ipv6::TYPE, Protocol::Udp, Network::Six { .. }, Transport::Udp { summed, .. }) => {
            *summed |= offload.checksum.is_some();
        }
        _ => return None,
    }
    // The checksum of a tunnel's inner packet is elsewhere.
    match offload.checksum {
        Some(place) if Some(place) != transport.checksum().map(|field| (transport.at(), field)) => {
            None
        }
        _ => Some((network, transport)),
    }
}

/// Returns the headers of the IP packet at `ip`, if it is plainly TCP or UDP.
fn headers(frame: &[u8], ip: usize) -> Option<(Network, Transport)> {
    let (network, next, at) = match frame.get(ip)? >> 4 {
        4 => four(frame, ip)?,
        6 => six(frame, ip)?,
        _ => return None,
    };
    let transport = match next {
        crate::Protocol::TCP => {
            let header = tcp::length(frame.get(at..at + tcp::LENGTH)?);
            let payload = at + header;
            if header < tcp::LENGTH || payload > frame.len() {
                return None;
            }
            Transport::Tcp {
                at,
                payload,
                reduced_once: true,
            }
        }
        crate::Protocol::UDP => {
            let header = frame.get(at..at + udp::LENGTH)?;
            Transport::Udp {
                at,
                summed: u16_at(header, udp::CHECKSUM) != 0,
            }
        }
        _ => return None,
    };
    Some((network, transport))
}

/// Returns the header of IPv4, its protocol, and where the header of that begins.
fn four(frame: &[u8], at: usize) -> Option<(Network, crate::Protocol, usize)> {
    let header = frame.get(at..at + ipv4::LENGTH)?;
    let end = at + ipv4::length(header[0]);
    let (number, fragment) = (
        u16_at(header, ipv4::IDENTIFICATION),
        u16_at(header, ipv4::FRAGMENT),
    );
    let is_whole = end >= at + ipv4::LENGTH && end <= frame.len();
    if header[0] >> 4 != 4 || !is_whole || ipv4::is_fragment(fragment) {
        return None;
    }
    let protocol = crate::Protocol(header[ipv4::PROTOCOL]);
    let unnumbered =
        protocol == crate::Protocol::TCP && number == 0 && fragment & ipv4::DONT_FRAGMENT != 0;
    let network = Network::Four {
        at,
        numbered: !unnumbered,
    };
    Some((network, protocol, end))
}

/// Returns the header of IPv6, the protocol behind its extension headers, and where that stands.
fn six(frame: &[u8], at: usize) -> Option<(Network, crate::Protocol, usize)> {
    let header = frame.get(at..at + ipv6::LENGTH)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (mut next, mut end) = (header[ipv6::NEXT_HEADER], at + ipv6::LENGTH);
    for _ in 0..=ipv6::MOST_EXTENSIONS {
        match next {
            ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION_OPTIONS => {
                let extension = frame.get(end..end + 2)?;
                next = extension[0];
                end += (usize::from(extension[1]) + 1) * 8;
            }
            _ => return Some((Network::Six { at }, crate::Protocol(next), end)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::Build;

    /// Returns an IP packet of TCP with so much payload, and its headers' length.
    fn tcp(six: bool, payload: usize) -> (Vec<u8>, usize) {
        let mut packet = match six {
            false => vec![
                0x45, 0, 0, 0, 0, 9, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            ],
            true => [&[0x60, 0, 0, 0, 0, 0, 6, 64][..], &[7; 32]].concat(),
        };
        packet.extend([
            0, 5, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
        ]);
        let headers = packet.len();
        packet.extend((0..payload).map(|at| at as u8));
        (packet, headers)
    }

    #[test]
    fn a_checksum_of_zero_is_all_ones_over_udp_alone() {
        for (is_udp, zero) in [(false, 0), (true, 0xffff)] {
            let ip = Build::packet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
            let build = if is_udp { ip.udp(1, 2) } else { ip.tcp(1, 2) };
            let checksum = |payload: u16| {
                let whole = build.clone().payload(&payload.to_be_bytes());
                let cut = Cut::to_fit(&whole, 0, 1_500).unwrap();
                let (_, field) = cut.checksum().unwrap();
                u16_at(&cut.frame(&whole, 0), field)
            };
            assert_eq!(checksum(checksum(0)), zero);
        }
    }

    proptest! {
        #[test]
        fn pieces_fit_and_have_the_payload_of_the_whole(
            six in any::<bool>(),
            before in 0..20_usize,
            payload in 0..70_000_usize,
            mtu in 61..9_000_usize,
        ) {
            let (packet, headers) = tcp(six, payload);
            let whole = [&vec![3; before][..], &packet].concat();
            let cut = Cut::to_fit(&whole, before, mtu);
            if payload.div_ceil(mtu - headers) > MOST_FRAMES {
                prop_assert_eq!(cut, Err(Uncut::Pieces));
                return Ok(());
            }
            let cut = cut.unwrap();
            prop_assert_eq!(cut.headers(), before + headers);
            let mut joined = Vec::new();
            for number in 0..cut.frames() {
                let frame = cut.frame(&whole, number);
                let ip = &frame[before..];
                prop_assert!(ip.len() <= mtu);
                let stated = match six {
                    false => usize::from(u16_at(ip, 2)),
                    true => 40 + usize::from(u16_at(ip, 4)),
                };
                prop_assert_eq!(stated, ip.len());
                prop_assert_eq!(&frame[..before], &whole[..before]);
                joined.extend_from_slice(&ip[headers..]);
            }
            prop_assert_eq!(&joined, &packet[headers..]);
        }

        #[test]
        fn no_bytes_do_harm(frame in prop::collection::vec(any::<u8>(), 0..90), ip in 0..100_usize, mtu in 0..70_000_usize) {
            if let Ok(cut) = Cut::to_fit(&frame, ip, mtu) {
                for number in 0..cut.frames() {
                    cut.frame(&frame, number);
                }
            }
        }
    }
}
