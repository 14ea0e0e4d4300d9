//! A client that speaks the protocol by hand, and so can break it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use fairlane_io::SharedMemory;
use fairlane_mailbox::shared::Geometry;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketType, connect, recv, recvmsg, sendmsg, socket,
};

pub(crate) const HELLO: &[u8] = b"fairlane\x01\0\0\0";

/// Words before the first slot's header.
const SLOTS: usize = 16;

pub(crate) fn dial(path: &Path) -> OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    // Limit after which a waiting test fails.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(30))).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

pub(crate) fn send(
    socket: &OwnedFd,
    message: &[u8],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let flags = flags | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    sendmsg(socket, &[IoSlice::new(message)], &mut control, flags)
}

/// Returns a message and handles; an empty message if the daemon has hung up.
pub(crate) fn receive(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut message = vec![0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut message)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let received = match received {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN) => panic!("the daemon says nothing"),
        Err(_) => 0,
    };
    message.truncate(received);
    let handles = control.drain().flat_map(|part| match part {
        RecvAncillaryMessage::ScmRights(handles) => handles.collect(),
        _ => Vec::new(),
    });
    (message, handles.collect())
}

/// Returns the sentence of a refusal.
pub(crate) fn sentence(message: &[u8]) -> String {
    assert_eq!(message[12..16], 1_u32.to_le_bytes(), "{message:?}");
    String::from_utf8(message[16..].to_vec()).unwrap()
}

/// An attached client with its hands on the memory.
pub(crate) struct Raw {
    pub socket: OwnedFd,
    pub bell: OwnedFd,
    pub memory: SharedMemory,
    pub memory_handle: OwnedFd,
    pub geometry: Geometry,
}

impl Raw {
    pub(crate) fn attach(path: &Path) -> Self {
        let socket = dial(path);
        send(&socket, HELLO, SendFlags::empty()).unwrap();
        let (reply, handles) = receive(&socket);
        Raw::with(socket, &reply, handles)
    }

    /// Attached by this reply.
    pub(crate) fn with(socket: OwnedFd, reply: &[u8], handles: Vec<OwnedFd>) -> Self {
        let number = |at: usize| u32::from_le_bytes(*reply[at..].first_chunk().unwrap()) as usize;
        assert_eq!(number(12), 0, "{reply:?}");
        let geometry = Geometry::new(number(16), number(20)).unwrap();
        let [memory, bell] = <[OwnedFd; 2]>::try_from(handles).unwrap();
        let memory_handle = memory.try_clone().unwrap();
        let memory = SharedMemory::open(memory, geometry.bytes()).unwrap();
        Raw {
            socket,
            bell,
            memory,
            memory_handle,
            geometry,
        }
    }

    pub(crate) fn ring(&self) {
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Returns whether the daemon has hung up.
    pub(crate) fn is_cut_off(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.socket, &mut [0], flags).is_ok_and(|(length, _)| length == 0)
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.as_ref()
    }

    /// Returns the words of the slot of a place.
    pub(crate) fn slot(&self, place: usize) -> &[AtomicU64] {
        let slots = self.geometry.slots();
        let words = (self.geometry.words() - SLOTS) / slots;
        &self.words()[SLOTS + place % slots * words..][..words]
    }

    fn generation(&self, place: usize) -> u64 {
        (place / self.geometry.slots()) as u64
    }

    pub(crate) fn is_free(&self, place: usize) -> bool {
        self.slot(place)[0].load(Ordering::Acquire) == self.generation(place) << 32
    }

    /// The words of a packet, without the header that makes it one.
    pub(crate) fn write_body(&self, place: usize, packet: &[u8]) {
        for (word, bytes) in self.slot(place)[1..].iter().zip(packet.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    pub(crate) fn write_header(&self, place: usize, length: u32) {
        let header = self.generation(place) << 32 | u64::from(length);
        self.slot(place)[0].store(header, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn write(&self, place: usize, packet: &[u8]) {
        self.write_body(place, packet);
        self.write_header(place, packet.len() as u32);
    }
}
