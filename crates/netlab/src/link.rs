//! Interfaces, and the cables between them.

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{LabError, Namespace, ethtool, netlink, shape};

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
    let (near, far) = veth(
        (&Namespace::new()?, "near"),
        (&Namespace::new()?, "far"),
        mtu,
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
    let end = |(namespace, name): (&Namespace, &str)| {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::NetNsFd(namespace.raw_fd()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::NumTxQueues(1),
            LinkAttribute::NumRxQueues(1),
        ];
        message
    };
    let mut message = end(one);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end(other)))),
    ]));
    let attempt = || format!("join {} and {} by a veth pair of MTU {mtu}", one.1, other.1);
    ask(
        one.0,
        RouteNetlinkMessage::NewLink(message),
        NLM_F_CREATE | NLM_F_EXCL,
        attempt,
    )?;
    Ok((Link::find(one.0, one.1)?, Link::find(other.0, other.1)?))
}

impl Link {
    /// The interface of this name in `namespace`, however it was made.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn find(namespace: &Namespace, name: &str) -> Result<Self, LabError> {
        let found = look_up(namespace, name)?;
        let mac = found
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Address(mac) => mac[..].try_into().ok(),
                _ => None,
            });
        Ok(Self {
            namespace: namespace.clone(),
            name: name.to_owned(),
            index: found.header.index,
            mac: mac.unwrap_or_default(),
        })
    }

    /// Waits until it carries frames: both ends of its cable are up, and the kernel has noticed.
    /// Until then it takes frames and loses them.
    ///
    /// # Errors
    ///
    /// If that does not come within ten seconds, or the link has been deleted.
    pub fn wait_for_carrier(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let up = LinkAttribute::OperState(State::Up);
        while !look_up(&self.namespace, &self.name)?
            .attributes
            .contains(&up)
        {
            if Instant::now() > deadline {
                let attempt = format!("send on {}, which has no carrier", self.name);
                return Err(LabError::new(attempt, io::ErrorKind::TimedOut.into()));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The number of frames that it has received since it was made, and their bytes, headers
    /// included.
    ///
    /// # Errors
    ///
    /// If it has been deleted.
    pub fn received(&self) -> Result<(u64, u64), LabError> {
        let found = look_up(&self.namespace, &self.name)?;
        let counts = found
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(counts) => Some((counts.rx_packets, counts.rx_bytes)),
                _ => None,
            });
        counts.ok_or_else(|| {
            let attempt = format!("ask what {} has received", self.name);
            LabError::new(attempt, io::ErrorKind::Unsupported.into())
        })
    }

    /// The namespace it is in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, never 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its Ethernet address; all zeros for a device that has none.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Sets it up. A cable carries frames while both its ends are up.
    ///
    /// # Errors
    ///
    /// If it has been deleted.
    pub fn up(&self) -> Result<(), LabError> {
        self.set_flags(LinkFlags::Up, "up")
    }

    /// Sets it down.
    ///
    /// # Errors
    ///
    /// If it has been deleted.
    pub fn down(&self) -> Result<(), LabError> {
        self.set_flags(LinkFlags::empty(), "down")
    }

    fn set_flags(&self, flags: LinkFlags, direction: &str) -> Result<(), LabError> {
        let mut message = self.message();
        message.header.flags = flags;
        message.header.change_mask = LinkFlags::Up;
        self.ask(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("set the link {} {direction}", self.name)
        })
    }

    /// Deletes it, and with it the other end of its cable.
    ///
    /// # Errors
    ///
    /// If that has been done already.
    pub fn delete(&self) -> Result<(), LabError> {
        self.ask(RouteNetlinkMessage::DelLink(self.message()), 0, || {
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
        let mut message = AddressMessage::default();
        message.header.family = match address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.prefix_len = prefix;
        message.header.index = self.index;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        self.ask(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
            || format!("give {} the address {address}/{prefix}", self.name),
        )
    }

    /// Turns off what a virtual device leaves to hardware that does not exist: checksums of what
    /// it sends, and the cutting of long segments into frames. Then what this end sends arrives
    /// whole: with checksums, and no longer than the MTU.
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

    /// Makes it slow: it sends `bytes_per_second`, in bursts of at most 2,000 bytes, and up to
    /// `queue` bytes wait before it. What finds no room there is lost, and its sender is told.
    ///
    /// # Errors
    ///
    /// If that has been done already, if the MTU is over 2,000, if the link has been deleted, or
    /// if the kernel has no token bucket filter (tbf).
    pub fn limit_rate(&self, bytes_per_second: u32, queue: u32) -> Result<(), LabError> {
        let message = shape::token_bucket(self.index, bytes_per_second, 2_000, queue);
        self.ask(
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
            || format!("limit {} to {bytes_per_second} bytes a second", self.name),
        )
    }

    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        message
    }

    fn ask(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        attempt: impl Fn() -> String,
    ) -> Result<(), LabError> {
        ask(&self.namespace, message, flags, attempt).map(drop)
    }
}

/// What the kernel says of the interface of this name.
fn look_up(namespace: &Namespace, name: &str) -> Result<LinkMessage, LabError> {
    let attempt = || format!("find the link {name}");
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    let answers = ask(namespace, RouteNetlinkMessage::GetLink(message), 0, attempt)?;
    match answers.into_iter().next() {
        Some(RouteNetlinkMessage::NewLink(found)) => Ok(found),
        _ => Err(LabError::new(attempt(), io::ErrorKind::InvalidData.into())),
    }
}

pub(crate) fn ask(
    namespace: &Namespace,
    message: RouteNetlinkMessage,
    flags: u16,
    attempt: impl Fn() -> String,
) -> Result<Vec<RouteNetlinkMessage>, LabError> {
    netlink::request(&namespace.route(), message, flags)
        .map_err(|error| LabError::new(attempt(), error))
}
