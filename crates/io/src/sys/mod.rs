//! The system calls: the only unsafe code of this crate.
//!
//! Each function is safe to call with any arguments and makes one call. Here is what the backends
//! have in common; each has a module for what is its own.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_void, socklen_t};

pub(crate) mod bpf;
pub(crate) mod interface;
pub(crate) mod memory;
pub(crate) mod packet;
pub(crate) mod peer;
pub(crate) mod tun;
pub(crate) mod udp;
pub(crate) mod umask;
pub(crate) mod umem;
pub(crate) mod xdp;

/// Packets per system call, in either direction.
pub(crate) const BATCH: usize = 64;

/// A header of one message that has one part, and an address if that is not null.
pub(crate) fn header(
    address: *mut c_void,
    address_length: socklen_t,
    payload: *mut libc::iovec,
) -> libc::mmsghdr {
    // SAFETY: the struct is made of integers and raw pointers, for which all zeros is a value.
    // (Its padding is private on some targets, so it cannot be written out.)
    let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_name = address;
    header.msg_hdr.msg_namelen = address_length;
    header.msg_hdr.msg_iov = payload;
    header.msg_hdr.msg_iovlen = 1;
    header
}

/// Bytes of kernel memory that the socket's unsent packets occupy.
pub(crate) fn unsent(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SIOCOUTQ, which the kernel defines to be this one.
    // SAFETY: this request writes one `int` through the pointer, which is one of ours.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    count_or_error(result)?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Which buffer of a socket.
#[derive(Clone, Copy)]
pub(crate) enum Buffer {
    Send,
    Receive,
}

/// Asks for a socket buffer of `bytes` and returns what the kernel then says it is.
pub(crate) fn set_buffer(socket: BorrowedFd<'_>, which: Buffer, bytes: usize) -> io::Result<usize> {
    let option = match which {
        Buffer::Send => libc::SO_SNDBUF,
        Buffer::Receive => libc::SO_RCVBUF,
    };
    let mut value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the kernel reads `length` bytes, one `int`, at the pointer.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    count_or_error(set)?;
    // SAFETY: the kernel writes at most `length` bytes, one `int`, at the first pointer and the
    // number of bytes written at the second; both are ours.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    count_or_error(got)?;
    Ok(usize::try_from(value).unwrap_or(0))
}

/// Waits until one of `set` is ready or `timeout` is over; returns how many are ready.
pub(crate) fn poll(set: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let timeout = libc::timespec {
        // The type has 32 bits on some targets.
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as _,
        tv_nsec: timeout.subsec_nanos() as _,
    };
    // SAFETY: the kernel reads and writes `set.len()` entries of a slice that is borrowed mutably,
    // and reads one `timespec`. A null mask leaves the thread's signal mask alone.
    let ready = unsafe {
        libc::ppoll(
            set.as_mut_ptr(),
            set.len() as libc::nfds_t,
            &raw const timeout,
            ptr::null(),
        )
    };
    count_or_error(ready)
}

/// A system call's result: what is not negative is a count, and -1 says that `errno` was set.
pub(crate) fn count_or_error(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Takes the error that waits on a socket, if one does.
pub(crate) fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut error: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, one `int`, at the first pointer and the
    // number of bytes written at the second; both are ours.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut length,
        )
    };
    count_or_error(got)?;
    match error {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
