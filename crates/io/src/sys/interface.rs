//! What the kernel says of an interface, by `ioctl`.

use std::ffi::c_char;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::c_int;

use super::count_or_error;

/// An interface, known by its index: its name may change, or pass to another.
///
/// It is looked up in the network namespace in which [`find`](Self::find) was called, whatever the
/// namespace of the thread that asks later.
#[derive(Debug)]
pub(crate) struct Interface {
    index: u32,
    /// Any socket serves for questions about interfaces; this one does nothing else.
    control: OwnedFd,
}

/// Whether packets can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Up, with a carrier.
    Up,
    /// Set down, or without a carrier.
    Down,
    /// Removed, or moved to another namespace.
    Gone,
}

/// Who joins received segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    /// Generic receive offload (GRO).
    Kernel,
    /// Large receive offload (LRO).
    Device,
}

// Commands of linux/ethtool.h, and a flag.
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const GET_GRO: u32 = 0x2b;
const SET_GRO: u32 = 0x2c;
const LRO: u32 = 1 << 15;

impl Interface {
    /// The interface of this name in the calling thread's network namespace.
    ///
    /// Fails with `ENODEV` if there is none.
    pub(crate) fn find(name: &str) -> io::Result<Self> {
        let mut request = request(name)?;
        // SAFETY: takes no pointer.
        let socket =
            unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        count_or_error(socket)?;
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        let control = unsafe { OwnedFd::from_raw_fd(socket) };
        ask(control.as_fd(), libc::SIOCGIFINDEX as _, &mut request)?;
        // SAFETY: the kernel has written this member; an integer has no invalid value.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        Ok(Self {
            index: u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
            control,
        })
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The longest payload of a frame, in bytes, without the Ethernet header.
    pub(crate) fn mtu(&self) -> io::Result<usize> {
        let mut request = self.named()?;
        ask(self.control.as_fd(), libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: the kernel has written this member; an integer has no invalid value.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(usize::try_from(mtu).unwrap_or(0))
    }

    /// Whether its frames begin with an Ethernet header.
    pub(crate) fn carries_ethernet(&self) -> io::Result<bool> {
        let mut request = self.named()?;
        ask(self.control.as_fd(), libc::SIOCGIFHWADDR as _, &mut request)?;
        // SAFETY: the kernel has written this member; an integer has no invalid value.
        let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        Ok(matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK))
    }

    pub(crate) fn state(&self) -> io::Result<LinkState> {
        match self.can_send() {
            Ok(true) => Ok(LinkState::Up),
            Ok(false) => Ok(LinkState::Down),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(LinkState::Gone),
            Err(error) => Err(error),
        }
    }

    fn can_send(&self) -> io::Result<bool> {
        let mut request = self.named()?;
        ask(self.control.as_fd(), libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the kernel has written this member; an integer has no invalid value.
        let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        if flags & libc::IFF_UP == 0 {
            return Ok(false);
        }
        // The flag that says so follows the carrier up to a second later.
        match self.carrier() {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Ok(flags & libc::IFF_RUNNING != 0)
            }
            carrier => carrier,
        }
    }

    /// Whether there is a carrier now; `EOPNOTSUPP` for a driver that cannot tell.
    fn carrier(&self) -> io::Result<bool> {
        /// `ETHTOOL_GLINK`.
        const GET_LINK: u32 = 0x0a;
        Ok(self.ethtool(GET_LINK, 0)? != 0)
    }

    /// Whether the kernel or the device joins received segments into longer ones.
    pub(crate) fn joins_segments(&self, by: Joins) -> io::Result<bool> {
        Ok(match by {
            Joins::Kernel => self.ethtool(GET_GRO, 0)? != 0,
            Joins::Device => self.ethtool(GET_FLAGS, 0)? & LRO != 0,
        })
    }

    /// Lets received segments be joined, or not. Needs the privilege `CAP_NET_ADMIN`.
    pub(crate) fn join_segments(&self, by: Joins, on: bool) -> io::Result<()> {
        match by {
            Joins::Kernel => self.ethtool(SET_GRO, on.into())?,
            Joins::Device => {
                let others = self.ethtool(GET_FLAGS, 0)? & !LRO;
                self.ethtool(SET_FLAGS, others | if on { LRO } else { 0 })?
            }
        };
        Ok(())
    }

    /// Asks the driver, by one of the commands whose argument and answer is one number.
    fn ethtool(&self, command: u32, data: u32) -> io::Result<u32> {
        /// `struct ethtool_value`.
        #[repr(C)]
        struct Value {
            command: u32,
            data: u32,
        }
        let mut value = Value { command, data };
        let mut request = self.named()?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the kernel reads and writes one `ifreq` and, for the commands of this file, the
        // `Value` that it points to, which lives until after the call.
        let result = unsafe {
            libc::ioctl(
                self.control.as_raw_fd(),
                libc::SIOCETHTOOL as _,
                &raw mut request,
            )
        };
        count_or_error(result)?;
        // SAFETY: the field is ours, aligned, and the kernel has left an integer in it.
        Ok(unsafe { (&raw const value.data).read() })
    }

    /// A request with the interface's present name.
    fn named(&self) -> io::Result<libc::ifreq> {
        let mut request = request("")?;
        request.ifr_ifru.ifru_ifindex = self.index as c_int;
        ask(self.control.as_fd(), libc::SIOCGIFNAME as _, &mut request)?;
        Ok(request)
    }
}

/// A request about the interface of this name.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is made of integers, arrays of them and pointers, for which all zeros is a
    // value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays: names are terminated by a zero.
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Ok(request)
}

fn ask(
    control: BorrowedFd<'_>,
    question: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: the questions asked in this file read and write one `ifreq`, which is borrowed
    // mutably, and none of the pointers that it may hold.
    count_or_error(unsafe { libc::ioctl(control.as_raw_fd(), question, &raw mut *request) })?;
    Ok(())
}
