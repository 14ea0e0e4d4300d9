//! Datagrams: many a system call, each with its address.
//!
//! The arrays that `sendmmsg` and `recvmmsg` want point into one another and at the payloads; they
//! live on the stack of the function that makes the call, so nothing that holds such a pointer
//! outlives the call, moves, or crosses a thread, and no call allocates.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{c_int, c_uint, c_void, socklen_t};

use super::{BATCH, count_or_error, header};
use crate::Frame;
use crate::udp::segmentation::{Run, Unsent};

/// An Internet address as the kernel reads and writes it.
#[repr(C)]
#[derive(Clone, Copy)]
union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

const V4_LENGTH: socklen_t = size_of::<libc::sockaddr_in>() as socklen_t;
const V6_LENGTH: socklen_t = size_of::<libc::sockaddr_in6>() as socklen_t;

impl Address {
    fn zeroed() -> Self {
        Self {
            // SAFETY: `sockaddr_in6` is made of integers only, for which all zeros is a value. It
            // is the larger member, so no byte of the union stays uninitialised.
            v6: unsafe { mem::zeroed() },
        }
    }

    /// Returns the address and how many of its bytes count.
    fn encode(peer: SocketAddr) -> (Self, socklen_t) {
        let mut address = Self::zeroed();
        let length = match peer {
            SocketAddr::V4(peer) => {
                address.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: peer.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(peer.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                V4_LENGTH
            }
            SocketAddr::V6(peer) => {
                address.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: peer.port().to_be(),
                    sin6_flowinfo: peer.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: peer.ip().octets(),
                    },
                    sin6_scope_id: peer.scope_id(),
                };
                V6_LENGTH
            }
        };
        (address, length)
    }

    /// `None` if the kernel wrote no Internet address.
    fn decode(&self, length: socklen_t) -> Option<SocketAddr> {
        // SAFETY: every byte of the union was initialised by `zeroed` and perhaps rewritten by the
        // kernel; both members are made of integers, which every bit pattern is a value of.
        let (v4, v6) = unsafe { (self.v4, self.v6) };
        match c_int::from(v4.sin_family) {
            libc::AF_INET if length >= V4_LENGTH => Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()),
                u16::from_be(v4.sin_port),
            ))),
            libc::AF_INET6 if length >= V6_LENGTH => Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            ))),
            _ => None,
        }
    }
}

/// The control message that makes the kernel segment a message into datagrams of `size` bytes each, and
/// one for the remainder.
#[repr(C)]
struct CutInto {
    header: libc::cmsghdr,
    size: u16,
}

// The struct ends where the kernel looks for the next one.
// SAFETY: the macro computes with its argument alone.
const _: () = assert!(size_of::<CutInto>() == unsafe { libc::CMSG_SPACE(SIZE) } as usize);

/// Bytes of the control message's value.
const SIZE: c_uint = size_of::<u16>() as c_uint;

impl CutInto {
    fn new(size: u16) -> Self {
        // SAFETY: the struct is made of integers only, for which all zeros is a value.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        // SAFETY: the macro computes with its argument alone.
        header.cmsg_len = unsafe { libc::CMSG_LEN(SIZE) } as _;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        Self { header, size }
    }
}

/// Returns whether the kernel segments messages of this socket on request, and leaves all other messages
/// alone (another owner of the socket may have set its option).
pub(crate) fn cuts_on_request(socket: BorrowedFd<'_>) -> bool {
    let size: io::Result<c_int> = super::option_of(socket, libc::SOL_UDP, libc::UDP_SEGMENT);
    size.is_ok_and(|size| size == 0)
}

/// Sends at most `most`, and at most [`BATCH`], frames from the front of `batch`, those that a
/// [`Run`] takes as one message; returns how many frames the kernel took: at least one if there is any.
/// An error is about the first message or the socket.
pub(crate) fn send<F: Frame>(
    socket: BorrowedFd<'_>,
    batch: &VecDeque<F>,
    most: usize,
    longest: usize,
) -> Result<usize, Unsent> {
    let count = batch.len().min(most).min(BATCH);
    let mut payloads = [IoSlice::new(&[]); BATCH];
    let mut addresses = [const { MaybeUninit::<Address>::uninit() }; BATCH];
    let mut lengths = [0; BATCH];
    let mut runs = [Run::default(); BATCH];
    let mut messages = 0;
    let mut last = None;
    for (payload, frame) in payloads.iter_mut().zip(batch.iter().take(count)) {
        let (peer, bytes) = (frame.peer(), frame.bytes());
        *payload = IoSlice::new(bytes);
        if last == Some(peer) && runs[messages - 1].takes(bytes.len(), longest) {
            continue;
        }
        let (address, length) = Address::encode(peer);
        addresses[messages].write(address);
        lengths[messages] = length;
        runs[messages] = Run::of(bytes.len());
        messages += 1;
        last = Some(peer);
    }

    let first = addresses.as_mut_ptr();
    let address = |index: usize| (first.wrapping_add(index).cast(), lengths[index]);
    let runs = &runs[..messages];
    // SAFETY: as many addresses as there are runs are initialised, have at least as many bytes as
    // stated, and are alive.
    let sent = unsafe { send_runs(socket, &mut payloads[..count], runs, address) };
    let front = runs.first().copied().unwrap_or_default();
    let sent = sent.map_err(|error| Unsent { error, front })?;
    Ok(runs.iter().take(sent).map(Run::datagrams).sum())
}

