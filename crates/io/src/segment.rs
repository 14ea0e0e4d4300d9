//! Cutting what a sender left uncut: segmentation offload, done in software.
//!
//! A sender that counts on its hardware hands over up to 64 KiB of one connection as one frame
//! (TSO, or GSO over UDP), and a receiving kernel joins frames of one connection to as long ones
//! (GRO). Hardware that is not there cuts nothing, and no interface sends what is longer than its
//! MTU. The kernel says beside such a frame what is left to do ([`Offload`], its `virtio_net_hdr`),
//! and a [`Cut`] makes of it the frames that the kernel would have made, byte by byte:
//!
//! | field | in the frames |
//! | --- | --- |
//! | addresses, VLAN tags, IP options, IPv6 extension headers, TOS with ECN, TCP options | copied |
//! | IPv4 total length, IPv6 payload length, UDP length | of each |
//! | IPv4 identification | counted up from that of the whole; 0 with *don't fragment* over TCP stays 0 |
//! | IPv4 header checksum, TCP and UDP checksum | computed; none over UDP stays none |
//! | TCP sequence number | that of its first byte |
//! | TCP FIN and PSH | in the last alone |
//! | TCP CWR | in the first alone; in all where the kernel says that it means something else (Accurate ECN) |
//!
//! The identification is where the kernel knows more than it says: whether frames that it joined
//! all had the same. Senders that do not number (RFC 6864 lets them, where nothing may be
//! fragmented) write 0, and so 0 is kept: also of one that numbers and has just come to 0 again. If
//! another number was the same in all, they differ here, which no receiver looks at.
//!
//! What cannot be cut so is told by [`Uncut`]: tunnels (VXLAN, GRE, IP in IP), whose inner packet
//! would be cut and whose outer headers the kernel's words do not describe; fragments; and what is
//! not what it says it is.
//!
//! # Cost
//!
//! One pass over the bytes, which copies and sums them: some 300 ns for a frame of 1,500 bytes
//! (`cargo bench -p fairlane-io`).
//!
//! # Example
//!
//! ```
//! use fairlane_io::segment::{Cut, Offload, Protocol, Segments, Uncut};
//!
//! /// The frames that a long one was left to be cut into.
//! fn frames(whole: &[u8], offload: &Offload) -> Result<Vec<Vec<u8>>, Uncut> {
//!     let cut = Cut::new(whole, offload)?;
//!     Ok((0..cut.frames()).map(|number| cut.frame(whole, number)).collect())
//! }
//!
//! // 2,500 bytes of UDP over IPv4, to leave as datagrams of 1,000 bytes at most.
//! let mut whole = vec![0; 12]; // two Ethernet addresses
//! whole.extend([0x08, 0x00, 0x45, 0, 0x09, 0xe0, 0, 7, 0, 0, 64, 17, 0, 0]);
//! whole.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0x00, 0x35, 0x09, 0xcc, 0, 0]);
//! whole.extend([1; 2_500]);
//! let segments = Segments { protocol: Some(Protocol::Udp), size: 1_000, reduced_once: false };
//! let offload = Offload { segments: Some(segments), ..Offload::default() };
//! let lengths: Vec<_> = frames(&whole, &offload)?.iter().map(Vec::len).collect();
//! assert_eq!(lengths, [1_042, 1_042, 542]);
//!
//! // No header is believed: what is not what it should be is told, and nothing beyond the frame is read.
//! assert_eq!(frames(&whole[..30], &offload), Err(Uncut::Headers));
//! # Ok::<(), Uncut>(())
//! ```

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod whole;

use std::fmt;

use crate::checksum::{fold, internet_sum};
use crate::kept;
use crate::unsummed::{PacketFrame, Unsummed};

/// Bytes of a `virtio_net_hdr`.
pub const HEADER: usize = 10;

/// The flag in its first byte: a checksum is left to do.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;

/// Most frames that one is cut into.
///
/// Who may send frames with such a header (a container may, on its own interface) could otherwise
/// make 65,000 frames of one, by asking for one byte in each. This many are 64 KiB in pieces of 32
/// bytes: less than TCP ever puts into a segment on Linux with timestamps, which takes no maximum
/// segment size below 48.
pub const MOST_FRAMES: usize = 2_048;

