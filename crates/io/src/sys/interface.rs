//! Properties of an interface, by `ioctl`.

use std::ffi::{CStr, c_char};
use std::fs::DirEntry;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use libc::c_int;

use super::{Plain, count_or_error, option_of};

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
    /// Set down, without a carrier, or being renamed.
    Down,
    /// Removed, or moved to another namespace.
    Gone,
}

/// The places where received segments are coalesced.
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

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`: those there could be, and those there are.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receiving: u32,
    sending: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo`, of which the name and the bus address count.
#[repr(C)]
#[derive(Clone, Copy)]
struct Driver {
    command: u32,
    name: [u8; 32],
    versions: [u8; 64],
    bus: [u8; 32],
    rest: [u8; 64],
}

/// `struct ethtool_cmd`, of which the speed counts: its low and high half, in Mbit/s.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Settings {
    command: u32,
    modes: [u32; 2],
    speed: u16,
    ports: [u8; 6],
    packets: [u32; 2],
    speed_high: u16,
    rest: [u8; 2],
    more: [u32; 3],
}

// SAFETY: a struct of integers without padding, as are the next three.
unsafe impl Plain for Value {}
// SAFETY: as above.
unsafe impl Plain for Channels {}
// SAFETY: as above.
unsafe impl Plain for Settings {}
// SAFETY: as above.
unsafe impl Plain for Driver {}

// The kernel's sizes.
const _: () = assert!(size_of::<Settings>() == 44 && size_of::<Driver>() == 196);

impl Settings {
    /// Returns the speed in bit/s; `None` if it is unknown, which all bits set, or none, mean.
    fn bps(&self) -> Option<u64> {
        let mbit = u32::from(self.speed_high) << 16 | u32::from(self.speed);
        let is_unknown = [0, u32::MAX, u32::from(u16::MAX)].contains(&mbit);
        (!is_unknown).then(|| u64::from(mbit) * 1_000_000)
    }
}

