//! Differentiated services code points (RFC 2474).

use core::fmt;
use core::str::FromStr;

use crate::names::{named, write_name};

/// A differentiated services code point, 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// The names that are read and written (RFC 2474, 2597, 3246, 5865, 8622). `cs0` is
    /// written for `default`.
    pub const NAMES: [(&'static str, u8); 24] = [
        ("cs0", 0),
        ("default", 0),
        ("le", 1),
        ("cs1", 8),
        ("af11", 10),
        ("af12", 12),
        ("af13", 14),
        ("cs2", 16),
        ("af21", 18),
        ("af22", 20),
        ("af23", 22),
        ("cs3", 24),
        ("af31", 26),
        ("af32", 28),
        ("af33", 30),
        ("cs4", 32),
        ("af41", 34),
        ("af42", 36),
        ("af43", 38),
        ("cs5", 40),
        ("voice-admit", 44),
        ("ef", 46),
        ("cs6", 48),
        ("cs7", 56),
    ];

    /// Returns a code point, or `None` above 63.
    pub const fn new(value: u8) -> Option<Dscp> {
        if value < 64 { Some(Dscp(value)) } else { None }
    }

    /// Returns the code point in a traffic class (IPv4: type of service).
    pub(crate) const fn of_traffic_class(byte: u8) -> Dscp {
        Dscp(byte >> 2)
    }

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &Dscp::NAMES, self.0, self.0)
    }
}

/// Why a text is no code point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a DSCP is a number from 0 to 63, or a name such as ef, af41, cs1, le")]
pub struct ParseDscpError;

impl FromStr for Dscp {
    type Err = ParseDscpError;

    /// Reads a name of [`Dscp::NAMES`], any case, or a number.
    fn from_str(text: &str) -> Result<Dscp, ParseDscpError> {
        named(&Dscp::NAMES, text)
            .or_else(|| text.parse().ok())
            .and_then(Dscp::new)
            .ok_or(ParseDscpError)
    }
}
