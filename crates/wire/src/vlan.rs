//! VLAN tags (IEEE 802.1Q, 802.1ad): a priority, a VLAN and the type of the next header.

use core::fmt;
use core::num::NonZeroU16;

use crate::build::{Announced, Build, Next, is_complete};
use crate::bytes::{take, u16_at};
use crate::{Header, Malformed};

/// Bytes of a tag behind the type that announces it.
pub const LENGTH: usize = 4;
/// The offset of the type of the next header.
pub const TYPE: usize = 2;
/// The bits of the first two bytes that name the VLAN.
pub const ID: u16 = 0x0fff;
/// Tags that are followed; a frame with more is of no known network protocol.
pub const MOST: usize = 4;
/// The type of a customer's tag, 802.1Q.
pub const CUSTOMER: u16 = 0x8100;
/// The type of a provider's tag, 802.1ad.
pub const SERVICE: u16 = 0x88a8;
/// The type of a provider's tag before 802.1ad had one of its own.
pub const SERVICE_OLD: u16 = 0x9100;
/// The types of all tags.
pub const TYPES: [u16; 3] = [CUSTOMER, SERVICE, SERVICE_OLD];

impl Header {
    /// An 802.1Q or 802.1ad tag, 4 bytes.
    pub const VLAN: Header = Header(&"a VLAN tag");
}

/// Returns whether a header of this type is a tag.
#[inline]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, CUSTOMER | SERVICE | SERVICE_OLD)
}

/// Returns the VLAN, the type of the next header, and the bytes from that header on.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Result<(Option<VlanId>, u16, &[u8]), Malformed> {
    let (tag, rest) = take::<LENGTH>(bytes, Header::VLAN)?;
    Ok((VlanId::new(u16_at(tag, 0) & ID), u16_at(tag, TYPE), rest))
}

/// A VLAN, 1 to 4095.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(NonZeroU16);

impl VlanId {
    /// Returns a VLAN, or `None` outside 1 to 4095.
    pub const fn new(id: u16) -> Option<VlanId> {
        match NonZeroU16::new(id) {
            Some(value) if id < 4096 => Some(VlanId(value)),
            _ => None,
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Build {
    /// Writes a customer's tag.
    #[must_use]
    pub fn vlan(self, id: u16) -> Build {
        self.tag(CUSTOMER, id)
    }

    /// Writes a tag of this type, with its priority and VLAN.
    #[must_use]
    pub fn tag(self, ethertype: u16, tag: u16) -> Build {
        let [high, low] = tag.to_be_bytes();
        let announced = Announced {
            ethertype,
            ..Announced::default()
        };
        let next = Some(Next::Ethertype(TYPE));
        self.header(announced, &[high, low, 0, 0], next, is_complete)
    }
}