/// What a sender left to hardware, and nobody has done (`virtio_net_hdr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// To sum the frame from the first position on, and to write the checksum at the second.
    pub checksum: Option<(usize, usize)>,
    /// To cut it.
    pub segments: Option<Segments>,
}

/// What a frame is to be cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// What is cut; `None` for what this version does not know.
    pub protocol: Option<Protocol>,
    /// Bytes of payload in each but the last.
    pub size: u16,
    /// The flag CWR of TCP means that the window was reduced (RFC 3168), so it is said once.
    pub reduced_once: bool,
}

/// What carries the payload that is cut.
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
    /// Its headers are not those of the packet that is to be cut: a tunnel, or none.
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

impl std::error::Error for Uncut {}

impl Offload {
    /// What the kernel wrote before a frame.
    pub fn decode(header: &[u8; HEADER]) -> Self {
        const NONE: u8 = 0;
        const TCP4: u8 = 1;
        const TCP6: u8 = 4;
        const UDP: u8 = 5;
        const REDUCED_ONCE: u8 = 0x80;
        let [flags, kind, ..] = *header;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        // Bytes 2 and 3 tell how much lies in one piece in the kernel's memory, no more.
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

    /// The same for a frame that has so many bytes more before what is summed.
    #[must_use]
    pub fn moved(self, by: usize) -> Self {
        let checksum = self.checksum.map(|(start, field)| (start + by, field + by));
        Self { checksum, ..self }
    }
}

/// How one frame is cut: where its headers are, and what each frame has of its payload.
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

const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Bytes of the longest IP packet that IPv4 can state.
const LONGEST: usize = 65_535;
/// Extension headers that are walked over: as many as any sender is known to write, and twice
/// more.
const MOST_EXTENSIONS: usize = 8;
/// VLAN tags that are walked over.
const MOST_TAGS: usize = 4;

impl Cut {
    /// How to cut this frame, which has an Ethernet header and no tag outside its bytes. O(1), or
    /// O(length of the headers) where they are extended.
    ///
    /// A frame whose payload is within one piece is one frame, which [`frame`](Self::frame) copies
    /// with its checksums computed.
    ///
    /// # Errors
    ///
    /// It cannot be cut, or nobody asked for it. No header is believed: whatever `frame` and
    /// `offload` say, nothing beyond the frame is read.
    pub fn new(frame: &[u8], offload: &Offload) -> Result<Self, Uncut> {
        let segments = offload.segments.ok_or(Uncut::Pieces)?;
        let (network, transport) = headers(frame, &segments, offload).ok_or(Uncut::Headers)?;
        let total = frame.len() - transport.payload();
        let size = usize::from(segments.size);
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

    /// Into how many frames: at least 1, as an empty payload is a frame too, and at most
    /// [`MOST_FRAMES`].
    pub fn frames(&self) -> usize {
        self.total.div_ceil(self.size).max(1)
    }

    /// The frame of this number, from 0, of `whole`: that for which this was made. In memory
    /// that is [kept](crate::KeptBytes), or allocated. O(length).
    ///
    /// # Panics
    ///
    /// If there are fewer, or `whole` is shorter than what this was made for.
    pub fn frame(&self, whole: &[u8], number: usize) -> Vec<u8> {
        let mut frame = self.unsummed(whole, number);
        if let Some((start, field)) = self.lacks() {
            // To UDP zero means that there is none.
            let checksum = match (!internet_sum(&frame[start..]), self.transport) {
                (0, Transport::Udp { .. }) => 0xffff,
                (checksum, _) => checksum,
            };
            put(&mut frame, field, checksum);
        }
        frame
    }

    /// Where each frame lacks its checksum that is not computed here: from where on it is summed, and the
    /// field.
    fn lacks(&self) -> Option<(usize, usize)> {
        let field = self.transport.checksum()?;
        Some((self.transport.at(), field))
    }

    /// The frame of this number without the checksum of its transport: its field holds the sum of the
    /// pseudo-header, as a sender leaves it.
    fn unsummed(&self, whole: &[u8], number: usize) -> Vec<u8> {
        assert!(number < self.frames());
        let payload = self.transport.payload();
        let from = number * self.size;
        let length = self.size.min(self.total - from);
        let mut frame = kept::room(payload + length);
        frame.extend_from_slice(&whole[..payload]);
        frame.extend_from_slice(&whole[payload + from..][..length]);
        self.network.adapt(&mut frame, number);
        let last = number + 1 == self.frames();
        self.transport.adapt(&mut frame, from, number == 0, last);
        if let Some((start, field)) = self.lacks() {
            let length = frame.len() - start;
            let sum = self.network.pseudo_sum(&frame)
                + u64::from(self.transport.protocol())
                + length as u64;
            put(&mut frame, field, fold(sum));
        }
        frame
    }

    /// The frame of this number, lacking its checksum if it can say so.
    fn piece<F: PacketFrame>(&self, whole: &[u8], number: usize) -> F {
        let lacks = self.lacks().filter(|_| F::MAY_LACK);
        match lacks.and_then(|place| Unsummed::new(place, whole.len())) {
            Some(checksum) => F::lacking(self.unsummed(whole, number), checksum),
            None => self.frame(whole, number).into(),
        }
    }
}

impl Network {
    fn at(self) -> usize {
        match self {
            Network::Four { at, .. } | Network::Six { at } => at,
        }
    }

