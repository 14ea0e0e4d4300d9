//! Hand-over of a running site to another process: a new version of the program takes over from the running one, and no
//! frame is lost, duplicated or reordered.
//!
//! ```text
//!  the new process                            the one that runs
//!  asks ───────────────────────────────────▶ changes nothing any more, forwards as before
//!       ◀─── configuration, grants, sockets ──
//!  makes all that it needs
//!  is ready ───────────────────────────────▶ receives nothing any more
//!       ◀──────────── where, and what waits ──
//!  sends that, in its classes
//!  has taken ──────────────────────────────▶ ends
//!  receives from there on
//! ```
//!
//! Both processes have the same sockets and read the same rings, one after the other; the kernel does not notice. Until
//! the new process confirms, the old one resumes where it was if the new one fails. Frames handed over by then are
//! lost, as with any process that fails.

pub(crate) mod give;
pub(crate) mod take;

use fairlane_core::Nanos;
use fairlane_io::packet::{Position, Shape};
use fairlane_runtime::bridge::{Came, Side};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Version of this protocol. A process rejects any other.
pub(crate) const VERSION: u32 = 1;

/// The longest message: configurations of 10,000 classes have some megabytes.
const LONGEST: u32 = 64 << 20;

/// Time limit for silence of either side while no frames are forwarded.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// The new process has all that it needs.
pub(crate) const READY: u8 = b'r';

/// It has taken all that was handed over.
const TAKEN: u8 = b't';

/// The first message of the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) pid: u32,
}

/// The answer to it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Refused(String),
    Given(Box<Given>),
}

/// The running site; its files follow. They are, for each device, its transmit and receive sockets and its note, if
/// any; the socket for requests to hand over; and [other state](HandoverExtra).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) pid: u32,
    /// The time of its clock, when the system's was so far.
    pub(crate) clock: u64,
    pub(crate) uptime: u64,
    pub(crate) config: String,
    /// The last known text of its file, and the number of changes that are not in it.
    pub(crate) file: String,
    #[serde(default)]
    pub(crate) unsaved: u64,
    pub(crate) names: [String; 2],
    pub(crate) rings: [Ring; 2],
    pub(crate) noted: [bool; 2],
    pub(crate) beside: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ring {
    blocks: usize,
    block_size: usize,
    place: usize,
}

impl From<Shape> for Ring {
    fn from(shape: Shape) -> Ring {
        Ring {
            blocks: shape.blocks,
            block_size: shape.block_size,
            place: shape.place,
        }
    }
}

impl From<Ring> for Shape {
    fn from(ring: Ring) -> Shape {
        Shape {
            blocks: ring.blocks,
            block_size: ring.block_size,
            place: ring.place,
        }
    }
}

/// Returns the monotonic time, which all processes share.
fn uptime() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(seconds * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Returns the result of `make` with the time at which it was made: the quickest of several attempts, as the one with
/// no preemption. `make` receives that time.
pub(crate) fn timed<T>(make: impl Fn(Nanos) -> T) -> (T, Nanos) {
    const LOOKS: usize = 20;
    let look = || {
        let before = uptime();
        let made = make(before);
        (uptime().since(before), made, before)
    };
    let quicker = |one: (Nanos, _, _), other: (Nanos, _, _)| match other.0 < one.0 {
        true => other,
        false => one,
    };
    let (_, made, at) = (1..LOOKS).fold(look(), |best, _| quicker(best, look()));
    (made, at)
}

pub(crate) fn send_message(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(&text)
}

pub(crate) fn receive_message<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Read as it arrives, regardless of the announced length.
    let mut text = Vec::new();
    stream.take(length.into()).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// State of a direction: its transmit and receive positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DirectionState {
    position: Position,
    /// The link is busy with sent packets until then.
    busy_until: Nanos,
    /// Egress there is temporarily unshaped.
    is_open: bool,
}

impl DirectionState {
    const BYTES: usize = 25;

    fn encode(self, into: &mut Vec<u8>) {
        let Position { block, at } = self.position;
        for number in [block as u64, at as u64, self.busy_until.0] {
            into.extend(number.to_be_bytes());
        }
        into.push(self.is_open.into());
    }

    fn decode(bytes: &[u8; DirectionState::BYTES]) -> DirectionState {
        let number = |at: usize| {
            let bytes = bytes[at..at + 8].try_into();
            u64::from_be_bytes(bytes.expect("eight bytes"))
        };
        let place = |number| usize::try_from(number).unwrap_or(usize::MAX);
        DirectionState {
            position: Position {
                block: place(number(0)),
                at: place(number(8)),
            },
            busy_until: Nanos(number(16)),
            is_open: bytes[24] != 0,
        }
    }
}

/// The header that precedes each frame's bytes; the last header has no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// The device that it leaves by.
    leaves_by: Side,
    came: Came,
    length: u32,
}

impl Header {
    const BYTES: usize = 14;
    /// Behind the last frame.
    const END: Header = Header {
        leaves_by: Side::Left,
        came: Came {
            at: Nanos::ZERO,
            losing: false,
        },
        length: 0,
    };

    fn encode(self) -> [u8; Header::BYTES] {
        let mut bytes = [0; Header::BYTES];
        bytes[0] = self.leaves_by as u8;
        bytes[1] = self.came.losing.into();
        bytes[2..6].copy_from_slice(&self.length.to_be_bytes());
        bytes[6..].copy_from_slice(&self.came.at.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Header::BYTES]) -> Header {
        let [side, losing, rest @ ..] = *bytes;
        let [length @ .., _, _, _, _, _, _, _, _] = rest;
        let [_, _, _, _, at @ ..] = rest;
        Header {
            leaves_by: match side {
                0 => Side::Left,
                _ => Side::Right,
            },
            came: Came {
                at: Nanos(u64::from_be_bytes(at)),
                losing: losing != 0,
            },
            length: u32::from_be_bytes(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let stand = DirectionState {
            position: Position {
                block: 127,
                at: 1_600,
            },
            busy_until: Nanos(u64::MAX - 7),
            is_open: true,
        };
        let mut bytes = Vec::new();
        stand.encode(&mut bytes);
        assert_eq!(DirectionState::decode(&bytes.try_into().unwrap()), stand);
        let header = Header {
            leaves_by: Side::Right,
            came: Came {
                at: Nanos(1 << 60),
                losing: true,
            },
            length: 65_557,
        };
        assert_eq!(Header::decode(&header.encode()), header);
        assert_eq!(Header::decode(&Header::END.encode()), Header::END);
    }

    #[test]
    fn a_message_that_cannot_be_is_refused_before_it_is_held() {
        let (near, far) = UnixStream::pair().unwrap();
        send_message(&near, &Hello { version: 7, pid: 1 }).unwrap();
        assert_eq!(receive_message::<Hello>(&far).unwrap().version, 7);
        (&near).write_all(&u32::MAX.to_be_bytes()).unwrap();
        let refused = receive_message::<Hello>(&far).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        (&near).write_all(b"\0\0\0\x02[]").unwrap();
        assert!(receive_message::<Hello>(&far).is_err());
        (&near).write_all(b"\0\0\0\x09[]").unwrap();
        drop(near);
        assert!(receive_message::<Hello>(&far).is_err());
    }
}
