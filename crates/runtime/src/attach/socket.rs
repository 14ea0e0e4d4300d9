//! The sockets, and what both sides send.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socket_with,
};

use super::message::LONGEST;

/// Handles that arrive with a message.
const MOST_HANDLES: usize = 2;

/// Messages with boundaries, in order, and an end that is seen: `SOCK_SEQPACKET`.
pub(super) fn new(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Sends a message, with handles perhaps, if there is room for it at once.
pub(super) fn send(socket: &OwnedFd, message: &[u8], handles: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(handles));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(message)], &mut control, flags)?;
    Ok(())
}

/// Receives a message and perhaps handles; waits as long as the socket's timeout allows. An empty
/// message means that the peer is gone.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut message = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut message)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    message.truncate(received.bytes);
    let handles = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(handles) => Some(handles.collect()),
        _ => None,
    });
    Ok((message, handles.unwrap_or_default()))
}

/// Returns whether the peer is gone, as far as is known of one that sends nothing.
pub(super) fn has_ended(socket: &OwnedFd) -> bool {
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(socket, &mut byte, flags) {
        Ok((read, _)) => read == 0,
        Err(error) => error != Errno::AGAIN && error != Errno::INTR,
    }
}