/// Sends a message of each run, whose datagrams are the next of `payloads`, to its address; returns how
/// many messages the kernel took.
///
/// # Panics
///
/// If the runs have more datagrams than there are payloads, or are more than [`BATCH`].
///
/// # Safety
///
/// As many bytes as `address` says can be read where it says, until this returns.
unsafe fn send_runs(
    socket: BorrowedFd<'_>,
    mut payloads: &mut [IoSlice<'_>],
    runs: &[Run],
    address: impl Fn(usize) -> (*mut c_void, socklen_t),
) -> io::Result<usize> {
    let mut controls = [const { MaybeUninit::<CutInto>::uninit() }; BATCH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let slots = headers.iter_mut().zip(&mut controls);
    for (index, (run, (slot, control))) in runs.iter().zip(slots).enumerate() {
        let parts = payloads
            .split_off_mut(..run.datagrams())
            .expect("each datagram has a payload");
        let (address, length) = address(index);
        // `IoSlice` has the layout of `iovec`, and the kernel does not write to transmitted bytes.
        let header = slot.write(header(address, length, parts.as_mut_ptr().cast()));
        header.msg_hdr.msg_iovlen = parts.len() as _;
        if let Some(size) = run.cut() {
            let control: *mut CutInto = control.write(CutInto::new(size));
            header.msg_hdr.msg_control = control.cast();
            header.msg_hdr.msg_controllen = size_of::<CutInto>() as _;
        }
    }
    // SAFETY: the first `runs.len()` headers are initialised. Each points at an address that the caller
    // vouches for; at as many `IoSlice`s as it says, which std guarantees to be laid out as `iovec` and
    // which borrow their bytes until after the call; and at a control message of its own, all of which
    // but its padding is initialised and which is alive, or at none.
    unsafe { super::send_headers(socket, &mut headers[..runs.len()]) }
}

/// A received datagram that still lies in its buffer.
pub(crate) struct Arrival<'a> {
    /// `None` if the source is not an Internet address.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) bytes: &'a [u8],
    /// The datagram was longer than the buffer.
    pub(crate) truncated: bool,
}

/// Receives at most `max`, and at most [`BATCH`], datagrams into consecutive buffers of `size` bytes in
/// `memory`, shows each to `deliver` in order of arrival, and returns their number.
///
/// # Panics
///
/// If `memory` has no room for [`BATCH`] buffers, or `size` is 0.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    memory: &mut [u8],
    size: usize,
    max: usize,
    mut deliver: impl FnMut(Arrival<'_>),
) -> io::Result<usize> {
    let count = max.min(BATCH);
    let mut addresses = [Address::zeroed(); BATCH];
    let mut buffers = memory.chunks_exact_mut(size);
    let mut payloads: [IoSliceMut<'_>; BATCH] = std::array::from_fn(|_| {
        IoSliceMut::new(buffers.next().expect("one buffer for each message"))
    });

    let address = addresses.as_mut_ptr();
    // `IoSliceMut` has the layout of `iovec`.
    let payload = payloads.as_mut_ptr().cast::<libc::iovec>();
    let mut headers: [libc::mmsghdr; BATCH] = std::array::from_fn(|index| {
        header(
            address.wrapping_add(index).cast(),
            V6_LENGTH,
            payload.wrapping_add(index),
        )
    });

    // SAFETY: all headers are initialised. Each points at an address of the stated size and at one
    // `IoSliceMut`, which std guarantees to be laid out as `iovec` and which borrows its buffer
    // mutably, apart from all others, until the last use of `payloads` below. The kernel writes
    // within those sizes. A null timeout means none.
    let came = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    let came = count_or_error(came)?;
    for ((header, address), payload) in headers.iter().zip(&addresses).zip(&payloads).take(came) {
        deliver(Arrival {
            peer: address.decode(header.msg_hdr.msg_namelen),
            bytes: &payload[..header.msg_len as usize],
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        });
    }
    Ok(came)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_layout() {
        for text in [
            "127.0.0.1:9",
            "192.0.2.255:65535",
            "0.0.0.0:0",
            "[::1]:53",
            "[2001:db8::1:ff00:42]:443",
        ] {
            let peer: SocketAddr = text.parse().unwrap();
            let (address, length) = Address::encode(peer);
            assert_eq!(address.decode(length), Some(peer));
        }
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0x1234, 3).into();
        let (address, length) = Address::encode(scoped);
        assert_eq!(address.decode(length), Some(scoped));
    }

    #[test]
    fn an_address_cut_short_is_none() {
        for (text, length) in [("127.0.0.1:9", V4_LENGTH), ("[::1]:9", V6_LENGTH)] {
            let (address, _) = Address::encode(text.parse().unwrap());
            assert_eq!(address.decode(length - 1), None);
        }
        assert_eq!(Address::zeroed().decode(V6_LENGTH), None);
    }
}
