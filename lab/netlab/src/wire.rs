//! Hosts on both sides of a middle one.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::{Echo, LabError, Link, Namespace, bridge, veth_with_queues};

/// The hosts' MTU in bytes.
const MTU: u32 = 1_500;

/// A host with one interface.
#[derive(Clone, Debug)]
pub struct Host {
    link: Link,
    address: IpAddr,
}

impl Host {
    /// Returns a host of this interface, which is given the address, with a network of 24 bits. TCP
    /// remembers nothing from one connection to the next.
    ///
    /// # Errors
    ///
    /// See [`Link::add_address`] and [`Namespace::set_parameter`].
    pub fn new(link: Link, address: Ipv4Addr) -> Result<Host, LabError> {
        let address = IpAddr::V4(address);
        link.add_address(address, 24)?;
        let namespace = link.namespace();
        // Else a connection begins with what an earlier one found of the way.
        namespace.set_parameter("ipv4/tcp_no_metrics_save", "1")?;
        // ARP resolves once for a measurement, not again in the middle of it.
        let reachable = format!("ipv4/neigh/{}/base_reachable_time_ms", link.name());
        namespace.set_parameter(&reachable, "3600000")?;
        Ok(Host { link, address })
    }

    /// Returns its interface.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns its namespace.
    pub fn namespace(&self) -> &Namespace {
        self.link.namespace()
    }

    /// Returns its address.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

/// Senders, a middle that nothing passes by itself, and a receiver, all in one Ethernet:
///
/// ```text
/// sender 0 ──┐
/// sender 1 ──┴─ inside | middle | outside ── receiver
/// ```
///
/// Every host and the middle are a namespace; more than one sender are joined by a bridge in
/// another. TCP remembers nothing from one connection to the next.
#[derive(Clone, Debug)]
pub struct Wire {
    senders: Vec<Host>,
    receiver: Host,
    inside: Link,
    outside: Link,
    /// The switch between several senders. It exists as long as this refers to it.
    _switch: Option<Link>,
}

impl Wire {
    /// Makes a wire with `senders` senders, at least one. No device has offloads: frames have checksums, and at most
    /// 1,514 bytes.
    ///
    /// # Errors
    ///
    /// See [`Namespace::new`], [`veth`](crate::veth) and [`bridge`].
    pub fn new(senders: u8) -> Result<Wire, LabError> {
        Wire::made(senders, true, MTU, 1)
    }

    /// The same with `queues` queues at each device, and this MTU in bytes. The kernel assigns flows to queues
    /// arbitrarily; frames on queue *n* arrive at the other end's queue *n*.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new), and for no queues or more than 4,096.
    pub fn with_queues(senders: u8, mtu: u32, queues: u32) -> Result<Wire, LabError> {
        Wire::made(senders, true, mtu, queues)
    }

    /// The same with the devices' default offloads: they leave checksums, and segmentation, to hardware that does
    /// not exist.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn with_offloads(senders: u8) -> Result<Wire, LabError> {
        Wire::made(senders, false, MTU, 1)
    }

    fn made(senders: u8, whole: bool, mtu: u32, queues: u32) -> Result<Wire, LabError> {
        let cable = |one: (&Namespace, &str), other: (&Namespace, &str)| {
            cable(veth_with_queues(one, other, mtu, queues)?, whole)
        };
        let middle = Namespace::new()?;
        let receiver = Namespace::new()?;
        let (outside, far) = cable((&middle, "outside"), (&receiver, "host"))?;
        let (inside, hosts, switch) = if senders > 1 {
            let switch = Namespace::new()?;
            let (inside, trunk) = cable((&middle, "inside"), (&switch, "trunk"))?;
            let mut ports = vec![trunk];
            let mut hosts = Vec::new();
            for number in 0..senders {
                let name = format!("port{number}");
                let (port, host) = cable((&switch, &name), (&Namespace::new()?, "host"))?;
                ports.push(port);
                hosts.push(host);
            }
            let switch = bridge(&switch, "switch", &ports.iter().collect::<Vec<_>>())?;
            (inside, hosts, Some(switch))
        } else {
            let (inside, host) = cable((&middle, "inside"), (&Namespace::new()?, "host"))?;
            (inside, vec![host], None)
        };
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        Ok(Wire {
            senders: (1..)
                .zip(hosts)
                .map(|(number, link)| Host::new(link, address(number)))
                .collect::<Result<_, _>>()?,
            receiver: Host::new(far, address(254))?,
            inside,
            outside,
            _switch: switch,
        })
    }

    /// Returns the sender of this number, from 0; its address is 10.0.0.(number + 1).
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn sender(&self, number: usize) -> &Host {
        &self.senders[number]
    }

    /// Returns the receiver; its address is 10.0.0.254.
    pub fn receiver(&self) -> &Host {
        &self.receiver
    }

    /// Returns the namespace between them, with the interfaces `inside` (to the senders) and
    /// `outside`.
    pub fn middle(&self) -> &Namespace {
        self.inside.namespace()
    }

    /// Returns all hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.senders.iter().chain([&self.receiver])
    }

    /// Lets the kernel forward between both sides, as an Ethernet bridge, until the link that is
    /// returned is deleted.
    ///
    /// # Errors
    ///
    /// See [`bridge`].
    pub fn forward(&self) -> Result<Link, LabError> {
        bridge(self.middle(), "bridge", &[&self.inside, &self.outside])
    }

    /// Waits until all senders and the receiver reach each other; returns whether they did in time.
    ///
    /// # Errors
    ///
    /// See [`Echo::between`].
    pub fn is_through(&self, patience: Duration) -> Result<bool, LabError> {
        let deadline = Instant::now() + patience;
        for sender in &self.senders {
            let mut echo = Echo::between(sender, &self.receiver, 7)?;
            // A late answer counts as none: on a busy machine it may take as long each time.
            let mut wait = Duration::from_millis(50);
            while echo.round_trip(1, 1, wait).is_none() {
                if Instant::now() > deadline {
                    return Ok(false);
                }
                wait = (2 * wait).min(Duration::from_secs(1));
            }
        }
        Ok(true)
    }
}

/// Returns a cable that is up, without offloads if requested.
fn cable((one, other): (Link, Link), whole: bool) -> Result<(Link, Link), LabError> {
    for link in [&one, &other] {
        if whole {
            link.turn_offloads_off()?;
        }
        link.up()?;
    }
    one.wait_for_carrier()?;
    other.wait_for_carrier()?;
    Ok((one, other))
}
