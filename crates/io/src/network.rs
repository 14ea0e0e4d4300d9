//! The kernel's own ways between two interfaces: bridges, routes, and devices above a port. Linux only.
//!
//! A program that joins two interfaces stands on a wire. Where the kernel bridges or routes between the same
//! two, packets take its way as well. [`Network`] is a snapshot of what decides that, from the kernel by
//! netlink: no privilege is needed, and `/proc` and `/sys`, which may be of another namespace, are not read.
//!
//! ```
//! use fairlane_io::network::{Network, Watch, Way};
//!
//! let mut watch = Watch::open()?;
//! let network: &Network = watch.network();
//! for way in network.ways_between("lan0", "wan0") {
//!     match way {
//!         Way::Bridge { bridge, .. } => println!("{bridge} forwards between both"),
//!         other => println!("{other:?}"),
//!     }
//! }
//! if watch.refresh()? {
//!     println!("something may have changed");
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairlane_netlink::{Answer, DUMP, Message, Protocol, Socket};

// Requests of linux/rtnetlink.h and netconf.h.
const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const GET_CONFIGURATION: u16 = 82;

// Attributes of linux/if_link.h, if_addr.h and netconf.h, by the message they are in.
const HARDWARE: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LOWER: u16 = 5;
const CONTROLLER: u16 = 10;
const INFO: u16 = 18;
const LOWER_NAMESPACE: u16 = 37;
const INFO_KIND: u16 = 1;
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;
const CONFIGURED: u16 = 1;
const FORWARDING: u16 = 2;

/// Bytes of struct ifinfomsg, of struct ifaddrmsg, and of struct netconfmsg with what follows it.
const LINK_FIXED: usize = 16;
const ADDRESS_FIXED: usize = 8;
const CONFIGURATION_FIXED: usize = 4;

/// The flag of an interface that is up.
const UP: u32 = 1;
/// The scope of an address that is valid on its link alone, and of those that are narrower.
pub(crate) const LINK_SCOPE: u8 = 253;
/// In the place of an interface: all of them together.
const ALL: u32 = u32::MAX;

const IPV4: u8 = libc::AF_INET as u8;
const IPV6: u8 = libc::AF_INET6 as u8;

/// The events after which a [`Network`] may be another: links, addresses and forwarding of both families
/// (`RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR`, and the groups 24 and 25).
const EVENTS: u32 = 0x1 | 0x10 | 0x100 | 1 << 23 | 1 << 24;

/// The interfaces, addresses and forwarding of a network namespace at one time.
#[derive(Clone, Debug, Default)]
pub struct Network {
    devices: Vec<Device>,
    addresses: Vec<Address>,
    /// Those on which IPv4 packets are forwarded that arrive there.
    forwards: Vec<u32>,
    /// Whether IPv6 packets are forwarded: Linux knows one setting for all interfaces.
    forwards_ipv6: bool,
}

/// An interface.
#[derive(Clone, Debug)]
struct Device {
    index: u32,
    name: String,
    kind: String,
    mtu: u32,
    hardware: Option<[u8; 6]>,
    is_up: bool,
    /// The bridge, bond or VRF that it is a part of.
    controller: Option<u32>,
    /// The interface that it sends by.
    lower: Option<u32>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug)]
struct Address {
    device: u32,
    address: IpAddr,
    length: u8,
    is_of_link: bool,
}

/// A way of the kernel's between two interfaces, or for packets of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Both interfaces, or devices above them, are ports of this bridge, which is up.
    Bridge {
        /// Its name.
        bridge: String,
        /// Its ports, in the order of the interfaces.
        ports: [String; 2],
    },
    /// The kernel routes between these two devices: it forwards, and both have addresses.
    Route {
        /// 4 or 6.
        version: u8,
        /// The interfaces, or devices above them.
        devices: [String; 2],
        /// Whether it certainly does. It may not where one has an address of its link alone, and between
        /// different VRFs.
        is_certain: bool,
    },
    /// A device uses the interface as well: a bridge, a bond, a macvlan and the like.
    Above {
        /// The interface.
        port: String,
        /// The device.
        device: String,
        /// Its kind, as `ip -details link` shows it.
        kind: String,
    },
}

impl Network {
    /// Reads that of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel cannot be asked.
    pub fn read() -> io::Result<Network> {
        Network::read_by(&Socket::open(Protocol::ROUTE)?)
    }

