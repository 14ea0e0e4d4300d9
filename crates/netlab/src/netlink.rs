//! Requests to the kernel, and its answers, as linux/netlink.h and linux/rtnetlink.h have them.
//!
//! Everything is in the machine's byte order. A message is a header of 16 bytes, a fixed part that
//! depends on its type, and attributes: length (2 bytes, of these four and the value), kind (2),
//! value, and zeros up to a multiple of four.

use std::io;

use netlink_sys::{Socket, SocketAddr};

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
/// Make what is not there yet, and fail if it is.
pub(crate) const CREATE: u16 = 0x400 | 0x200;

const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Says of an attribute that it holds others.
const NESTED: u16 = 1 << 15;

const HEADER: usize = 16;

/// A request without its header, or a part of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// With its fixed part.
    pub(crate) fn new(fixed: impl Into<Vec<u8>>) -> Self {
        Self(fixed.into())
    }

    /// One attribute more.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = (value.len() + 4) as u16;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// The same, whose value is a number.
    pub(crate) fn with_number(self, kind: u16, number: u32) -> Self {
        self.with(kind, &number.to_ne_bytes())
    }

    /// The same, whose value is a text.
    pub(crate) fn with_text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// The same, which holds what `inner` has.
    pub(crate) fn with_nested(self, kind: u16, inner: &Message) -> Self {
        self.with(kind | NESTED, &inner.0)
    }
}

/// What the kernel answered, without its header.
#[derive(Clone, Debug)]
pub(crate) struct Answer(Vec<u8>);

impl Answer {
    /// The number at `place` of the fixed part.
    pub(crate) fn number(&self, place: usize) -> Option<u32> {
        number(&self.0, place)
    }

    /// The value of its first attribute of a kind, behind a fixed part of so many bytes.
    pub(crate) fn attribute(&self, fixed: usize, kind: u16) -> Option<&[u8]> {
        let mut rest = self.0.get(fixed..)?;
        loop {
            let length = usize::from(short(rest, 0)?);
            let value = rest.get(4..length)?;
            if short(rest, 2)? & !NESTED == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }
}

fn short(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

fn number(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

/// The eight bytes at `place`, as a number.
pub(crate) fn long(bytes: &[u8], place: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

/// A socket to the kernel, of the namespace of the thread that opens it. It stays with that
/// namespace whatever thread uses it.
pub(crate) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Makes one request and waits for its acknowledgement; returns what the kernel sent before it.
pub(crate) fn request(
    socket: &Socket,
    kind: u16,
    flags: u16,
    message: &Message,
) -> io::Result<Vec<Answer>> {
    let length = (HEADER + message.0.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | ACK | flags).to_ne_bytes());
    // Number and sender: one request at a time needs neither.
    bytes.extend([0; 8]);
    bytes.extend(&message.0);
    socket.send(&bytes, 0)?;

    let mut answers = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let torn = || io::Error::from(io::ErrorKind::InvalidData);
            let length = number(rest, 0).ok_or_else(torn)? as usize;
            let kind = short(rest, 4).ok_or_else(torn)?;
            let body = rest.get(HEADER..length).ok_or_else(torn)?;
            match kind {
                // An error of 0 is the acknowledgement.
                ERROR => match number(body, 0).ok_or_else(torn)? as i32 {
                    0 => return Ok(answers),
                    code => return Err(io::Error::from_raw_os_error(-code)),
                },
                DONE => return Ok(answers),
                _ => answers.push(Answer(body.to_vec())),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_was_written_is_found_behind_others() {
        let inner = Message::default().with_number(7, 0x01020304);
        let message = Message::new([9; 8])
            .with_text(1, "abcd")
            .with_nested(2, &inner);
        assert_eq!(message.0.len(), 8 + 12 + 12);
        let answer = Answer(message.0);
        assert_eq!(answer.attribute(8, 1), Some(&b"abcd\0"[..]));
        let nested = Answer(answer.attribute(8, 2).unwrap().to_vec());
        assert_eq!(
            nested.attribute(0, 7),
            Some(&0x01020304_u32.to_ne_bytes()[..])
        );
        assert_eq!(answer.attribute(8, 3), None);
        // Bytes that are no attribute end the search.
        assert_eq!(Answer(vec![0; 12]).attribute(8, 1), None);
    }
}
