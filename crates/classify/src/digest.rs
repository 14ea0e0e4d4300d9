//! Which flow a packet belongs to, as a number.

use core::fmt;
use core::hash::Hasher;
use core::str::FromStr;

use siphasher::sip::SipHasher13;

use crate::field::mask;
use crate::{Family, Fragment, Headers, Origin};

/// What keeps a sender from choosing which flows meet: 128 random bits that the caller
/// draws at start and tells nobody.
#[derive(Clone, Copy)]
pub struct DigestKey(pub [u64; 2]);

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

/// What the packets of one flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Per {
    /// The source address.
    SourceIp,
    /// The destination address.
    DestinationIp,
    /// Addresses, protocol and ports, in this direction: the answers are another flow.
    ///
    /// All fragments between two addresses, the first ones included, are one flow: later
    /// ones have no ports, and so stay in order behind the first. (Were each datagram a
    /// flow of its own, who sends fragments would get a share for each.) Only a
    /// datagram that is whole may pass one in parts.
    FiveTuple,
    /// So many leading bits of the source address; of IPv4 at most 32.
    SourceSubnet(u8),
    /// So many leading bits of the destination address; of IPv4 at most 32.
    DestinationSubnet(u8),
    /// The outermost VLAN.
    Vlan,
    /// The differentiated services code point.
    Dscp,
    /// User, group and process that sent it.
    Owner,
}

impl Per {
    /// The flow of a packet: equal for packets that agree in what `self` names, and for all
    /// that lack it (an ARP packet has no address) one digest that others do not have.
    ///
    /// SipHash-1-3: senders choose the headers, and a table of flows keyed by the digest
    /// is only as good as what they cannot make collide. Two flows share a digest with a
    /// probability of 2^-64, whatever the headers; they then share a queue. O(1).
    pub fn digest(self, headers: &Headers, origin: &Origin, key: &DigestKey) -> u64 {
        let mut hash = SipHasher13::new_with_keys(key.0[0], key.0[1]);
        let address = |hash: &mut SipHasher13, address: u128, len: u8| match headers.family {
            Family::V4 => hash.write_u64(1 << 32 | (address & mask(32, len.min(32))) as u64),
            Family::V6 => {
                let address = address & mask(128, len.min(128));
                hash.write_u64((address >> 64) as u64);
                hash.write_u64(address as u64);
            }
            Family::Other => {}
        };
        match self {
            Per::SourceIp => address(&mut hash, headers.source, 128),
            Per::DestinationIp => address(&mut hash, headers.destination, 128),
            Per::SourceSubnet(len) => address(&mut hash, headers.source, len),
            Per::DestinationSubnet(len) => address(&mut hash, headers.destination, len),
            Per::FiveTuple => {
                address(&mut hash, headers.source, 128);
                address(&mut hash, headers.destination, 128);
                if headers.fragment == Fragment::No {
                    let protocol = headers
                        .protocol
                        .map_or(0, |protocol| 1 << 8 | u64::from(protocol.0));
                    let ports = headers.ports.map_or(0, |ports| {
                        u64::from(ports.source) << 16 | u64::from(ports.destination)
                    });
                    hash.write_u64(protocol << 32 | ports);
                }
            }
            Per::Vlan => hash.write_u64(headers.vlan.map_or(0, |vlan| vlan.get().into())),
            Per::Dscp => hash.write_u64(match headers.family {
                Family::Other => u64::MAX,
                _ => headers.dscp.get().into(),
            }),
            Per::Owner => {
                if let Some(owner) = origin.owner {
                    hash.write_u64(u64::from(owner.uid) << 32 | u64::from(owner.gid));
                    hash.write_u64(owner.pid.into());
                }
            }
        }
        hash.finish()
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Per::SourceIp => f.write_str("source-ip"),
            Per::DestinationIp => f.write_str("destination-ip"),
            Per::FiveTuple => f.write_str("5-tuple"),
            Per::SourceSubnet(len) => write!(f, "source-subnet/{len}"),
            Per::DestinationSubnet(len) => write!(f, "destination-subnet/{len}"),
            Per::Vlan => f.write_str("vlan"),
            Per::Dscp => f.write_str("dscp"),
            Per::Owner => f.write_str("owner"),
        }
    }
}

/// Why a text does not say what a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "flows are per source-ip, destination-ip, 5-tuple, source-subnet/N, destination-subnet/N \
     (N from 1 to 128), vlan, dscp or owner"
)]
pub struct ParsePerError;

impl FromStr for Per {
    type Err = ParsePerError;

    /// Reads what [`Display`](fmt::Display) writes; `subnet/N` is the source's.
    fn from_str(text: &str) -> Result<Per, ParsePerError> {
        Ok(match text {
            "source-ip" => Per::SourceIp,
            "destination-ip" => Per::DestinationIp,
            "5-tuple" => Per::FiveTuple,
            "vlan" => Per::Vlan,
            "dscp" => Per::Dscp,
            "owner" => Per::Owner,
            _ => {
                let (side, len) = text.split_once('/').ok_or(ParsePerError)?;
                let len = match len.parse() {
                    Ok(len @ 1..=128) => len,
                    _ => return Err(ParsePerError),
                };
                match side {
                    "subnet" | "source-subnet" => Per::SourceSubnet(len),
                    "destination-subnet" => Per::DestinationSubnet(len),
                    _ => return Err(ParsePerError),
                }
            }
        })
    }
}
