//! Datagrams: bytes with the address of the other side.

use std::net::SocketAddr;

/// The longest payload, in bytes, that UDP carries over IPv4 and IPv6 alike.
///
/// IPv4's length field of 16 bits covers its own header of 20 bytes and UDP's of 8. IPv6 does not
/// count its own and carries 65,527.
pub const MAX_DATAGRAM: usize = 65_535 - 20 - 8;

/// A payload and a peer: a packet that can be sent as one datagram.
///
/// ```
/// use fairlane_io::{Backend, Frame, UdpBackend};
/// use std::collections::VecDeque;
/// use std::net::{SocketAddr, UdpSocket};
///
/// /// Of one's own type: neither is copied to be sent.
/// struct Request {
///     to: SocketAddr,
///     text: &'static str,
/// }
///
/// impl Frame for Request {
///     fn bytes(&self) -> &[u8] {
///         self.text.as_bytes()
///     }
///
///     fn peer(&self) -> SocketAddr {
///         self.to
///     }
/// }
///
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let mut socket = UdpBackend::<Request>::bind("127.0.0.1:0".parse().unwrap())?;
/// let mut batch = VecDeque::from([Request { to: server.local_addr()?, text: "who is next?" }]);
/// assert_eq!(socket.transmit(&mut batch)?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Frame {
    /// Returns the payload: at most [`MAX_DATAGRAM`] bytes, or the backend refuses it. May be
    /// empty.
    fn bytes(&self) -> &[u8];
    /// Returns where it goes.
    fn peer(&self) -> SocketAddr;
}

/// A payload and its peer: the source of a received datagram, the destination of a transmitted one.
///
/// Transmitting a received datagram therefore answers its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The other side.
    pub peer: SocketAddr,
    /// The payload.
    pub bytes: Vec<u8>,
}

impl Frame for Datagram {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }
}
