//! Requests to the kernel and its answers, as linux/netlink.h and linux/rtnetlink.h define them. Linux only.
//!
//! Everything is in the machine's byte order. A message is a header of 16 bytes, a fixed part that
//! depends on its type, and attributes: length (2 bytes, of these four and the value), kind (2),
//! value, and zeros up to a multiple of four.
//!
//! ```
//! use fairlane_netlink::{DUMP, Message, Protocol, Socket};
//!
//! // RTM_GETLINK with a struct ifinfomsg of zeros: all interfaces of this namespace.
//! let socket = Socket::open(Protocol::ROUTE)?;
//! let interfaces = socket.request(18, DUMP, &Message::new([0; 16]))?;
//! // IFLA_IFNAME.
//! let names = interfaces.iter().filter_map(|it| it.attribute(16, 3));
//! assert!(names.into_iter().any(|name| name == b"lo\0"));
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with,
};

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
/// Asks for a new object: the request fails if there is one already.
pub const CREATE: u16 = 0x400 | 0x200;
/// Asks for an object: it replaces the one that is there.
pub const REPLACE: u16 = 0x400 | 0x100;
/// Asks for another object next to those that are there: the request fails if one of them is the same.
pub const APPEND: u16 = 0x400 | 0x800;
/// Asks for all objects of a kind.
pub const DUMP: u16 = 0x300;

const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Marks an attribute that holds others.
const NESTED: u16 = 1 << 15;

const HEADER: usize = 16;

/// Bytes of the longest datagram that the kernel sends.
const LONGEST: usize = 1 << 16;

/// A request without its header, or a part of one.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Begins a message with its fixed part.
    pub fn new(fixed: impl Into<Vec<u8>>) -> Self {
        Self(fixed.into())
    }

    /// Returns its bytes: the fixed part and the attributes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends an attribute.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = (value.len() + 4) as u16;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends an attribute whose value is a number.
    pub fn with_number(self, kind: u16, number: u32) -> Self {
        self.with(kind, &number.to_ne_bytes())
    }

    /// Appends an attribute whose value is a text.
    pub fn with_text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that holds those of `inner`.
    pub fn with_nested(self, kind: u16, inner: &Message) -> Self {
        self.with(kind | NESTED, &inner.0)
    }
}

/// An answer of the kernel, without its header.
#[derive(Clone, Debug)]
pub struct Answer(Vec<u8>);

impl Answer {
    /// Makes the answer of these bytes, as [`bytes`](Self::bytes) returned them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns kind and value of each attribute behind a fixed part of `fixed` bytes, in order.
    pub fn attributes(&self, fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
        attributes(self.0.get(fixed..).unwrap_or_default())
    }

    /// Returns the number at `place` of the fixed part.
    pub fn number(&self, place: usize) -> Option<u32> {
        number(&self.0, place)
    }

    /// Returns the value of the first attribute of the kind `inner` in its first attribute of the kind `outer`.
    pub fn nested(&self, fixed: usize, outer: u16, inner: u16) -> Option<&[u8]> {
        attribute(self.attribute(fixed, outer)?, inner)
    }

    /// Returns the value of its first attribute of a kind, behind a fixed part of `fixed` bytes.
    pub fn attribute(&self, fixed: usize, kind: u16) -> Option<&[u8]> {
        attribute(self.0.get(fixed..)?, kind)
    }
}

/// Returns the value of the first attribute of a kind among these.
fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = attributes(bytes);
    all.find(|&(other, _)| other == kind)
        .map(|(_, value)| value)
}

/// Kinds and values of attributes, up to bytes that are none.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(short(rest, 0)?);
        let value = rest.get(4..length)?;
        let kind = short(rest, 2)? & !NESTED;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn short(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

fn number(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

/// Returns the eight bytes at `place` as a number.
pub fn long(bytes: &[u8], place: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(place..)?.first_chunk()?))
}

/// Which part of the kernel answers.
#[derive(Clone, Copy, Debug)]
pub struct Protocol(Option<rustix::net::Protocol>);

impl Protocol {
    /// Interfaces, addresses and routes: 0, which is every family's first protocol.
    pub const ROUTE: Protocol = Protocol(None);
    /// Families that are known by name, such as ethtool.
    pub const GENERIC: Protocol = Protocol(Some(netlink::GENERIC));
}

/// A socket to the kernel, of the namespace of the thread that opens it. It stays with that
/// namespace, whichever thread uses it.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket for requests.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(protocol: Protocol) -> io::Result<Socket> {
        Socket::with(protocol, 0, SocketFlags::empty())
    }

    /// Opens a socket that receives the events of these groups, a bit each (`RTMGRP_..`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn subscribe(protocol: Protocol, groups: u32) -> io::Result<Socket> {
        Socket::with(protocol, groups, SocketFlags::NONBLOCK)
    }

    fn with(protocol: Protocol, groups: u32, flags: SocketFlags) -> io::Result<Socket> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | flags,
            protocol.0,
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Socket(socket))
    }

    /// Discards the events of a [subscription](Self::subscribe); returns whether there were any. Events
    /// that the kernel had no space for count.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn take_events(&self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match recv(&self.0, &mut [0; 1][..], RecvFlags::empty()) {
                Ok(_) => any = true,
                Err(error) if error == rustix::io::Errno::AGAIN => return Ok(any),
                Err(error) if error == rustix::io::Errno::NOBUFS => any = true,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes one request and waits for its acknowledgement; returns the messages before it.
    ///
    /// # Errors
    ///
    /// The kernel's answer, or the system's.
    pub fn request(&self, kind: u16, flags: u16, message: &Message) -> io::Result<Vec<Answer>> {
        let length = (HEADER + message.0.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((REQUEST | ACK | flags).to_ne_bytes());
        // Number and sender: one request at a time needs neither.
        bytes.extend([0; 8]);
        bytes.extend(&message.0);
        send(&self.0, &bytes, SendFlags::empty())?;

        let mut answers = Vec::new();
        let mut buffer = vec![0; LONGEST];
        loop {
            let (_, length) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..length];
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
