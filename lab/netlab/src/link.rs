//! Interfaces, and the cables between them.

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlink::{Answer, CREATE, Message, long};

use crate::{LabError, Namespace, ethtool, shape};

// Requests of linux/rtnetlink.h.
pub(crate) const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
pub(crate) const SET_LINK: u16 = 19;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const NEW_QUEUE_DISCIPLINE: u16 = 36;

// Attributes of linux/if_link.h, veth.h and if_addr.h, by the message they are in.
const MAC: u16 = 1;
pub(crate) const NAME: u16 = 3;
const MTU: u16 = 4;
pub(crate) const CONTROLLER: u16 = 10;
const STATE: u16 = 16;
pub(crate) const INFO: u16 = 18;
const COUNTS: u16 = 23;
const NAMESPACE: u16 = 28;
const TX_QUEUES: u16 = 31;
const RX_QUEUES: u16 = 32;
pub(crate) const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;
const BY: u16 = 4;
const GATEWAY: u16 = 5;

/// Bytes of struct ifinfomsg.
const FIXED: usize = 16;
/// The flag of an interface that is up.
const UP: u32 = 1;
/// The state of one that is up and has a carrier (RFC 2863).
const STATE_UP: u8 = 6;

/// Begins a message on the interface at `index`, or on one that has no number yet: 0.
pub(crate) fn link(index: u32) -> Message {
    flags(index, 0, 0)
}

/// The same, which sets the flags of `mask` to those of `flags`.
fn flags(index: u32, flags: u32, mask: u32) -> Message {
    // struct ifinfomsg: no family, no type, then these.
    let fixed: Vec<u8> = [0, index, flags, mask]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    debug_assert_eq!(fixed.len(), FIXED);
    Message::new(fixed)
}

/// An interface in a [`Namespace`].
#[derive(Clone, Debug)]
pub struct Link {
    namespace: Namespace,
    name: String,
    index: u32,
    mac: [u8; 6],
}

/// Two new namespaces joined by a cable: the links in them are named `near` and `far`, each has
/// one queue and this `mtu` in bytes, and both are up and carry frames.
///
/// # Errors
///
/// See [`Namespace::new`] and [`veth`].
pub fn cable(mtu: u32) -> Result<(Link, Link), LabError> {
    cable_with_queues(mtu, 1)
}

/// The same with `queues` queues at each end, for either direction: frames on queue *n* of one end arrive at queue *n*
/// of the other.
///
/// # Errors
///
/// As for [`cable`], and for no queues or more than 4,096.
pub fn cable_with_queues(mtu: u32, queues: u32) -> Result<(Link, Link), LabError> {
    let (near, far) = veth_with_queues(
        (&Namespace::new()?, "near"),
        (&Namespace::new()?, "far"),
        mtu,
        queues,
    )?;
    near.up()?;
    far.up()?;
    near.wait_for_carrier()?;
    far.wait_for_carrier()?;
    Ok((near, far))
}

/// Makes a pair of virtual Ethernet devices with these names, one in each namespace (which may be
/// the same). Each has one queue and this `mtu` in bytes. They are down.
///
/// # Errors
///
/// If a name is taken, empty or longer than 15 bytes, if `mtu` is below 68 or over 65,535, or if
/// the kernel has no such devices.
pub fn veth(
    one: (&Namespace, &str),
    other: (&Namespace, &str),
    mtu: u32,
) -> Result<(Link, Link), LabError> {
    veth_with_queues(one, other, mtu, 1)
}

/// The same with `queues` queues at each end, for either direction.
///
/// # Errors
///
/// As for [`veth`], and for no queues or more than 4,096.
pub fn veth_with_queues(
    one: (&Namespace, &str),
    other: (&Namespace, &str),
    mtu: u32,
    queues: u32,
) -> Result<(Link, Link), LabError> {
    let end = |(namespace, name): (&Namespace, &str)| {
        link(0)
            .with_text(NAME, name)
            .with_number(NAMESPACE, namespace.raw_fd() as u32)
            .with_number(MTU, mtu)
            .with_number(TX_QUEUES, queues)
            .with_number(RX_QUEUES, queues)
    };
    let peer = Message::default().with_nested(VETH_PEER, &end(other));
    let info = Message::default()
        .with_text(INFO_KIND, "veth")
        .with_nested(INFO_DATA, &peer);
    let message = end(one).with_nested(INFO, &info);
    let attempt = || format!("join {} and {} by a veth pair of MTU {mtu}", one.1, other.1);
    ask(one.0, NEW_LINK, CREATE, &message, attempt)?;
    Ok((Link::find(one.0, one.1)?, Link::find(other.0, other.1)?))
}