impl Interface {
    /// Returns the interface of this name in the calling thread's network namespace.
    ///
    /// Fails with `ENODEV` if there is none.
    pub(crate) fn find(name: &str) -> io::Result<Self> {
        let mut request = request(name)?;
        // SAFETY: takes no pointer.
        let socket =
            unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        count_or_error(socket)?;
        // SAFETY: the kernel has just made this descriptor, and it has no other owner.
        let control = unsafe { OwnedFd::from_raw_fd(socket) };
        ask(control.as_fd(), libc::SIOCGIFINDEX as _, &mut request)?;
        // SAFETY: the kernel has written this member; an integer has no invalid value.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        Ok(Self {
            index: u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
            control,
        })
    }

    /// Returns a number that no other network namespace has; its inode's, which is given again,
    /// where the kernel has none (before Linux 5.14).
    pub(crate) fn namespace(&self) -> io::Result<u64> {
        match option_of(
            self.control.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
        ) {
            Ok(cookie) => Ok(cookie),
            Err(_) => Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino()),
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the longest payload of a frame, in bytes, without the Ethernet header.
    pub(crate) fn mtu(&self) -> io::Result<usize> {
        let request = self.ask(libc::SIOCGIFMTU as _)?;
        // SAFETY: the kernel has written this member; an integer has no invalid value.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(usize::try_from(mtu).unwrap_or(0))
    }

    /// Returns whether its frames begin with an Ethernet header.
    pub(crate) fn carries_ethernet(&self) -> io::Result<bool> {
        let request = self.ask(libc::SIOCGIFHWADDR as _)?;
        // SAFETY: the kernel has written this member; an integer has no invalid value.
        let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        Ok(matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK))
    }

    /// Sets it up, as `ip link set .. up` does.
    pub(crate) fn set_up(&self) -> io::Result<()> {
        self.by_name(|request| {
            ask(self.control.as_fd(), libc::SIOCGIFFLAGS as _, request)?;
            // SAFETY: the kernel has written this member; an integer has no invalid value.
            let flags = unsafe { request.ifr_ifru.ifru_flags };
            request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
            ask(self.control.as_fd(), libc::SIOCSIFFLAGS as _, request)
        })
    }

    pub(crate) fn state(&self) -> io::Result<LinkState> {
        match self.can_send() {
            Ok(true) => Ok(LinkState::Up),
            Ok(false) => Ok(LinkState::Down),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(LinkState::Gone),
            // Temporarily unavailable; the query is repeated.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(LinkState::Down),
            Err(error) => Err(error),
        }
    }

    fn can_send(&self) -> io::Result<bool> {
        let request = self.ask(libc::SIOCGIFFLAGS as _)?;
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

    /// Returns whether there is a carrier now; `EOPNOTSUPP` if the driver does not report it.
    fn carrier(&self) -> io::Result<bool> {
        /// `ETHTOOL_GLINK`.
        const GET_LINK: u32 = 0x0a;
        Ok(self.ethtool(GET_LINK, 0)? != 0)
    }

    /// Returns whether the kernel or the device joins received segments into longer ones.
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

    /// Returns how many queues receive.
    pub(crate) fn rx_queues(&self) -> io::Result<u32> {
        self.queues(|channels| channels.receiving, "rx-")
    }

    /// Returns how many queues transmit.
    pub(crate) fn tx_queues(&self) -> io::Result<u32> {
        self.queues(|channels| channels.sending, "tx-")
    }

    /// Returns the number of queues of a kind. If the driver does not report it, counts those in `/sys`, unless
    /// that belongs to another namespace; 1 if neither is available.
    fn queues(&self, of: impl Fn(&Channels) -> u32, listed: &str) -> io::Result<u32> {
        /// `ETHTOOL_GCHANNELS`.
        const GET_CHANNELS: u32 = 0x3c;
        let told = self.ask_driver(Channels {
            command: GET_CHANNELS,
            ..Channels::default()
        });
        match told {
            Ok(channels) => Ok(of(&channels).saturating_add(channels.combined).max(1)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(error),
            Err(_) => Ok(self.listed_queues(listed).unwrap_or(1)),
        }
    }

    /// The queues that `/sys` lists by names that begin like this, if it is of this interface.
    fn listed_queues(&self, kind: &str) -> Option<u32> {
        let name: Vec<u8> = self.name().ok()?.iter().map(|&c| c as u8).collect();
        let name = CStr::from_bytes_until_nul(&name).ok()?.to_str().ok()?;
        let folder = Path::new("/sys/class/net").join(name);
        let index = std::fs::read_to_string(folder.join("ifindex")).ok()?;
        if index.trim().parse() != Ok(self.index) {
            return None;
        }
        let entries = std::fs::read_dir(folder.join("queues")).ok()?.flatten();
        let is_one = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with(kind);
        let queues = entries.filter(is_one).count();
        u32::try_from(queues).ok().filter(|&queues| queues > 0)
    }

    /// Returns whether it is one end of a virtual cable.
    pub(crate) fn is_cable(&self) -> io::Result<bool> {
        Ok(self.driver()?.name.starts_with(b"veth\0"))
    }

    /// Returns its speed in bit/s, if its driver knows one; `None` for a virtual device, whose number has no meaning.
    pub(crate) fn speed(&self) -> io::Result<Option<u64>> {
        /// `ETHTOOL_GSET`.
        const GET_SETTINGS: u32 = 0x01;
        let driver = self.driver()?;
        if driver.bus[0] == 0 || driver.name.starts_with(b"tun\0") {
            return Ok(None);
        }
        let settings = self.ask_driver(Settings {
            command: GET_SETTINGS,
            ..Settings::default()
        })?;
        Ok(settings.bps())
    }

    fn driver(&self) -> io::Result<Driver> {
        /// `ETHTOOL_GDRVINFO`.
        const GET_DRIVER: u32 = 0x03;
        self.ask_driver(Driver {
            command: GET_DRIVER,
            name: [0; 32],
            versions: [0; 64],
            bus: [0; 32],
            rest: [0; 64],
        })
    }

    /// Asks the driver, by one of the commands whose argument and answer is one number.
    fn ethtool(&self, command: u32, data: u32) -> io::Result<u32> {
        Ok(self.ask_driver(Value { command, data })?.data)
    }

    /// Queries the driver by a command whose argument is `question`.
    fn ask_driver<T: Plain>(&self, question: T) -> io::Result<T> {
        self.by_name(|request| {
            let mut value = question;
            request.ifr_ifru.ifru_data = (&raw mut value).cast();
            // SAFETY: the kernel reads and writes one `ifreq` and, for the commands of this file,
            // the `T` that it points to, which lives until after the call.
            let result = unsafe {
                libc::ioctl(
                    self.control.as_raw_fd(),
                    libc::SIOCETHTOOL as _,
                    &raw mut *request,
                )
            };
            count_or_error(result)?;
            // SAFETY: the value is ours, and any bytes that the kernel has left in it are one.
            Ok(unsafe { (&raw const value).read() })
        })
    }

    /// Asks one of the questions whose answer is in the request.
    fn ask(&self, question: libc::Ioctl) -> io::Result<libc::ifreq> {
        self.by_name(|request| {
            ask(self.control.as_fd(), question, request)?;
            Ok(*request)
        })
    }

    /// Returns the answer to a question that the kernel takes for a name only. The query is repeated if the
    /// interface's name changed meanwhile, so that a renamed interface is not confused with the one that took
    /// its name.
    ///
    /// `WouldBlock` while it is being renamed: for some milliseconds the kernel then knows it by
    /// no name at all. `ENODEV` if it is gone.
    fn by_name<T>(
        &self,
        mut question: impl FnMut(&mut libc::ifreq) -> io::Result<T>,
    ) -> io::Result<T> {
        const ATTEMPTS: u32 = 10;
        let mut name = self.name()?;
        for _ in 0..ATTEMPTS {
            let mut request = blank();
            request.ifr_name = name;
            let answer = question(&mut request);
            let now = self.name()?;
            let none = |error: &io::Error| error.raw_os_error() == Some(libc::ENODEV);
            if now == name && !answer.as_ref().is_err_and(none) {
                return answer;
            }
            name = now;
        }
        Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "it is being renamed, or its driver calls it absent: try again",
        ))
    }

    /// Returns the present name; `ENODEV` if the interface is gone.
    fn name(&self) -> io::Result<[c_char; libc::IFNAMSIZ]> {
        let mut request = blank();
        request.ifr_ifru.ifru_ifindex = self.index as c_int;
        ask(self.control.as_fd(), libc::SIOCGIFNAME as _, &mut request)?;
        Ok(request.ifr_name)
    }
}

