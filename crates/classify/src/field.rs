//! The fields that rules test, each as a type that holds only valid values.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use fairlane_wire::Family;

/// Ports from a first to a last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// All ports: asks only that a packet has some.
    pub const ALL: PortRange = PortRange {
        first: 0,
        last: u16::MAX,
    };

    /// Returns the ports from `first` to `last`, or `None` where the first is beyond the last.
    pub const fn new(first: u16, last: u16) -> Option<PortRange> {
        if first <= last {
            Some(PortRange { first, last })
        } else {
            None
        }
    }

    /// Returns the lowest port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// Returns the highest port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Returns whether `port` is one of them.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> PortRange {
        PortRange {
            first: port,
            last: port,
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// Why a text is no range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePortsError {
    /// Not one or two numbers.
    #[error("ports are one number from 0 to 65535, or two such as 1000-2000")]
    NoNumber,
    /// The first is beyond the last.
    #[error("ports {first}-{last} go backwards; write {last}-{first}")]
    Backwards {
        /// As written first.
        first: u16,
        /// As written last.
        last: u16,
    },
}

impl FromStr for PortRange {
    type Err = ParsePortsError;

    /// Reads `5060` or `1000-2000`.
    fn from_str(text: &str) -> Result<PortRange, ParsePortsError> {
        let number = |text: &str| {
            let port = text.trim().parse::<u16>();
            port.map_err(|_| ParsePortsError::NoNumber)
        };
        let Some((first, last)) = text.split_once('-') else {
            return number(text).map(PortRange::from);
        };
        let (first, last) = (number(first)?, number(last)?);
        PortRange::new(first, last).ok_or(ParsePortsError::Backwards { first, last })
    }
}

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    v6: bool,
    len: u8,
    /// In the low 32 bits for IPv4, as in [`Headers`](fairlane_wire::Headers).
    address: u128,
}

impl Prefix {
    /// Returns the addresses whose first `len` bits are those of `address`. The other bits of
    /// `address` must be zero: a slip there would be a rule that matches something else.
    pub fn new(address: IpAddr, len: u8) -> Result<Prefix, ParsePrefixError> {
        let (v6, bits) = match address {
            IpAddr::V4(v4) => (false, u128::from(v4.to_bits())),
            IpAddr::V6(v6) => (true, v6.to_bits()),
        };
        let width = if v6 { 128 } else { 32 };
        if len > width {
            return Err(ParsePrefixError::TooLong { len, width });
        }
        let prefix = Prefix {
            v6,
            len,
            address: bits & mask(width, len),
        };
        if prefix.address == bits {
            Ok(prefix)
        } else {
            Err(ParsePrefixError::HostBits {
                address,
                len,
                nearest: prefix,
            })
        }
    }

    /// [`Family::V4`] or [`Family::V6`].
    pub const fn family(self) -> Family {
        if self.v6 { Family::V6 } else { Family::V4 }
    }

    /// Returns how many bits of the address are given.
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Returns whether no bit is given: all addresses of the family.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the lowest address; IPv4 in the low 32 bits.
    pub const fn first(self) -> u128 {
        self.address
    }

    /// Returns the highest address.
    pub const fn last(self) -> u128 {
        let width = if self.v6 { 128 } else { 32 };
        self.address | (mask(width, width) ^ mask(width, self.len))
    }

    /// Returns whether `address`, of a packet of `family`, is one of them.
    pub fn contains(self, family: Family, address: u128) -> bool {
        family == self.family() && self.first() <= address && address <= self.last()
    }
}

/// Returns the first `len` of `width` bits, in the low `width` bits of the number.
pub(crate) const fn mask(width: u8, len: u8) -> u128 {
    let all = u128::MAX >> (128 - width as u32);
    match all.checked_shr(len as u32) {
        Some(rest) => all ^ rest,
        None => all,
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.v6 {
            write!(f, "{}/{}", Ipv6Addr::from_bits(self.address), self.len)
        } else {
            let bits = self.address as u32;
            write!(f, "{}/{}", Ipv4Addr::from_bits(bits), self.len)
        }
    }
}

/// Why a text is no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePrefixError {
    /// Neither an address nor an address and a length.
    #[error("a prefix is an address, or an address and a length such as 10.0.0.0/8")]
    NoPrefix,
    /// More bits than an address has.
    #[error("a prefix of {len} bits is longer than an address, which has {width}")]
    TooLong {
        /// As written.
        len: u8,
        /// The address width of the family.
        width: u8,
    },
    /// The address has bits that the length leaves out.
    #[error("{address}/{len} has bits beyond its length; write {nearest}")]
    HostBits {
        /// As written.
        address: IpAddr,
        /// As written.
        len: u8,
        /// The same without those bits.
        nearest: Prefix,
    },
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    /// Reads `10.0.0.0/8`, `2001:db8::/32`, or an address alone.
    fn from_str(text: &str) -> Result<Prefix, ParsePrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParsePrefixError::NoPrefix)?;
        let width = if address.is_ipv6() { 128 } else { 32 };
        let len = match len {
            Some(len) => len.parse().map_err(|_| ParsePrefixError::NoPrefix)?,
            None => width,
        };
        Prefix::new(address, len)
    }
}