    fn read_by(socket: &Socket) -> io::Result<Network> {
        let links = socket.request(GET_LINK, DUMP, &Message::new([0; LINK_FIXED]))?;
        let addresses = socket.request(GET_ADDRESS, DUMP, &Message::new([0; ADDRESS_FIXED]))?;
        let forwarding = |family| {
            let message = Message::new([family, 0, 0, 0]);
            // A kernel without this family, or without this question, forwards nothing that is known.
            let answers = socket.request(GET_CONFIGURATION, DUMP, &message);
            answers.unwrap_or_default().into_iter().filter_map(forwards)
        };
        Ok(Network {
            devices: links.iter().filter_map(Device::of).collect(),
            addresses: addresses.iter().filter_map(Address::of).collect(),
            forwards: forwarding(IPV4).collect(),
            forwards_ipv6: forwarding(IPV6).any(|index| index == ALL),
        })
    }

    /// Returns the index of the interface of this name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<u32> {
        let device = self.devices.iter().find(|device| device.name == name);
        device.map(|device| device.index)
    }

    /// Returns the name of the interface of this index.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<&str> {
        self.device(index).map(|device| &*device.name)
    }

    /// Returns the MTU of the interface of this name, in bytes.
    #[must_use]
    pub fn mtu(&self, name: &str) -> Option<u32> {
        let device = self.devices.iter().find(|device| device.name == name);
        device.map(|device| device.mtu)
    }

    /// Returns the kind of the interface of this name, as `ip -details link` shows it; empty for
    /// hardware.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<&str> {
        let device = self.devices.iter().find(|device| device.name == name);
        device.map(|device| &*device.kind)
    }

    /// Returns the Ethernet address of the interface of this name.
    #[must_use]
    pub fn hardware(&self, name: &str) -> Option<[u8; 6]> {
        let device = self.devices.iter().find(|device| device.name == name);
        device?.hardware
    }

    /// Returns the addresses of the interface of this name, with the lengths of their prefixes, except those
    /// that are valid on its link alone.
    #[must_use]
    pub fn addresses(&self, name: &str) -> Vec<(IpAddr, u8)> {
        let index = self.index(name);
        let own = self.addresses.iter();
        let own = own.filter(|it| Some(it.device) == index && !it.is_of_link);
        own.map(|it| (it.address, it.length)).collect()
    }

    /// The kernel's ways between the interfaces of these names, and what uses either of them as well: none
    /// where an interface is not there. O(devices + addresses) for each device above them.
    #[must_use]
    pub fn ways_between(&self, one: &str, other: &str) -> Vec<Way> {
        let (Some(one), Some(other)) = (self.index(one), self.index(other)) else {
            return Vec::new();
        };
        let families = [self.family(one), self.family(other)];
        let mut ways: Vec<Way> = self.bridges(&families).collect();
        let bridges: Vec<String> = (ways.iter())
            .filter_map(|way| match way {
                Way::Bridge { bridge, .. } => Some(bridge.clone()),
                _ => None,
            })
            .collect();
        ways.extend(
            [4, 6]
                .into_iter()
                .filter_map(|version| self.route(version, &families)),
        );
        for family in &families {
            let above = self.above(family);
            ways.extend(above.filter(|way| {
                let Way::Above { device, .. } = way else {
                    return true;
                };
                !bridges.contains(device)
            }));
        }
        ways
    }

    fn device(&self, index: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.index == index)
    }

    /// Returns an interface and all devices above it: those that it is a part of, and those that
    /// send by it.
    fn family(&self, port: u32) -> Vec<&Device> {
        let mut family: Vec<&Device> = self.device(port).into_iter().collect();
        let mut next = 0;
        while let Some(&lower) = family.get(next) {
            next += 1;
            let above = self.devices.iter().filter(|device| {
                let holds = lower.controller == Some(device.index) && device.kind != "vrf";
                let sends = device.lower == Some(lower.index) && device.stands_above();
                let is_new = family.iter().all(|other| other.index != device.index);
                is_new && (holds || sends)
            });
            let above: Vec<&Device> = above.collect();
            family.extend(above);
        }
        family
    }

    /// Bridges that have a device of each family as a port.
    fn bridges<'a>(
        &'a self,
        [one, other]: &'a [Vec<&Device>; 2],
    ) -> impl Iterator<Item = Way> + 'a {
        let bridges = self.devices.iter();
        let bridges = bridges.filter(|device| device.kind == "bridge" && device.is_up);
        bridges.filter_map(|bridge| {
            let port = |family: &[&Device]| {
                let ports = family.iter();
                let mut ports = ports.filter(|port| port.controller == Some(bridge.index));
                ports.next().map(|port| port.name.clone())
            };
            let ports = [port(one)?, port(other)?];
            // A device above both is one port.
            (ports[0] != ports[1]).then(|| Way::Bridge {
                bridge: bridge.name.clone(),
                ports,
            })
        })
    }

    /// Returns whether the kernel routes between both families.
    fn route(&self, version: u8, [one, other]: &[Vec<&Device>; 2]) -> Option<Way> {
        let forwards = |device: &Device| match version {
            4 => self.forwards.contains(&device.index),
            _ => self.forwards_ipv6,
        };
        let mut found: Option<Way> = None;
        for (left, right) in one
            .iter()
            .flat_map(|left| other.iter().map(move |it| (left, it)))
        {
            let scopes = [left, right].map(|device| self.widest(version, device.index));
            let ([Some(wide), Some(also_wide)], true) = (scopes, forwards(left) || forwards(right))
            else {
                continue;
            };
            // Addresses of links alone are routed nowhere.
            if left.index == right.index || !(wide || also_wide) {
                continue;
            }
            let is_certain = wide && also_wide && self.vrf(left) == self.vrf(right);
            let way = Way::Route {
                version,
                devices: [left.name.clone(), right.name.clone()],
                is_certain,
            };
            if is_certain {
                return Some(way);
            }
            found.get_or_insert(way);
        }
        found
    }

    /// Returns whether an interface has an address that is valid beyond its link; none where it has no
    /// address.
    fn widest(&self, version: u8, device: u32) -> Option<bool> {
        let own = self.addresses.iter();
        let own = own.filter(|it| it.device == device && it.address.is_ipv4() == (version == 4));
        own.map(|it| !it.is_of_link).max()
    }

    /// Returns the VRF that it is a part of.
    fn vrf(&self, device: &Device) -> Option<u32> {
        let controller = self.device(device.controller?)?;
        (controller.kind == "vrf").then_some(controller.index)
    }

    /// Devices that use the first of a family as well.
    fn above<'a>(&'a self, family: &'a [&Device]) -> impl Iterator<Item = Way> + 'a {
        let port = family.first();
        port.into_iter().flat_map(move |port| {
            let above = family.iter().filter(move |device| {
                port.controller == Some(device.index)
                    || (device.lower == Some(port.index) && device.shares_port())
            });
            above.map(move |device| Way::Above {
                port: port.name.clone(),
                device: device.name.clone(),
                kind: device.kind.clone(),
            })
        })
    }
}