impl Link {
    /// Returns the interface of this name in `namespace`, however it was made.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn find(namespace: &Namespace, name: &str) -> Result<Self, LabError> {
        let found = look_up(namespace, name)?;
        let mac = found.attribute(FIXED, MAC);
        let mac = mac.and_then(|mac| mac.try_into().ok());
        Ok(Self {
            namespace: namespace.clone(),
            name: name.to_owned(),
            index: found.number(4).unwrap_or_default(),
            mac: mac.unwrap_or_default(),
        })
    }

    /// Waits until it carries frames: both ends of its cable are up, and the kernel has noticed.
    /// Until then it takes frames and loses them.
    ///
    /// # Errors
    ///
    /// If that does not happen within two minutes, or the link has been deleted.
    pub fn wait_for_carrier(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + Duration::from_secs(120);
        let state = || -> Result<Option<u8>, LabError> {
            let found = look_up(&self.namespace, &self.name)?;
            Ok(found
                .attribute(FIXED, STATE)
                .and_then(|value| value.first().copied()))
        };
        while state()? != Some(STATE_UP) {
            if Instant::now() > deadline {
                let attempt = format!("send on {}, which has no carrier", self.name);
                return Err(LabError::new(attempt, io::ErrorKind::TimedOut.into()));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns the number of frames that it has received since it was made, and their bytes,
    /// headers included.
    ///
    /// # Errors
    ///
    /// If it has been deleted.
    pub fn received(&self) -> Result<(u64, u64), LabError> {
        let found = look_up(&self.namespace, &self.name)?;
        // struct rtnl_link_stats64: packets received, packets sent, bytes received, ..
        let counts = found.attribute(FIXED, COUNTS);
        let counts = counts.and_then(|counts| Some((long(counts, 0)?, long(counts, 16)?)));
        counts.ok_or_else(|| {
            let attempt = format!("ask what {} has received", self.name);
            LabError::new(attempt, io::ErrorKind::Unsupported.into())
        })
    }

    /// The namespace it is in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its number, never 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns its Ethernet address; all zeros for a device that has none.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Sets it up. A cable carries frames while both its ends are up.
    ///
    /// # Errors
    ///
    /// If it has been deleted.
    pub fn up(&self) -> Result<(), LabError> {
        self.set_flags(UP, "up")
    }

    /// Sets it down.
    ///
    /// # Errors
    ///
    /// If it has been deleted.
    pub fn down(&self) -> Result<(), LabError> {
        self.set_flags(0, "down")
    }

    fn set_flags(&self, set: u32, direction: &str) -> Result<(), LabError> {
        self.ask(SET_LINK, 0, &flags(self.index, set, UP), || {
            format!("set the link {} {direction}", self.name)
        })
    }

    /// Gives it another MTU, in bytes.
    ///
    /// # Errors
    ///
    /// If its driver has no such MTU, or the link has been deleted.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), LabError> {
        let message = link(self.index).with_number(MTU, mtu);
        self.ask(SET_LINK, 0, &message, || {
            format!("give {} the MTU {mtu}", self.name)
        })
    }

    /// Gives it another name. It is known by its former one until it is [found](Self::find) again.
    ///
    /// # Errors
    ///
    /// If the name is taken, empty or longer than 15 bytes, or the link has been deleted.
    pub fn rename(&self, name: &str) -> Result<(), LabError> {
        let message = link(self.index).with_text(NAME, name);
        self.ask(SET_LINK, 0, &message, || {
            format!("rename the link {} {name}", self.name)
        })
    }

    /// Deletes it, and with it the other end of its cable.
    ///
    /// # Errors
    ///
    /// If that has been done already.
    pub fn delete(&self) -> Result<(), LabError> {
        self.ask(DELETE_LINK, 0, &link(self.index), || {
            format!("delete the link {}", self.name)
        })
    }

    /// Gives it an IPv4 address, and the namespace a route through it to the network that the
    /// first `prefix` bits of the address name. (IPv6 is off in a [`Namespace`].)
    ///
    /// # Errors
    ///
    /// If it has the address already, if `prefix` is over 32, or if the link has been deleted.
    pub fn add_address(&self, address: IpAddr, prefix: u8) -> Result<(), LabError> {
        let (family, bytes) = bytes_of(address);
        // struct ifaddrmsg: no flags, no scope.
        let fixed = [[family, prefix, 0, 0], self.index.to_ne_bytes()].concat();
        let message = Message::new(fixed)
            .with(LOCAL_ADDRESS, &bytes)
            .with(ADDRESS, &bytes);
        self.ask(NEW_ADDRESS, CREATE, &message, || {
            format!("give {} the address {address}/{prefix}", self.name)
        })
    }

    /// Adds a default route by a gateway on it.
    ///
    /// # Errors
    ///
    /// If there is one already, if the gateway is on no network of the link, or if the link has been deleted.
    pub fn add_default_route(&self, gateway: IpAddr) -> Result<(), LabError> {
        let (family, bytes) = bytes_of(gateway);
        // struct rtmsg: all destinations, the main table, static, everywhere, unicast, no flags.
        let fixed = [family, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        let message = Message::new(fixed)
            .with(GATEWAY, &bytes)
            .with_number(BY, self.index);
        self.ask(NEW_ROUTE, CREATE, &message, || {
            format!("add the gateway {gateway} on {}", self.name)
        })
    }

    /// Turns off offloads to hardware that does not exist: checksums of transmitted packets, and segmentation of long
    /// segments into frames. Frames from this end then arrive with checksums, and no longer than the MTU.
    ///
    /// # Errors
    ///
    /// If it has been deleted, or the kernel cannot be asked (before Linux 5.6).
    pub fn turn_offloads_off(&self) -> Result<(), LabError> {
        self.namespace
            .run(|| ethtool::turn_offloads_off(self.index))
            .map_err(|error| {
                LabError::new(format!("turn the offloads of {} off", self.name), error)
            })
    }

    /// Sets how many of the queues that it was made with receive and transmit from now on.
    ///
    /// # Errors
    ///
    /// If a number is 0 or above that at its creation, if it has been deleted, or the kernel cannot be asked (before
    /// Linux 5.7).
    pub fn set_queues(&self, receive: u32, send: u32) -> Result<(), LabError> {
        self.namespace
            .run(|| ethtool::set_queues(self.index, receive, send))
            .map_err(|error| {
                let what = format!(
                    "have {receive} queues of {} receive and {send} send",
                    self.name
                );
                LabError::new(what, error)
            })
    }

    /// Limits the link's rate: it sends `bytes_per_second`, in bursts of at most two milliseconds' worth or 2,000
    /// bytes, behind a queue of `queue` bytes. Further packets are dropped, which is reported to their sender.
    ///
    /// # Errors
    ///
    /// If that has been done already, if the MTU is over 2,000, if the link has been deleted, or
    /// if the kernel has no token bucket filter (tbf).
    pub fn limit_rate(&self, bytes_per_second: u32, queue: u32) -> Result<(), LabError> {
        // A timer that is late by more than a burst takes its part of the rate with it.
        let burst = (bytes_per_second / 500).max(2_000);
        let message = shape::token_bucket(self.index, bytes_per_second, burst, queue);
        self.ask(NEW_QUEUE_DISCIPLINE, CREATE, &message, || {
            format!("limit {} to {bytes_per_second} bytes a second", self.name)
        })
    }

    fn ask(
        &self,
        kind: u16,
        flags: u16,
        message: &Message,
        attempt: impl Fn() -> String,
    ) -> Result<(), LabError> {
        ask(&self.namespace, kind, flags, message, attempt).map(drop)
    }
}

/// Returns the number of an address's family, AF_INET or AF_INET6, and its bytes.
fn bytes_of(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (2, address.octets().to_vec()),
        IpAddr::V6(address) => (10, address.octets().to_vec()),
    }
}

/// Returns the kernel's description of the interface of this name.
fn look_up(namespace: &Namespace, name: &str) -> Result<Answer, LabError> {
    let attempt = || format!("find the link {name}");
    let message = link(0).with_text(NAME, name);
    let answers = ask(namespace, GET_LINK, 0, &message, attempt)?;
    let found = answers.into_iter().next();
    found.ok_or_else(|| LabError::new(attempt(), io::ErrorKind::InvalidData.into()))
}

pub(crate) fn ask(
    namespace: &Namespace,
    kind: u16,
    flags: u16,
    message: &Message,
    attempt: impl Fn() -> String,
) -> Result<Vec<Answer>, LabError> {
    namespace
        .route()
        .request(kind, flags, message)
        .map_err(|error| LabError::new(attempt(), error))
}