/// Returns a request about the interface of this name.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    let mut request = blank();
    // The last byte stays: names are terminated by a zero.
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Ok(request)
}

fn blank() -> libc::ifreq {
    // SAFETY: `ifreq` is made of integers, arrays of them and pointers, for which all zeros is a
    // value.
    unsafe { mem::zeroed() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_netlab::{cable, or_skip};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn a_speed_that_no_driver_knows_is_none() {
        let of = |speed, speed_high| {
            let settings = Settings {
                speed,
                speed_high,
                ..Settings::default()
            };
            settings.bps()
        };
        assert_eq!(of(1_000, 0), Some(1_000_000_000));
        // 100 Gbit/s do not fit into one half.
        assert_eq!(of(34_464, 1), Some(100_000_000_000));
        for unknown in [(0, 0), (u16::MAX, 0), (u16::MAX, u16::MAX)] {
            assert_eq!(of(unknown.0, unknown.1), None);
        }
        let Some((near, _far)) = or_skip("the speed of a cable", cable(1_500)) else {
            return;
        };
        // A virtual cable claims 10 Gbit/s, which says nothing.
        let find = || Interface::find(near.name())?.speed();
        assert_eq!(near.namespace().run(find).unwrap(), None);
    }

    fn rename(interface: &Interface, to: &str) {
        let mut request = blank();
        request.ifr_name = interface.name().unwrap();
        let wanted = super::request(to).unwrap().ifr_name;
        request.ifr_ifru.ifru_newname = wanted;
        ask(
            interface.control.as_fd(),
            libc::SIOCSIFNAME as _,
            &mut request,
        )
        .unwrap();
    }

    #[test]
    fn an_interface_that_is_down_and_renamed_is_not_gone() {
        let Some((link, far)) = or_skip("a renamed interface", cable(1_500)) else {
            return;
        };
        link.down().unwrap();
        far.down().unwrap();
        let interface = link
            .namespace()
            .run(|| Interface::find(link.name()).unwrap());
        let (done, asked) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(interface.state().unwrap(), LinkState::Down);
                    match interface.mtu() {
                        Ok(mtu) => assert_eq!(mtu, 1_500),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
            let (begun, mut number) = (Instant::now(), 0);
            // The other thread may have no processor for a while.
            let enough = || asked.load(Ordering::Relaxed) > 100 || asking.is_finished();
            while number < 200 || !(enough() || begun.elapsed() > Duration::from_secs(60)) {
                rename(&interface, &format!("other{}", number % 7));
                number += 1;
            }
            rename(&interface, "last");
            done.store(true, Ordering::Relaxed);
            asking.join().unwrap();
            assert!(asked.load(Ordering::Relaxed) > 100);
        });
        link.namespace()
            .run(|| assert!(Interface::find("last").is_ok()));
        // The link is known by its first name.
        rename(&interface, link.name());
        link.delete().unwrap();
        assert_eq!(interface.state().unwrap(), LinkState::Gone);
    }
}