    /// Writes what differs from frame to frame.
    fn adapt(self, frame: &mut [u8], number: usize) {
        match self {
            Network::Four { at, numbered } => {
                let length = frame.len() - at;
                put(frame, at + 2, length as u16);
                if numbered {
                    let first = half(frame, at + 4);
                    put(frame, at + 4, first.wrapping_add(number as u16));
                }
                let header = at + usize::from(frame[at] & 0x0f) * 4;
                put(frame, at + 10, 0);
                let checksum = !internet_sum(&frame[at..header]);
                put(frame, at + 10, checksum);
            }
            Network::Six { at } => {
                let length = frame.len() - at - 40;
                put(frame, at + 4, length as u16);
            }
        }
    }

    /// The sum of both addresses.
    fn pseudo_sum(self, frame: &[u8]) -> u64 {
        u64::from(internet_sum(match self {
            Network::Four { at, .. } => &frame[at + 12..at + 20],
            Network::Six { at } => &frame[at + 8..at + 40],
        }))
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
            Transport::Udp { at, .. } => at + UDP_HEADER,
        }
    }

    fn protocol(self) -> u8 {
        match self {
            Transport::Tcp { .. } => TCP,
            Transport::Udp { .. } => UDP,
        }
    }

    /// Where the checksum stands, if there is one.
    fn checksum(self) -> Option<usize> {
        match self {
            Transport::Tcp { at, .. } => Some(at + 16),
            Transport::Udp { at, summed } => summed.then_some(at + 6),
        }
    }

