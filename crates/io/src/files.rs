//! Open files that go from one process to another, over a Unix socket. Linux only.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most files in one message.
pub const MOST: usize = 16;

/// Sends `files` with one byte, in sequence with bytes that are written before and after it.
///
/// # Errors
///
/// More than [`MOST`] files, or an error of the system; nothing was sent then.
///
/// ```
/// use fairlane_io::files::{receive, send};
/// use std::io::{Read, Write};
/// use std::os::fd::OwnedFd;
/// use std::os::unix::net::UnixStream;
///
/// let (near, far) = UnixStream::pair()?;
/// let (mut reader, writer) = std::io::pipe()?;
/// send(&near, &[OwnedFd::from(writer)])?;
///
/// // The other process gets the same pipe, with a descriptor of its own.
/// let mut files = receive(&far)?;
/// let mut pipe = std::fs::File::from(files.remove(0));
/// pipe.write_all(b"through a file of another process")?;
/// drop(pipe);
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "through a file of another process");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn send(stream: &UnixStream, files: &[OwnedFd]) -> io::Result<()> {
    if files.len() > MOST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&borrowed));
    }
    sendmsg(
        stream,
        &[IoSlice::new(&[0])],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives the next byte and the files that [`send`] attached to it.
///
/// # Errors
///
/// `UnexpectedEof` if the peer closed the connection, or an error of the system.
pub fn receive(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        flags,
    )?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok(files.flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};

    use super::*;

    #[test]
    fn files_come_whole_in_their_place_among_what_is_written() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        near.write_all(b"before").unwrap();
        send(&near, &[OwnedFd::from(writer)]).unwrap();
        near.write_all(b"after").unwrap();
        let mut before = [0; 6];
        far.read_exact(&mut before).unwrap();
        let files = receive(&far).unwrap();
        let mut after = [0; 5];
        far.read_exact(&mut after).unwrap();
        assert_eq!((&before, &after), (b"before", b"after"));
        let [file] = <[OwnedFd; 1]>::try_from(files).unwrap();
        std::fs::File::from(file).write_all(b"through").unwrap();
        let mut through = String::new();
        reader.read_to_string(&mut through).unwrap();
        assert_eq!(through, "through");
    }

    #[test]
    fn nobody_gives_more_files_than_fit_and_no_message_has_none_at_its_end() {
        let (near, far) = UnixStream::pair().unwrap();
        let file = || OwnedFd::from(near.try_clone().unwrap());
        let many: Vec<_> = (0..MOST + 1).map(|_| file()).collect();
        let refused = send(&near, &many).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        send(&near, &many[..MOST]).unwrap();
        assert_eq!(receive(&far).unwrap().len(), MOST);
        send(&near, &[]).unwrap();
        assert_eq!(receive(&far).unwrap().len(), 0);
        drop((near, many));
        let ended = receive(&far).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
