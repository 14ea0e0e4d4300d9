//! Which flow a packet belongs to, as a number.

use core::fmt;
use core::str::FromStr;

use crate::Origin;
use crate::field::mask;
use fairlane_wire::{Family, Fragment, Headers};

/// A secret that keeps a sender from choosing colliding flows: 128 random bits that the caller
/// draws at start and keeps private.
#[derive(Clone, Copy)]
pub struct DigestKey(pub [u64; 2]);

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

/// SipHash-1-3 (Aumasson and Bernstein, INDOCRYPT 2012) of whole words, without the buffer that
/// anything shorter would need.
pub(crate) struct SipHash13 {
    state: [u64; 4],
    words: u64,
}

impl SipHash13 {
    #[inline]
    pub(crate) fn new(DigestKey([first, second]): &DigestKey) -> Self {
        let state = [
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ];
        SipHash13 { state, words: 0 }
    }

    #[inline]
    fn round(&mut self) {
        let [a, b, c, d] = self.state;
        let (a, c) = (a.wrapping_add(b), c.wrapping_add(d));
        let (b, d) = (b.rotate_left(13) ^ a, d.rotate_left(16) ^ c);
        let (c, a) = (c.wrapping_add(b), a.rotate_left(32).wrapping_add(d));
        let (b, d) = (b.rotate_left(17) ^ c, d.rotate_left(21) ^ a);
        self.state = [a, b, c.rotate_left(32), d];
    }

    #[inline]
    pub(crate) fn write(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.state[0] ^= word;
        self.words += 1;
    }

    #[inline]
    pub(crate) fn finish(mut self) -> u64 {
        // The last block: the low byte of the number of bytes, above none that are left.
        self.write((8 * self.words) << 56);
        self.state[2] ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        self.state.into_iter().fold(0, |all, part| all ^ part)
    }
}

/// The fields that the packets of one flow share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Per {
    /// The source address; of an Ethernet frame that is not IP, its source MAC address.
    SourceIp,
    /// The destination address, as above.
    DestinationIp,
    /// Addresses, protocol and ports, in this direction: replies are another flow.
    ///
    /// All fragments between two addresses, including first ones, are one flow: later ones have no
    /// ports, and so stay in order behind the first. (With a flow for each datagram, a sender of
    /// fragments would get a share for each.) Only an unfragmented datagram may overtake a
    /// fragmented one.
    FiveTuple,
    /// This many leading bits of the source address; of IPv4 at most 32.
    SourceSubnet(u8),
    /// This many leading bits of the destination address; of IPv4 at most 32.
    DestinationSubnet(u8),
    /// The outermost VLAN.
    Vlan,
    /// The differentiated services code point.
    Dscp,
    /// User, group and process that sent it.
    Owner,
}

impl Per {
    /// Returns the digest of a packet's flow: equal for packets that agree in the fields of `self`,
    /// and a separate one for all packets that lack them (an ARP packet has no ports).
    ///
    /// SipHash-1-3: senders choose the headers, and a table of flows keyed by the digest must
    /// resist collisions that they construct. Two flows share a digest with a probability of 2^-64,
    /// whatever the headers; they then share a queue. O(1).
    pub fn digest(self, headers: &Headers, origin: &Origin, key: &DigestKey) -> u64 {
        let mut hash = SipHash13::new(key);
        let address = |hash: &mut SipHash13, address: u128, len: u8| match headers.family {
            Family::V4 => hash.write(1 << 32 | (address & mask(32, len.min(32))) as u64),
            Family::V6 => {
                let address = address & mask(128, len.min(128));
                hash.write((address >> 64) as u64);
                hash.write(address as u64);
            }
            // No IPv4 address has this bit, and an IPv6 address is two words.
            Family::Other if len == 128 => hash.write(1 << 48 | address as u64),
            Family::Other => {}
        };
        match self {
            Per::SourceIp => address(&mut hash, headers.source, 128),
            Per::DestinationIp => address(&mut hash, headers.destination, 128),
            Per::SourceSubnet(len) => address(&mut hash, headers.source, len),
            Per::DestinationSubnet(len) => address(&mut hash, headers.destination, len),
            Per::FiveTuple => {
                if headers.family != Family::Other {
                    address(&mut hash, headers.source, 128);
                    address(&mut hash, headers.destination, 128);
                }
                if headers.fragment == Fragment::No {
                    let protocol = headers
                        .protocol
                        .map_or(0, |protocol| 1 << 8 | u64::from(protocol.0));
                    let ports = headers.ports.map_or(0, |ports| {
                        u64::from(ports.source) << 16 | u64::from(ports.destination)
                    });
                    hash.write(protocol << 32 | ports);
                }
            }
            Per::Vlan => hash.write(headers.vlan.map_or(0, |vlan| vlan.get().into())),
            Per::Dscp => hash.write(match headers.family {
                Family::Other => u64::MAX,
                _ => headers.dscp.get().into(),
            }),
            Per::Owner => {
                if let Some(owner) = origin.owner {
                    hash.write(u64::from(owner.uid) << 32 | u64::from(owner.gid));
                    hash.write(owner.pid.into());
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

/// An invalid definition of flows.
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

#[cfg(test)]
mod tests {
    use core::hash::Hasher;

    use siphasher::sip::SipHasher13;

    use super::*;

    #[test]
    fn whole_words_hash_as_their_bytes_do() {
        let key = DigestKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        for words in 0..40_u64 {
            let mut ours = SipHash13::new(&key);
            let mut theirs = SipHasher13::new_with_keys(key.0[0], key.0[1]);
            for word in (0..words).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                ours.write(word);
                theirs.write_u64(word);
            }
            assert_eq!(ours.finish(), theirs.finish(), "{words} words");
        }
    }
}
