//! Writes packets header by header.

use alloc::vec::Vec;
use core::ops::Range;

use crate::Protocol;
use crate::bytes::put;
use crate::checksum::{self, pseudo_sum};

/// A packet under construction, from the outermost header inwards. Each header's file has its method.
///
/// Types, lengths and checksums follow from what is written; a field that a test wants wrong is changed in the result.
///
/// ```
/// use fairlane_wire::{Build, Layer, Protocol, VlanId, parse};
///
/// let frame = Build::ethernet().vlan(7).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1_000, 53).payload(&[1; 100]);
/// assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 100);
/// let headers = parse(&frame, Layer::Ethernet)?;
/// assert_eq!((headers.vlan, headers.protocol), (VlanId::new(7), Some(Protocol::UDP)));
///
/// let packet = Build::packet().ipv6([1; 16], [2; 16]).traffic_class(2).tcp(1, 2).payload(&[]);
/// assert_eq!(parse(&packet, Layer::Ip)?.ecn, 2);
/// # Ok::<(), fairlane_wire::Malformed>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Build {
    pub(crate) bytes: Vec<u8>,
    next: Option<Next>,
    written: Vec<Written>,
    /// The addresses of the last IP header.
    pub(crate) addresses: Range<usize>,
}

/// The field that announces the next header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// An ether type at this offset.
    Ethertype(usize),
    /// A protocol of PPP.
    Ppp(usize),
    /// A protocol of IP.
    Protocol(usize),
}

/// The numbers of a header where another announces it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Announced {
    pub(crate) ethertype: u16,
    pub(crate) ppp: u16,
    pub(crate) protocol: u8,
}

impl Announced {
    /// A header that only IP announces.
    pub(crate) fn of(protocol: Protocol) -> Announced {
        Announced {
            protocol: protocol.0,
            ..Announced::default()
        }
    }
}

/// A header whose fields depend on all that follows it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Where it begins.
    pub(crate) at: usize,
    /// The addresses of the IP header before it.
    pub(crate) addresses: Range<usize>,
    finish: fn(&mut [u8], &Written),
}

impl Build {
    /// A packet without a link layer: its first header is that of IP.
    #[must_use]
    pub fn packet() -> Build {
        Build::default()
    }

    /// Writes bytes and what they are in the header before them; `next` is the field in them that announces the header
    /// behind. Fields that depend on what follows are written by `finish`.
    #[must_use]
    pub(crate) fn header(
        mut self,
        announced: Announced,
        bytes: &[u8],
        next: Option<Next>,
        finish: fn(&mut [u8], &Written),
    ) -> Build {
        let at = self.bytes.len();
        match self.next.take() {
            Some(Next::Ethertype(field)) => put(&mut self.bytes, field, announced.ethertype),
            Some(Next::Ppp(field)) => put(&mut self.bytes, field, announced.ppp),
            Some(Next::Protocol(field)) => self.bytes[field] = announced.protocol,
            None => {}
        }
        self.bytes.extend_from_slice(bytes);
        self.next = next.map(|next| match next {
            Next::Ethertype(field) => Next::Ethertype(at + field),
            Next::Ppp(field) => Next::Ppp(at + field),
            Next::Protocol(field) => Next::Protocol(at + field),
        });
        self.written.push(Written {
            at,
            addresses: self.addresses.clone(),
            finish,
        });
        self
    }

    /// Writes the number of the payload's protocol into the last header, as wide as its field is.
    #[must_use]
    pub fn carrying(mut self, number: u16) -> Build {
        match self.next.take() {
            Some(Next::Ethertype(field) | Next::Ppp(field)) => put(&mut self.bytes, field, number),
            Some(Next::Protocol(field)) => self.bytes[field] = number as u8,
            None => {}
        }
        self
    }

    /// Returns the packet with this payload: all lengths and checksums are right.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Vec<u8> {
        self.bytes.extend_from_slice(payload);
        // An outer checksum covers inner ones.
        for written in self.written.iter().rev() {
            (written.finish)(&mut self.bytes, written);
        }
        self.bytes
    }

    /// Returns the packet filled with zeros up to this length, or without a payload if it is longer already.
    #[must_use]
    pub fn zeros_to(self, length: usize) -> Vec<u8> {
        let missing = length.saturating_sub(self.bytes.len());
        self.payload(&alloc::vec![0; missing])
    }
}

/// Leaves a header as it was written.
pub(crate) fn is_complete(_: &mut [u8], _: &Written) {}

/// Writes a transport's checksum, over the pseudo-header too.
pub(crate) fn sum(packet: &mut [u8], written: &Written, protocol: Protocol, field: usize) {
    let Written { at, addresses, .. } = written;
    let pseudo = pseudo_sum(&packet[addresses.clone()], protocol, packet.len() - at);
    put(packet, at + field, pseudo);
    checksum::write(packet, *at, at + field);
}
