//! The system calls: the only unsafe code of this crate.
//!
//! Each function is safe to call with any arguments and makes one call. This module has the functions
//! that backends share; each backend has a module for its own.

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::{c_int, c_uint, c_void, socklen_t};

pub(crate) mod bpf;
pub(crate) mod heap;
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

/// Returns a header of one message that has one part, and an address if that is not null.
fn header(
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

/// Sends a message for each payload of `PARTS` parts, at most [`BATCH`], to its address, which is null
/// and 0 for none; returns how many the kernel accepted: at least one if there is any. An error concerns
/// the first message or the socket.
///
/// # Safety
///
/// As many bytes as `address` says are readable at its pointer until this returns.
unsafe fn send_messages<const PARTS: usize>(
    socket: BorrowedFd<'_>,
    payloads: &mut [[IoSlice<'_>; PARTS]],
    address: impl Fn(usize) -> (*mut c_void, socklen_t),
) -> io::Result<usize> {
    let count = payloads.len().min(BATCH);
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    // `IoSlice` has the layout of `iovec`, and the kernel does not write to transmitted bytes.
    let payload = payloads.as_mut_ptr().cast::<libc::iovec>();
    for (index, slot) in headers.iter_mut().enumerate().take(count) {
        let (address, length) = address(index);
        let header = slot.write(header(address, length, payload.wrapping_add(index * PARTS)));
        header.msg_hdr.msg_iovlen = PARTS as _;
    }
    // SAFETY: the first `count` headers are initialised. Each points at an address that the caller
    // vouches for and at its `PARTS` `IoSlice`s, which lie one behind the other, and which std guarantees
    // to be laid out as `iovec`; they borrow their bytes until after the call. None has control messages.
    unsafe { send_headers(socket, &mut headers[..count]) }
}

/// Sends the messages that these headers describe, and returns how many the kernel took: at least one
/// if there is any. An error is about the first message or the socket.
///
/// # Safety
///
/// All headers are initialised, and as many bytes as they say can be read where they say, until this
/// returns.
unsafe fn send_headers(
    socket: BorrowedFd<'_>,
    headers: &mut [MaybeUninit<libc::mmsghdr>],
) -> io::Result<usize> {
    // SAFETY: by the caller's contract. The kernel reads the memory that the headers point at, and writes
    // only `msg_len` in the headers, which are borrowed mutably.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            headers.len() as c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    count_or_error(sent)
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

/// Requests a socket buffer of `bytes` and returns the size that the kernel then reports.
pub(crate) fn set_buffer(socket: BorrowedFd<'_>, which: Buffer, bytes: usize) -> io::Result<usize> {
    let option = match which {
        Buffer::Send => libc::SO_SNDBUF,
        Buffer::Receive => libc::SO_RCVBUF,
    };
    let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set_option(socket, libc::SOL_SOCKET, option, value)?;
    let granted: c_int = option_of(socket, libc::SOL_SOCKET, option)?;
    Ok(usize::try_from(granted).unwrap_or(0))
}

/// A type that the kernel may read and write byte by byte.
///
/// # Safety
///
/// The type has no padding, any bytes are a value of it, and none of its values leads the kernel to
/// memory of this process.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Plain>(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: by the type's promise.
    unsafe { set_option_to(socket, level, option, &value) }
}

/// Sets an option of a socket to a value that may have addresses in it.
///
/// # Safety
///
/// `T` has no padding, and the kernel's later use of its contents is sound.
pub(crate) unsafe fn set_option_to<T>(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as said at the pointer; the rest is the caller's.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as socklen_t,
        )
    };
    count_or_error(set).map(drop)
}

/// Returns an option of a socket; bytes that the kernel does not write are 0.
pub(crate) fn option_of<T: Plain>(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes at the first pointer and the number of
    // bytes written at the second; both are ours.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    count_or_error(got)?;
    // SAFETY: all bytes were zeroed and perhaps rewritten, and any are a value of the type.
    Ok(unsafe { value.assume_init() })
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

/// Converts a system call's result: non-negative values are a count, and -1 means that `errno` was set.
pub(crate) fn count_or_error(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Takes the error that waits on a socket, if one does.
pub(crate) fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    let error: c_int = option_of(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
    match error {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Waits for [readers](wait_for_readers) that have begun, and the last of them that is over.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicU64 = AtomicU64::new(0);

/// A point in time from which a [wait for readers](wait_for_readers) must start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Returns the current moment: readers that start in a wait that begins later see all changes made
    /// before it.
    pub(crate) fn now() -> Moment {
        Moment(BEGUN.load(Ordering::SeqCst))
    }
}

/// Waits until every packet that was on its way through the kernel at that moment has got
/// where it goes; `false` if this kernel cannot. A wait of another's that began later serves as well.
pub(crate) fn wait_for_readers(since: Moment) -> bool {
    /// `MEMBARRIER_CMD_GLOBAL`: it waits for an RCU grace period, and packets are brought by readers.
    const GLOBAL: c_int = 1;

    if OVER.load(Ordering::SeqCst) > since.0 {
        return true;
    }
    let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    // SAFETY: takes no pointer.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) == 0 };
    if waited {
        OVER.fetch_max(number, Ordering::SeqCst);
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_serves_whoever_stopped_something_before_it_began() {
        let before = Moment::now();
        if !wait_for_readers(before) {
            let test = "a wait for readers";
            return fairlane_netlab::skip_unsupported(test, "this kernel cannot wait for readers");
        }
        let begun = BEGUN.load(Ordering::SeqCst);
        assert!(begun > before.0);
        assert!(wait_for_readers(before), "served");
        let after = Moment::now();
        assert!(after.0 >= begun && wait_for_readers(after));
        assert!(
            BEGUN.load(Ordering::SeqCst) > begun,
            "not served by the one before"
        );
    }
}