impl Device {
    fn of(answer: &Answer) -> Option<Device> {
        let text = |bytes: &[u8]| {
            let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        let number = |kind| {
            let value = answer.attribute(LINK_FIXED, kind)?;
            Some(u32::from_ne_bytes(*value.first_chunk()?))
        };
        let kind = answer.nested(LINK_FIXED, INFO, INFO_KIND);
        Some(Device {
            index: answer.number(4)?,
            name: text(answer.attribute(LINK_FIXED, NAME)?),
            kind: kind.map(text).unwrap_or_default(),
            mtu: number(MTU).unwrap_or(0),
            hardware: answer
                .attribute(LINK_FIXED, HARDWARE)
                .and_then(|it| it.try_into().ok()),
            is_up: answer.number(8)? & UP != 0,
            controller: number(CONTROLLER),
            // One of another namespace is none of these.
            lower: number(LOWER).filter(|_| number(LOWER_NAMESPACE).is_none()),
        })
    }

    /// Returns whether frames of the interface that it sends by are its own too. Others name an
    /// interface for another reason: the far end of a cable, the underlay of a tunnel.
    fn stands_above(&self) -> bool {
        self.shares_port() || matches!(&*self.kind, "vlan" | "macsec")
    }

    /// Returns whether it has an address of its own on that interface.
    fn shares_port(&self) -> bool {
        matches!(&*self.kind, "macvlan" | "macvtap" | "ipvlan" | "ipvtap")
    }
}

impl Address {
    fn of(answer: &Answer) -> Option<Address> {
        let [family, length, _, scope] = answer.number(0)?.to_ne_bytes();
        // Of two ends of a line, the near one.
        let bytes = answer
            .attribute(ADDRESS_FIXED, LOCAL_ADDRESS)
            .or_else(|| answer.attribute(ADDRESS_FIXED, ADDRESS))?;
        let address = ip(bytes).filter(|_| matches!(family, IPV4 | IPV6))?;
        Some(Address {
            device: answer.number(4)?,
            address,
            length,
            is_of_link: scope >= LINK_SCOPE,
        })
    }
}

/// Returns the IP address of as many bytes.
pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(*bytes.first_chunk()?).into()),
        16 => Some(Ipv6Addr::from(*bytes.first_chunk()?).into()),
        _ => None,
    }
}

