//! Headers and rules as words of bits, for classifying packets where this crate cannot run: before the kernel
//! delivers them, for example.

use crate::field::mask;
use crate::pattern::{
    DESTINATION_PORT, DSCP, HAS_PORTS, HAS_PROTOCOL, PROTOCOL, Pattern, SOURCE_PORT, V4, V6, VLAN,
    key, set_addresses,
};
use crate::{Origin, Per};
use fairlane_wire::{Family, Headers};

/// Words that the headers of a packet are.
pub const WORDS: usize = V6;

const LINK_CONTROL: u64 = 1 << 4;
/// The bits of a MAC address.
const MAC: u64 = (1 << 48) - 1;

/// A rule's conditions on the [`words`](words()) of a packet of one family: `value` under `mask`, and both
/// ports within their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The bits to test; of a range of ports, those in which its ends agree.
    pub mask: [u64; WORDS],
    /// Required values of the masked bits; zero elsewhere.
    pub value: [u64; WORDS],
    /// First and last.
    pub source_port: (u16, u16),
    /// First and last.
    pub destination_port: (u16, u16),
}

impl Asked {
    /// Matches link-layer control, in any family.
    pub const LINK_CONTROL: Asked = Asked {
        mask: [LINK_CONTROL, 0, 0, 0, 0],
        value: [LINK_CONTROL, 0, 0, 0, 0],
        source_port: (0, u16::MAX),
        destination_port: (0, u16::MAX),
    };
}

impl<const N: usize> From<&Pattern<N>> for Asked {
    /// Converts a pattern without conditions on the origin.
    fn from(pattern: &Pattern<N>) -> Self {
        let wide = |words: &[u64; N]| {
            let mut wide = [0; WORDS];
            for (to, &word) in wide.iter_mut().zip(words) {
                *to = word;
            }
            wide
        };
        Asked {
            mask: wide(&pattern.mask),
            value: wide(&pattern.value),
            source_port: pattern.source_port,
            destination_port: pattern.destination_port,
        }
    }
}

/// Returns the words of a packet's headers that rules test. The first word, from the highest bit:
///
/// | bits | |
/// | --- | --- |
/// | 63 to 48 | source port |
/// | 47 to 32 | destination port |
/// | 31 to 24 | protocol |
/// | 23 to 18 | DSCP |
/// | 17 to 6 | VLAN, 0 for none |
/// | 4 | it is [link-layer control](Headers::link_control) |
/// | 2 | it is a fragment |
/// | 1 | there is a protocol |
/// | 0 | there are ports |
///
/// All others are zero, as are absent fields. Then the addresses: of IPv4 the source in the high half of the
/// second word and the destination in the low one; of IPv6 two words each, the source before the destination.
/// Of a frame that is not IP, the MAC addresses of source and destination in the second and the third word.
pub fn words(headers: &Headers) -> [u64; WORDS] {
    let origin = Origin::default();
    let mut words = match headers.family {
        Family::V6 => key(headers, &origin),
        Family::V4 => {
            let [first, addresses] = key::<V4>(headers, &origin);
            [first, addresses, 0, 0, 0]
        }
        Family::Other => {
            let [first, _] = key::<V4>(headers, &origin);
            [
                first,
                headers.source as u64,
                headers.destination as u64,
                0,
                0,
            ]
        }
    };
    words[0] |= u64::from(headers.link_control) * LINK_CONTROL;
    words
}

impl Per {
    /// Returns the bits of the [`words`](words()) of a packet of a family that distinguish its flows. None
    /// for fields outside the headers.
    ///
    /// Flows are those of [`digest`](Self::digest), except for fragments: first ones are distinguished by
    /// their ports.
    pub fn words(self, family: Family) -> [u64; WORDS] {
        let mut bits = [0; WORDS];
        let addresses = |bits: &mut [u64; WORDS], source: u8, destination: u8| match family {
            Family::V4 => {
                let mut narrow = [0; V4];
                let [source, destination] = [source, destination].map(|len| mask(32, len.min(32)));
                set_addresses(&mut narrow, source, destination);
                bits[..V4].copy_from_slice(&narrow);
            }
            Family::V6 => set_addresses(bits, mask(128, source), mask(128, destination)),
            Family::Other => {
                let whole = |len: u8| if len == 128 { MAC } else { 0 };
                (bits[1], bits[2]) = (whole(source), whole(destination));
            }
        };
        match self {
            Per::SourceIp => addresses(&mut bits, 128, 0),
            Per::DestinationIp => addresses(&mut bits, 0, 128),
            Per::SourceSubnet(len) => addresses(&mut bits, len, 0),
            Per::DestinationSubnet(len) => addresses(&mut bits, 0, len),
            Per::FiveTuple => {
                if family != Family::Other {
                    addresses(&mut bits, 128, 128);
                }
                bits[0] = 0xffff << SOURCE_PORT
                    | 0xffff << DESTINATION_PORT
                    | 0xff << PROTOCOL
                    | HAS_PROTOCOL
                    | HAS_PORTS;
            }
            Per::Vlan => bits[0] = 0xfff << VLAN,
            Per::Dscp => bits[0] = 0x3f << DSCP,
            Per::Owner => {}
        }
        bits
    }
}