    /// Writes what differs from frame to frame, but for the checksum. The payload begins `from`
    /// bytes into that of the whole.
    fn adapt(self, frame: &mut [u8], from: usize, first: bool, last: bool) {
        match self {
            Transport::Tcp {
                at, reduced_once, ..
            } => {
                let sequence = &mut frame[at + 4..at + 8];
                let number =
                    u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
                sequence.copy_from_slice(&number.wrapping_add(from as u32).to_be_bytes());
                const FIN: u8 = 0x01;
                const PSH: u8 = 0x08;
                const CWR: u8 = 0x80;
                if !last {
                    frame[at + 13] &= !(FIN | PSH);
                }
                if !first && reduced_once {
                    frame[at + 13] &= !CWR;
                }
            }
            Transport::Udp { at, .. } => {
                let length = frame.len() - at;
                put(frame, at + 4, length as u16);
            }
        }
    }
}

/// Where the headers of a frame are, if they are those that are to be cut.
fn headers(frame: &[u8], segments: &Segments, offload: &Offload) -> Option<(Network, Transport)> {
    const TYPE: usize = 12;
    let mut at = TYPE;
    while let [0x81, 0x00] | [0x88, 0xa8] = frame.get(at..at + 2)? {
        at += 4;
        if at > TYPE + 4 * MOST_TAGS {
            return None;
        }
    }
    let ip = at + 2;
    let (network, next, at) = match (frame.get(at..ip)?, segments.protocol?) {
        ([0x08, 0x00], Protocol::Tcp4 | Protocol::Udp) => four(frame, ip)?,
        ([0x86, 0xdd], Protocol::Tcp6 | Protocol::Udp) => six(frame, ip)?,
        _ => return None,
    };
    let transport = match (next, segments.protocol?) {
        (TCP, Protocol::Tcp4 | Protocol::Tcp6) => {
            let header = usize::from(*frame.get(at + 12)? >> 4) * 4;
            let payload = at + header;
            if header < 20 || payload > frame.len() {
                return None;
            }
            Transport::Tcp {
                at,
                payload,
                reduced_once: segments.reduced_once,
            }
        }
        (UDP, Protocol::Udp) => {
            let header = frame.get(at..at + UDP_HEADER)?;
            Transport::Udp {
                at,
                summed: offload.checksum.is_some() || half(header, 6) != 0,
            }
        }
        _ => return None,
    };
    // That of a tunnel's inner packet is elsewhere.
    match offload.checksum {
        Some(place) if Some(place) != transport.checksum().map(|field| (at, field)) => None,
        _ => Some((network, transport)),
    }
}

/// The header of IPv4, its protocol, and what stands behind it.
fn four(frame: &[u8], at: usize) -> Option<(Network, u8, usize)> {
    let header = frame.get(at..at + 20)?;
    let end = at + usize::from(header[0] & 0x0f) * 4;
    const DONT_FRAGMENT: u16 = 0x4000;
    const MORE_OR_OFFSET: u16 = 0x3fff;
    let (number, fragment) = (half(header, 4), half(header, 6));
    if header[0] >> 4 != 4 || end < at + 20 || end > frame.len() || fragment & MORE_OR_OFFSET != 0 {
        return None;
    }
    let protocol = header[9];
    let unnumbered = protocol == TCP && number == 0 && fragment & DONT_FRAGMENT != 0;
    let network = Network::Four {
        at,
        numbered: !unnumbered,
    };
    Some((network, protocol, end))
}

/// The header of IPv6, the protocol behind its extension headers, and where that stands.
fn six(frame: &[u8], at: usize) -> Option<(Network, u8, usize)> {
    let header = frame.get(at..at + 40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION: u8 = 60;
    let (mut next, mut end) = (header[6], at + 40);
    for _ in 0..=MOST_EXTENSIONS {
        match next {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let extension = frame.get(end..end + 2)?;
                next = extension[0];
                end += (usize::from(extension[1]) + 1) * 8;
            }
            _ => return Some((Network::Six { at }, next, end)),
        }
    }
    None
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The frames of one that is cut, given out as there is room for them.
///
/// Until all are, the whole is kept here, so that one long frame never makes more work in a turn
/// than as many short ones would.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    whole: Vec<u8>,
    cut: Option<Cut>,
    /// The next frame's number.
    next: usize,
    uncut: u64,
}

impl Cutter {
    /// Frames that could not be cut.
    pub(crate) fn uncut(&self) -> u64 {
        self.uncut
    }

    /// Gives out at most `room` frames of the one that was begun, and returns how many.
    pub(crate) fn go_on<F: PacketFrame>(&mut self, into: &mut Vec<F>, room: usize) -> usize {
        let Some(cut) = self.cut else { return 0 };
        let end = cut.frames().min(self.next.saturating_add(room));
        let count = end - self.next;
        into.extend((self.next..end).map(|number| cut.piece::<F>(&self.whole, number)));
        self.next = end;
        if end == cut.frames() {
            self.cut = None;
        }
        count
    }

    /// Cuts another frame, which `write` puts into the room for it, once the one before is given
    /// out; returns how many frames of it there was room for. What cannot be cut is counted.
    pub(crate) fn cut_next<F: PacketFrame>(
        &mut self,
        offload: &Offload,
        write: impl FnOnce(&mut Vec<u8>),
        into: &mut Vec<F>,
        room: usize,
    ) -> usize {
        debug_assert!(self.cut.is_none());
        self.whole.clear();
        write(&mut self.whole);
        match Cut::new(&self.whole, offload) {
            Ok(cut) => (self.cut, self.next) = (Some(cut), 0),
            Err(_) => self.uncut += 1,
        }
        self.go_on(into, room)
    }
}
