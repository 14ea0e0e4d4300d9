//! The header fields of a packet, and the faults that headers have.

use core::fmt;

use crate::{Dscp, Protocol, VlanId};

/// The layer of a packet's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// An Ethernet header: frames of a network interface.
    Ethernet,
    /// An IP header of either version: packets of a tunnel device.
    Ip,
}

/// The network protocol of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Anything else, such as ARP.
    #[default]
    Other,
}

/// Whether a packet is a part of a datagram, and which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// A whole datagram.
    #[default]
    No,
    /// The first part, which has the transport header.
    First,
    /// Another part: there are no ports in it.
    Later,
}

/// The header fields that [`parse`](crate::parse) read from a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Headers {
    /// The network protocol; the fields of IP are zero or absent unless it is IP.
    pub family: Family,
    /// Source address; an IPv4 address is in the low 32 bits. Of an Ethernet frame that is not IP,
    /// the source MAC address in the low 48 bits.
    pub source: u128,
    /// Destination address, likewise.
    pub destination: u128,
    /// The protocol that the packet carries, behind extension headers. Of an IPv6
    /// [`Fragment::Later`], what its fragment header names.
    pub protocol: Option<Protocol>,
    /// Source and destination port, where there is a header that has them: TCP, UDP,
    /// SCTP, DCCP, UDP-Lite, and not in a [`Fragment::Later`].
    pub ports: Option<Ports>,
    /// Differentiated services code point.
    pub dscp: Dscp,
    /// Explicit congestion notification, 0 to 3.
    pub ecn: u8,
    /// The outermost VLAN. A priority tag (VLAN 0) is none.
    pub vlan: Option<VlanId>,
    /// Whether it is a part of a datagram. IPv6 with a fragment header around a whole
    /// datagram (RFC 6946) is whole.
    pub fragment: Fragment,
    /// Of a fragment: which datagram it is a part of, between its addresses.
    pub identification: u32,
    /// Of a fragment: bytes of the datagram's payload that it carries.
    pub fragment_bytes: u16,
    /// Of the last fragment: bytes of the payload of the whole datagram; 0 of any other.
    pub fragmented_bytes: u32,
    /// Whether it is link-layer control, by which neighbours keep the link itself working: ARP,
    /// neighbour discovery with the hop limit 255 that RFC 4861 asks for, frames to the addresses
    /// that IEEE 802.1D reserves (STP, LACP, LLDP, 802.1X), PPPoE discovery, and the control
    /// protocols of PPP (LCP, authentication, IPCP, IPv6CP) in a PPPoE session.
    pub link_control: bool,
    /// The type in the last Ethernet header or tag; 0 without one.
    pub ethertype: u16,
    /// Where the IP header begins, in bytes; without one, the header behind Ethernet and VLAN tags.
    pub ip_offset: u16,
}

impl Headers {
    /// Notes the place of a fragment in its datagram. Out of line, since few packets are fragments.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_fragment(&mut self, id: u32, offset: u32, has_more: bool, payload: &[u8]) {
        self.fragment = match offset {
            0 => Fragment::First,
            _ => Fragment::Later,
        };
        self.identification = id;
        self.fragment_bytes = payload.len() as u16;
        self.fragmented_bytes = match has_more {
            true => 0,
            false => offset + payload.len() as u32,
        };
    }
}

/// The two ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The packet's source.
    pub source: u16,
    /// The packet's destination.
    pub destination: u16,
}

/// A kind of header, by its name in errors. The file of each header has its constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// One pointer, so that a result with a fault fits into registers.
pub struct Header(pub(crate) &'static &'static str);

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A packet that is not what its headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{header} {reason}")]
pub struct Malformed {
    /// The header that is wrong.
    pub header: Header,
    /// The fault.
    pub reason: Reason,
}

impl Malformed {
    #[inline]
    pub(crate) const fn new(header: Header, reason: Reason) -> Malformed {
        Malformed { header, reason }
    }
}

/// The fault of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The packet ends before this many bytes of the header.
    Short(u16),
    /// The header's version is another than the one announced, or none that is known.
    Version(u8),
    /// The header claims an invalid length, in bytes.
    HeaderLength(u16),
    /// The datagram claims this many bytes: more than were captured, or fewer than its header has.
    TotalLength(u32),
    /// More extension headers follow each other than are followed.
    TooMany(u8),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Short(need) => write!(f, "ends before its {need} bytes"),
            Reason::Version(version) => write!(f, "has version {version}"),
            Reason::HeaderLength(len) => write!(f, "claims {len} bytes for itself"),
            Reason::TotalLength(len) => write!(f, "claims {len} bytes for the datagram"),
            Reason::TooMany(most) => write!(f, "follows more than {most} others"),
        }
    }
}
