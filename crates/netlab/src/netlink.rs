//! Requests to the kernel, and its answers.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// A socket to the kernel, of the namespace of the thread that opens it. It stays with that
/// namespace whatever thread uses it.
pub(crate) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Makes one request and waits for its acknowledgement; returns what the kernel sent before it.
pub(crate) fn request<I>(socket: &Socket, request: I, flags: u16) -> io::Result<Vec<I>>
where
    I: NetlinkSerializable + NetlinkDeserializable,
    NetlinkPayload<I>: From<I>,
{
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut answers = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let answer = NetlinkMessage::<I>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            rest = rest
                .get((answer.header.length as usize).next_multiple_of(4)..)
                .unwrap_or_default();
            match answer.payload {
                NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::Done(_) => return Ok(answers),
                _ => {}
            }
        }
    }
}
