//! The messages on the socket.
//!
//! ```text
//! client to daemon   hello      magic, version
//! daemon to client   attached   magic, version, 0, slots, longest packet, weight, class name
//!                               with two handles: of the shared memory, and of the bell, an eventfd
//!                    refused    magic, version, 1, a sentence
//! ```
//!
//! Numbers have 32 bits, least significant byte first. Other parts may change with the version, but
//! the start of a hello and a rejection stay as they are, so that old and new programs can reject
//! each other.

use fairlane_core::{Length, Weight};

const MAGIC: &[u8; 8] = b"fairlane";

/// Of the messages and of the shared memory.
pub(super) const VERSION: u32 = 1;

const ATTACHED: u32 = 0;
const REFUSED: u32 = 1;

/// No message is longer; a sentence is cut.
pub(super) const LONGEST: usize = 512;

/// The grant of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) slots: u32,
    pub(super) max_length: Length,
    pub(super) weight: Weight,
    pub(super) class: String,
}

/// The daemon's answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Attached(Grant),
    Refused(String),
}

pub(super) fn hello() -> Vec<u8> {
    start(VERSION)
}

/// Returns the version of a hello, if it is one.
pub(super) fn read_hello(message: &[u8]) -> Option<u32> {
    let (version, rest) = read_start(message)?;
    (rest.is_empty() || version != VERSION).then_some(version)
}

impl Reply {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut message = start(VERSION);
        match self {
            Reply::Attached(grant) => {
                let (length, weight) = (grant.max_length.get(), grant.weight.get());
                for number in [ATTACHED, grant.slots, length, weight] {
                    message.extend(number.to_le_bytes());
                }
                message.extend(grant.class.as_bytes());
            }
            Reply::Refused(sentence) => {
                message.extend(REFUSED.to_le_bytes());
                message.extend(sentence.as_bytes());
            }
        }
        message.truncate(LONGEST);
        message
    }

    /// Returns the reply, or a sentence on why it cannot be understood.
    pub(super) fn read(message: &[u8]) -> Result<Self, String> {
        let broken = || "the server at this socket uses another protocol".to_owned();
        let (version, mut rest) = read_start(message).ok_or_else(broken)?;
        let verdict = read_number(&mut rest).ok_or_else(broken)?;
        if verdict == REFUSED {
            return Ok(Reply::Refused(String::from_utf8_lossy(rest).into_owned()));
        }
        if version != VERSION {
            return Err(format!(
                "the daemon speaks version {version} of the protocol, and this client {VERSION}"
            ));
        }
        let mut grant = || {
            let slots = read_number(&mut rest)?;
            let max_length = Length::new(read_number(&mut rest)?)?;
            let weight = Weight::new(read_number(&mut rest)?)?;
            let class = str::from_utf8(rest).ok()?.to_owned();
            Some(Reply::Attached(Grant {
                slots,
                max_length,
                weight,
                class,
            }))
        };
        match verdict {
            ATTACHED => grant().ok_or_else(broken),
            _ => Err(broken()),
        }
    }
}

fn start(version: u32) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    message.extend(version.to_le_bytes());
    message
}

fn read_start(message: &[u8]) -> Option<(u32, &[u8])> {
    let mut rest = message.strip_prefix(MAGIC)?;
    Some((read_number(&mut rest)?, rest))
}

fn read_number(from: &mut &[u8]) -> Option<u32> {
    let (number, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u32::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Reply {
        Reply::Attached(Grant {
            slots: 256,
            max_length: Length::new(1514).unwrap(),
            weight: Weight::new(1_000_000).unwrap(),
            class: "voice".into(),
        })
    }

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        for reply in [grant(), Reply::Refused("no room".into())] {
            assert_eq!(Reply::read(&reply.write()), Ok(reply));
        }
    }

    #[test]
    fn a_reply_that_was_cut_off_is_never_a_grant() {
        let message = grant().write();
        for length in 0..message.len() - "voice".len() {
            assert!(Reply::read(&message[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_hello_tells_its_version_whatever_else_it_says() {
        assert_eq!(read_hello(&hello()), Some(VERSION));
        let mut newer = start(VERSION + 1);
        newer.push(0);
        assert_eq!(read_hello(&newer), Some(VERSION + 1));
        let mut longer = hello();
        longer.push(0);
        assert_eq!(read_hello(&longer), None);
        assert_eq!(read_hello(b"GET / HTTP/1.1"), None);
        assert_eq!(read_hello(b""), None);
    }

    #[test]
    fn a_refusal_of_another_version_is_understood() {
        let mut message = start(VERSION + 1);
        message.extend(REFUSED.to_le_bytes());
        message.extend(b"too old");
        assert_eq!(Reply::read(&message), Ok(Reply::Refused("too old".into())));
    }
}
