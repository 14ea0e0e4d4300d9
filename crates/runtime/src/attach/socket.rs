//! The sockets: where the daemon listens, and what both sides send.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fairlane_io::with_umask;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recv, recvmsg, sendmsg, socket_with,
};

use super::message::LONGEST;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 128;

/// Handles that come with a message.
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

/// Receives a message and perhaps handles; waits as long as the socket's timeout allows. Nothing
/// means that the other side is gone.
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

/// Whether the other side is gone, as far as can be told from one that sends nothing.
pub(super) fn has_ended(socket: &OwnedFd) -> bool {
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(socket, &mut byte, flags) {
        Ok((read, _)) => read == 0,
        Err(error) => error != Errno::AGAIN && error != Errno::INTR,
    }
}

/// Why there is no listening at a path.
#[derive(Debug)]
pub(super) enum BindError {
    InUse,
    NotASocket,
    Io(io::Error),
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        BindError::Io(error)
    }
}

impl From<Errno> for BindError {
    fn from(error: Errno) -> Self {
        BindError::Io(error.into())
    }
}

/// A socket that listens at a path, and takes its file away when it goes.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and number of the socket's file.
    file: (u64, u64),
}

impl Listener {
    /// Takes the place of a socket that nobody listens at any more. Two daemons that start at the
    /// same moment may both find such a one: the later takes the path from the earlier.
    pub(super) fn bind(path: &Path, mode: u32) -> Result<Self, BindError> {
        let address = SocketAddrUnix::new(path)?;
        let socket = new(SocketFlags::NONBLOCK)?;
        // What is made from here on is made with the mode asked for. To change it afterwards would
        // be to follow a link that was put there meanwhile.
        with_umask(!mode & 0o777, || {
            bind_at(&socket, path, &address)?;
            // At once: who sees the file may connect.
            listen(&socket, BACKLOG).map_err(BindError::from)
        })??;
        let metadata = fs::symlink_metadata(path)?;
        let file = (metadata.dev(), metadata.ino());
        let listener = Listener {
            socket,
            path: path.to_owned(),
            file,
        };
        Ok(listener)
    }

    /// A connection that waits, if there is one.
    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        Ok(accept_with(
            &self.socket,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        )?)
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

fn bind_at(socket: &OwnedFd, path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    match bind(socket, address) {
        Err(Errno::ADDRINUSE) => {
            remove_if_stale(path, address)?;
            Ok(bind(socket, address)?)
        }
        bound => Ok(bound?),
    }
}

/// A removal takes a name away and follows no link. Who could put another file there between the
/// look and the removal may change the folder, and so could have removed that name himself.
fn remove_if_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(BindError::NotASocket);
    }
    let probe = new(SocketFlags::NONBLOCK)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => Ok(fs::remove_file(path)?),
        _ => Err(BindError::InUse),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another daemon may have put its own socket there meanwhile.
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| {
            found.file_type().is_socket() && (found.dev(), found.ino()) == self.file
        });
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}