/// Returns the interface that an answer is about, if packets are forwarded there.
fn forwards(answer: Answer) -> Option<u32> {
    let number = |kind| {
        let value = answer.attribute(CONFIGURATION_FIXED, kind)?;
        Some(u32::from_ne_bytes(*value.first_chunk()?))
    };
    (number(FORWARDING)? != 0).then(|| number(CONFIGURED))?
}

/// A [`Network`] that is kept up to date.
#[derive(Debug)]
pub struct Watch {
    requests: Socket,
    events: Socket,
    network: Network,
}

impl Watch {
    /// Watches that of the calling thread's network namespace, whichever thread asks later.
    ///
    /// # Errors
    ///
    /// The kernel cannot be asked.
    pub fn open() -> io::Result<Watch> {
        // Before the network is read, so that no later change is missed.
        let events = Socket::subscribe(Protocol::ROUTE, EVENTS)?;
        let requests = Socket::open(Protocol::ROUTE)?;
        Ok(Watch {
            network: Network::read_by(&requests)?,
            requests,
            events,
        })
    }

    /// Reads the network again if something may have changed; returns whether it did read. Without a change,
    /// one system call.
    ///
    /// # Errors
    ///
    /// The kernel cannot be asked. The network stays the same then.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let is_due = self.events.take_events()?;
        if is_due {
            self.network = Network::read_by(&self.requests)?;
        }
        Ok(is_due)
    }

    /// Returns the network of the last read.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices by kind and name; their indexes count from 1.
    fn network(devices: &[(&str, &str)]) -> Network {
        let devices = (1..).zip(devices).map(|(index, (kind, name))| Device {
            index,
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            mtu: 1_500,
            hardware: None,
            is_up: true,
            controller: None,
            lower: None,
        });
        Network {
            devices: devices.collect(),
            ..Network::default()
        }
    }

    impl Network {
        fn device_mut(&mut self, name: &str) -> &mut Device {
            let mut devices = self.devices.iter_mut();
            devices.find(|device| device.name == name).unwrap()
        }

        fn join(mut self, name: &str, controller: &str) -> Network {
            self.device_mut(name).controller = self.index(controller);
            self
        }

        fn stack(mut self, name: &str, lower: &str) -> Network {
            self.device_mut(name).lower = self.index(lower);
            self
        }

        fn address(mut self, name: &str, address: &str) -> Network {
            let device = self.index(name).unwrap();
            let address: IpAddr = address.parse().unwrap();
            self.addresses.push(Address {
                device,
                address,
                length: 24,
                is_of_link: address.to_string().starts_with("fe80"),
            });
            self
        }

        fn forwarding(mut self) -> Network {
            self.forwards = self.devices.iter().map(|device| device.index).collect();
            self.forwards_ipv6 = true;
            self
        }
    }

    fn route(version: u8, devices: [&str; 2], is_certain: bool) -> Way {
        Way::Route {
            version,
            devices: devices.map(str::to_owned),
            is_certain,
        }
    }

    fn above(port: &str, device: &str, kind: &str) -> Way {
        let [port, device, kind] = [port, device, kind].map(str::to_owned);
        Way::Above { port, device, kind }
    }

    #[test]
    fn this_machine_is_read_as_it_is() {
        let network = Network::read().unwrap();
        let loopback = network.index("lo").unwrap();
        assert_eq!(network.name(loopback), Some("lo"));
        assert_eq!(network.mtu("lo"), Some(65_536));
        assert_eq!(network.mtu("nosuch0"), None);
        assert_eq!(network.ways_between("lo", "nosuch0"), []);
        assert_eq!(network.ways_between("lo", "lo"), []);
    }

    #[test]
    fn forwarding_routes_between_ports_with_addresses() {
        let ports = network(&[("", "lan0"), ("", "wan0")]);
        let both = ports.address("lan0", "192.0.2.1");
        let both = both.address("wan0", "198.51.100.1");
        assert_eq!(both.ways_between("lan0", "wan0"), []);
        let on = both.forwarding();
        let expected = [route(4, ["lan0", "wan0"], true)];
        assert_eq!(on.ways_between("lan0", "wan0"), expected);
        // One of a family each is not enough.
        let ports = network(&[("", "lan0"), ("", "wan0")]).forwarding();
        let mixed = ports.address("lan0", "192.0.2.1");
        let mixed = mixed.address("wan0", "2001:db8::1");
        assert_eq!(mixed.ways_between("lan0", "wan0"), []);
        // Of links alone nothing is routed; from one of them perhaps.
        let ports = network(&[("", "lan0"), ("", "wan0")]).forwarding();
        let links = ports.address("lan0", "fe80::1").address("wan0", "fe80::2");
        assert_eq!(links.ways_between("lan0", "wan0"), []);
        let perhaps = links.address("lan0", "2001:db8::1");
        let expected = [route(6, ["lan0", "wan0"], false)];
        assert_eq!(perhaps.ways_between("lan0", "wan0"), expected);
    }

    #[test]
    fn routes_and_bridges_are_found_above_the_ports_too() {
        let all = [
            ("", "lan0"),
            ("", "wan0"),
            ("bridge", "br0"),
            ("vlan", "wan0.7"),
        ];
        let router = network(&all).join("lan0", "br0").stack("wan0.7", "wan0");
        let router = router.address("br0", "192.0.2.1");
        let router = router.address("wan0.7", "198.51.100.1").forwarding();
        let expected = [
            route(4, ["br0", "wan0.7"], true),
            above("lan0", "br0", "bridge"),
        ];
        assert_eq!(router.ways_between("lan0", "wan0"), expected);
        let mut bridged = network(&all).join("lan0", "br0").join("wan0.7", "br0");
        bridged = bridged.stack("wan0.7", "wan0");
        let expected = [Way::Bridge {
            bridge: "br0".to_owned(),
            ports: ["lan0", "wan0.7"].map(str::to_owned),
        }];
        assert_eq!(bridged.ways_between("lan0", "wan0"), expected);
        bridged.device_mut("br0").is_up = false;
        let expected = [above("lan0", "br0", "bridge")];
        assert_eq!(bridged.ways_between("lan0", "wan0"), expected);
    }

    #[test]
    fn a_bond_or_macvlan_above_a_port_is_found_and_a_cable_is_none() {
        let all = [("", "lan0"), ("", "wan0"), ("bond", "bond0")];
        let bond = network(&all).join("lan0", "bond0").join("wan0", "bond0");
        let expected = ["lan0", "wan0"].map(|port| above(port, "bond0", "bond"));
        assert_eq!(bond.ways_between("lan0", "wan0"), expected);
        let all = [("veth", "lan0"), ("veth", "wan0"), ("macvlan", "mv0")];
        let macvlan = network(&all).stack("mv0", "wan0").stack("lan0", "wan0");
        let expected = [above("wan0", "mv0", "macvlan")];
        assert_eq!(macvlan.ways_between("lan0", "wan0"), expected);
    }

    #[test]
    fn routes_between_vrfs_are_not_certain() {
        let all = [("", "lan0"), ("", "wan0"), ("vrf", "red"), ("vrf", "blue")];
        let ports = network(&all).address("lan0", "192.0.2.1");
        let ports = ports
            .address("wan0", "198.51.100.1")
            .address("red", "203.0.113.1");
        let one = ports.forwarding().join("lan0", "red").join("wan0", "red");
        let expected = [route(4, ["lan0", "wan0"], true)];
        assert_eq!(one.ways_between("lan0", "wan0"), expected);
        let two = one.join("wan0", "blue");
        let expected = [route(4, ["lan0", "wan0"], false)];
        assert_eq!(two.ways_between("lan0", "wan0"), expected);
    }
}
