//! The headers between a link and the IP packet in it.

use crate::{Malformed, arp, ipv4, ipv6, mpls, pppoe};

/// The content of a frame behind its Ethernet header and tags; positions are in the bytes behind those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    Ipv4 {
        at: usize,
        end: usize,
    },
    Ipv6 {
        at: usize,
        end: usize,
    },
    /// Link-layer control.
    Control,
    Other,
}

/// Reads the header of this type that a frame has behind Ethernet and its tags: a row for each.
#[inline(never)]
pub(crate) fn read(ethertype: u16, bytes: &[u8]) -> Result<Inner, Malformed> {
    let (at, end) = (0, bytes.len());
    Ok(match ethertype {
        ipv4::TYPE => Inner::Ipv4 { at, end },
        ipv6::TYPE => Inner::Ipv6 { at, end },
        arp::TYPE | pppoe::DISCOVERY => Inner::Control,
        pppoe::SESSION => pppoe::read(bytes)?,
        mpls::UNICAST | mpls::MULTICAST => mpls::read(bytes),
        _ => Inner::Other,
    })
}
