//! The bytes that precede the headers of a captured packet.

use fairlane_wire::{Layer, ethernet, ipv4, ipv6};
use pcap_file::DataLink;

use super::capture::Packet;

/// The part of a packet that filters and flows use.
#[derive(Default)]
pub(super) struct View {
    /// The packet, if the capture lacks a part of it.
    scratch: Vec<u8>,
}

impl View {
    /// Returns its bytes from the first header on, the layer of that header, and the offset in the packet of the
    /// headers that can be marked, if any.
    pub(super) fn of<'a>(
        &'a mut self,
        packet: &'a Packet,
    ) -> (&'a [u8], Layer, Option<(Layer, usize)>) {
        let captured = &packet.bytes[..];
        self.scratch.clear();
        let (layer, start, headers) = match packet.framing.layer(captured) {
            Ok((layer, start)) => (layer, start, Some((layer, start))),
            Err(ether_type) => {
                self.scratch.extend([0; ethernet::TYPE]);
                self.scratch.extend(ether_type.to_be_bytes());
                (Layer::Ethernet, captured.len(), None)
            }
        };
        let seen = captured.get(start..).unwrap_or_default();
        let missing = packet.len as usize - captured.len();
        if missing == 0 && headers.is_some() {
            return (seen, layer, headers);
        }
        // The missing rest was sent; all headers precede it.
        self.scratch.extend(seen);
        let whole = self.scratch.len() + missing.min(usize::from(u16::MAX));
        self.scratch.resize(whole, 0);
        (&self.scratch, layer, headers)
    }
}

/// The bytes that precede the IP header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    Ethernet,
    /// IP at once.
    Raw,
    /// Four bytes of address family.
    Loopback,
    /// Linux's "any" interface: the ether type, and where the payload begins.
    Cooked {
        ether_type: usize,
        payload: usize,
    },
}

impl Framing {
    /// The framings that can be read, in words.
    pub(super) const ALL: &str = "Ethernet, raw IP, loopback and Linux cooked (v1, v2)";

    /// Returns the framing of a link type, or `None` for one that cannot be read.
    pub(super) fn of(link: DataLink) -> Option<Framing> {
        // The upper bits of the field may contain the length of a checksum.
        match u32::from(link) & 0xffff {
            1 => Some(Framing::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Framing::Raw),
            0 | 108 => Some(Framing::Loopback),
            113 => Some(Framing::Cooked {
                ether_type: 14,
                payload: 16,
            }),
            276 => Some(Framing::Cooked {
                ether_type: 0,
                payload: 20,
            }),
            _ => None,
        }
    }

    /// Returns the layer at which a packet's headers begin, and their offset; or its ether type, if that is of no
    /// supported layer.
    pub(super) fn layer(self, packet: &[u8]) -> Result<(Layer, usize), u16> {
        match self {
            Framing::Ethernet => Ok((Layer::Ethernet, 0)),
            Framing::Raw => Ok((Layer::Ip, 0)),
            Framing::Loopback => Ok((Layer::Ip, 4)),
            Framing::Cooked {
                ether_type,
                payload,
            } => {
                let found = packet.get(ether_type..ether_type + 2);
                match found.map_or(0, |found| u16::from_be_bytes([found[0], found[1]])) {
                    ipv4::TYPE | ipv6::TYPE => Ok((Layer::Ip, payload)),
                    other => Err(other),
                }
            }
        }
    }
}
