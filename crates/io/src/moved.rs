//! Addresses and routes of an interface that another one has for a time.

use std::fs;
use std::io;
use std::net::IpAddr;

use fairlane_netlink::{APPEND, Answer, CREATE, DUMP, Message, Protocol, Socket};

use crate::network::{self, Network};
use crate::sys::interface::Interface;

// Requests of linux/rtnetlink.h.
const SET_LINK: u16 = 19;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;

// Attributes, by the message they are in.
const HARDWARE_ADDRESS: u16 = 1;
const MTU: u16 = 4;
const ADDRESS_LABEL: u16 = 3;
const ADDRESS_LIFETIME: u16 = 6;
const ADDRESS_FLAGS: u16 = 8;
const TO: u16 = 1;
const BY: u16 = 4;
const GATEWAY: u16 = 5;
const MULTIPATH: u16 = 9;
const CACHE: u16 = 12;
const EXPIRES: u16 = 23;
const NEXT_HOP: u16 = 30;

/// Bytes of struct ifaddrmsg, and of struct rtmsg.
const ADDRESS_FIXED: usize = 8;
const ROUTE_FIXED: usize = 12;
/// Bytes of struct rtnexthop, with its flags at the third.
const HOP_FIXED: usize = 8;

const IPV6: u8 = libc::AF_INET6 as u8;
/// Of an IPv6 address: it is used at once, without a search for duplicates.
const NO_SEARCH: u32 = 0x02;
/// The flag of a route whose gateway needs no other route, and that of an entry of a cache.
const ON_LINK: u32 = 4;
const CACHED: u32 = 0x200;
/// The table that the kernel keeps itself, and the type of a route to one destination.
const LOCAL_TABLE: u8 = 255;
const UNICAST: u8 = 1;
/// Ticks in a second, in times that the kernel shows.
const TICKS: u32 = 100;

/// Settings that are copied to the interface that has the addresses.
const COPIED: [&str; 3] = ["ipv4/forwarding", "ipv4/rp_filter", "ipv6/accept_ra"];
/// Settings of the interface without addresses: it neither answers for them nor learns others.
const QUIET: [(&str, &str); 2] = [("ipv4/arp_ignore", "1"), ("ipv6/disable_ipv6", "1")];
/// With these an interface whose hardware address is set announces its addresses.
const ANNOUNCING: [&str; 2] = ["ipv4/arp_notify", "ipv6/ndisc_notify"];

/// Addresses and routes of an interface, and the interface that has them now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The name of the interface that has it.
    to: String,
    /// Settings by their paths below `conf`, without the interface.
    settings: Vec<(String, String)>,
    /// As the kernel described them.
    addresses: Vec<Vec<u8>>,
    routes: Vec<Vec<u8>>,
}

impl Moved {
    /// Reads those of the interface `from`, to be moved to `to`. Nothing is changed yet.
    ///
    /// # Errors
    ///
    /// The kernel cannot be asked. A route has next hops by the interface and by others: without the addresses the
    /// kernel would drop that route for good.
    pub(crate) fn plan(from: &str, to: &str) -> io::Result<Moved> {
        let socket = Socket::open(Protocol::ROUTE)?;
        let index = index(from)?;
        let addresses = socket.request(GET_ADDRESS, DUMP, &Message::new([0; ADDRESS_FIXED]))?;
        let addresses = addresses.iter().filter(|it| {
            let scope = it.number(0).unwrap_or_default().to_ne_bytes()[3];
            it.number(4) == Some(index) && scope < network::LINK_SCOPE
        });
        let routes = all_routes(&socket)?;
        let is_divided = |route: &&Answer| {
            let by = devices(route);
            by.contains(&index) && by.iter().any(|&other| other != index)
        };
        if let Some(route) = routes.iter().find(is_divided) {
            let to = route.attribute(ROUTE_FIXED, TO).and_then(network::ip);
            let to = to.map_or_else(|| "default".to_owned(), |to| to.to_string());
            return Err(io::Error::other(format!(
                "the route to {to} has next hops by other interfaces too (all must be by {from})"
            )));
        }
        let settings = QUIET.iter().filter_map(|&(key, _)| {
            let value = fs::read_to_string(path(key, from)).ok()?;
            Some((key.to_owned(), value.trim().to_owned()))
        });
        Ok(Moved {
            to: to.to_owned(),
            settings: settings.collect(),
            addresses: addresses.map(|it| it.bytes().to_vec()).collect(),
            routes: routes_by(routes, index),
        })
    }

    /// Moves them. After an error the caller [gives them back](Self::give_back).
    pub(crate) fn carry_out(&self, from: &str) -> io::Result<()> {
        let socket = Socket::open(Protocol::ROUTE)?;
        let [source, target] = [index(from)?, index(&self.to)?];
        for key in COPIED {
            if let Ok(value) = fs::read_to_string(path(key, from)) {
                set(key, &self.to, &value)?;
            }
        }
        for (key, value) in QUIET {
            set(key, from, value)?;
        }
        self.delete(&socket, source);
        self.add(&socket, target, Lifetime::Unlimited)?;
        announce(&socket, &self.to, target);
        Ok(())
    }

    /// Moves them back to the interface `name`, as far as the kernel allows. If the interface is gone, the other
    /// one keeps them.
    pub(crate) fn give_back(&self, name: &str) {
        let (Ok(socket), Ok(target)) = (Socket::open(Protocol::ROUTE), index(name)) else {
            return;
        };
        if let Ok(source) = index(&self.to) {
            self.delete(&socket, source);
        }
        for (key, value) in &self.settings {
            let _ = set(key, name, value);
        }
        let _ = self.add(&socket, target, Lifetime::Kept);
        announce(&socket, name, target);
    }

    /// Whether an interface has them for this one.
    pub(crate) fn is_elsewhere(&self) -> bool {
        index(&self.to).is_ok()
    }

    /// Returns whether the interface of this name has them.
    pub(crate) fn is_at(&self, to: &str) -> bool {
        self.to == to
    }

    /// Adds those that another interface has kept.
    pub(crate) fn join(&mut self, kept: Moved) {
        for (own, more) in [
            (&mut self.addresses, kept.addresses),
            (&mut self.routes, kept.routes),
        ] {
            let more = more.into_iter().filter(|it| !own.contains(it));
            own.extend(more.collect::<Vec<_>>());
        }
    }

    fn delete(&self, socket: &Socket, from: u32) {
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|it| (DELETE_ADDRESS, address_at(it, from, Lifetime::Kept)));
        // IPv6 routes stay without the addresses, and then those of the other interface are rejected.
        let routes = self.routes.iter().rev();
        let routes = routes.map(|it| (DELETE_ROUTE, route_by(it, from)));
        for (kind, message) in routes.chain(addresses) {
            // One may be gone with another, or by a setting.
            let _ = socket.request(kind, 0, &message);
        }
    }

    /// Adds all that can be; the first error if something cannot.
    fn add(&self, socket: &Socket, to: u32, lifetime: Lifetime) -> io::Result<()> {
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|it| (NEW_ADDRESS, CREATE, address_at(it, to, lifetime)));
        // Several routers may advertise a default route of one metric.
        let routes = self.routes.iter();
        let routes = routes.map(|it| (NEW_ROUTE, APPEND, route_by(it, to)));
        let mut result = Ok(());
        for (kind, flags, message) in addresses.chain(routes) {
            match socket.request(kind, flags, &message) {
                // The kernel adds the route to an address's network by itself.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if result.is_ok() => result = Err(error),
                _ => {}
            }
        }
        result
    }

    /// Lines for a note.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("moved-to {}\n", self.to);
        for (key, value) in &self.settings {
            text += &format!("setting {key} {value}\n");
        }
        for (word, all) in [("address", &self.addresses), ("route", &self.routes)] {
            for bytes in all {
                text += &format!("{word} {}\n", hexadecimal(bytes));
            }
        }
        text
    }

    /// Reads the lines of a note; none where nothing was moved.
    pub(crate) fn of_text(text: &str) -> Option<Moved> {
        let mut moved = Moved::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("moved-to", name)) => name.clone_into(&mut moved.to),
                Some(("setting", setting)) => {
                    let (key, value) = setting.split_once(' ')?;
                    moved.settings.push((key.to_owned(), value.to_owned()));
                }
                Some(("address", bytes)) => moved.addresses.push(of_hexadecimal(bytes)?),
                Some(("route", bytes)) => moved.routes.push(of_hexadecimal(bytes)?),
                _ => {}
            }
        }
        (!moved.to.is_empty()).then_some(moved)
    }
}

/// Returns the gateways of default routes by the interface of this index.
pub(crate) fn gateways(index: u32) -> io::Result<Vec<IpAddr>> {
    let socket = Socket::open(Protocol::ROUTE)?;
    let routes = routes_by(all_routes(&socket)?, index);
    let routes = routes.into_iter().map(Answer::new);
    let defaults = routes.filter(|route| route.attribute(ROUTE_FIXED, TO).is_none());
    let gateways = defaults.flat_map(|route| {
        let own = route.attribute(ROUTE_FIXED, GATEWAY).map(<[u8]>::to_vec);
        let others = hops(&route).into_iter();
        let others = others.filter_map(|hop| Some(hop.attribute(HOP_FIXED, GATEWAY)?.to_vec()));
        own.into_iter().chain(others).collect::<Vec<_>>()
    });
    Ok(gateways.filter_map(|bytes| network::ip(&bytes)).collect())
}

/// Gives an interface this hardware address, and an MTU of at most `mtu` bytes.
pub(crate) fn set_up(name: &str, hardware: [u8; 6], mtu: u32) -> io::Result<()> {
    let socket = Socket::open(Protocol::ROUTE)?;
    let message = link(index(name)?).with(HARDWARE_ADDRESS, &hardware);
    let message = match Network::read()?.mtu(name) {
        Some(own) if own > mtu => message.with_number(MTU, mtu),
        _ => message,
    };
    socket.request(SET_LINK, 0, &message).map(drop)
}

/// Makes the kernel announce the addresses of an interface to its neighbours, which it does when the hardware
/// address is set, even to the same value.
fn announce(socket: &Socket, name: &str, index: u32) {
    let Some(hardware) = Network::read()
        .ok()
        .and_then(|network| network.hardware(name))
    else {
        return;
    };
    let former = ANNOUNCING.map(|key| fs::read_to_string(path(key, name)).ok());
    for key in ANNOUNCING {
        let _ = set(key, name, "1");
    }
    // A driver may not: neighbours find out later.
    let message = link(index).with(HARDWARE_ADDRESS, &hardware);
    let _ = socket.request(SET_LINK, 0, &message);
    for (key, value) in ANNOUNCING.iter().zip(former) {
        let _ = value.map(|value| set(key, name, &value));
    }
}

/// Begins a message on an interface: struct ifinfomsg.
fn link(index: u32) -> Message {
    let fixed: Vec<u8> = [0, index, 0, 0]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    Message::new(fixed)
}

/// Returns the routes by an interface that are not the kernel's own, those without a gateway first: others
/// need them.
fn routes_by(routes: Vec<Answer>, index: u32) -> Vec<Vec<u8>> {
    let mut routes: Vec<Answer> = routes
        .into_iter()
        .filter(|route| {
            let [_, _, _, _, table, _, _, kind] =
                route.bytes().first_chunk().copied().unwrap_or_default();
            let to = route.attribute(ROUTE_FIXED, TO).and_then(network::ip);
            let is_of_link = matches!(to, Some(IpAddr::V6(to)) if to.is_unicast_link_local());
            let is_cached = route.number(8).unwrap_or(0) & CACHED != 0;
            devices(route).first() == Some(&index)
                && table != LOCAL_TABLE
                && kind == UNICAST
                && !is_of_link
                && !is_cached
        })
        .collect();
    routes.sort_by_key(|route| {
        let has = |kind| route.attribute(ROUTE_FIXED, kind).is_some();
        has(GATEWAY) || has(MULTIPATH)
    });
    routes.iter().map(|route| route.bytes().to_vec()).collect()
}

fn all_routes(socket: &Socket) -> io::Result<Vec<Answer>> {
    socket.request(GET_ROUTE, DUMP, &Message::new([0; ROUTE_FIXED]))
}

/// Returns the next hops of a route that has several: each is a struct rtnexthop with attributes.
fn hops(route: &Answer) -> Vec<Answer> {
    let mut rest = route.attribute(ROUTE_FIXED, MULTIPATH).unwrap_or_default();
    let mut hops = Vec::new();
    while let Some(&[low, high, ..]) = rest.first_chunk::<HOP_FIXED>() {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let Some(hop) = rest.get(..length.max(HOP_FIXED)) else {
            break;
        };
        hops.push(Answer::new(hop.to_vec()));
        rest = rest
            .get(hop.len().next_multiple_of(4)..)
            .unwrap_or_default();
    }
    hops
}

/// Returns the interfaces that a route sends by.
fn devices(route: &Answer) -> Vec<u32> {
    let own = route.attribute(ROUTE_FIXED, BY);
    let own = own.and_then(|by| by.first_chunk());
    let own = own.map(|&by| u32::from_ne_bytes(by));
    let hops = hops(route).into_iter();
    own.into_iter()
        .chain(hops.filter_map(|hop| hop.number(4)))
        .collect()
}

/// The same next hops by another interface.
fn hops_by(route: &Answer, index: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for hop in hops(route) {
        let mut hop = hop.bytes().to_vec();
        hop[2] &= ON_LINK as u8;
        hop[4..HOP_FIXED].copy_from_slice(&index.to_ne_bytes());
        hop.resize(hop.len().next_multiple_of(4), 0);
        bytes.extend(hop);
    }
    bytes
}

/// Whether an address that was learned expires at the other interface.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// As the kernel described it.
    Kept,
    /// It never does: advertisements and leases that would renew it name the first interface.
    Unlimited,
}

/// Returns an address as the kernel described it, at another interface.
fn address_at(bytes: &[u8], index: u32, lifetime: Lifetime) -> Message {
    let answer = Answer::new(bytes.to_vec());
    let mut fixed = bytes.get(..4).unwrap_or_default().to_vec();
    fixed.extend(index.to_ne_bytes());
    let is_ipv6 = bytes.first() == Some(&IPV6);
    let mut message = Message::new(fixed);
    for (kind, value) in answer.attributes(ADDRESS_FIXED) {
        message = match (kind, value.first_chunk()) {
            // It begins with the name of the interface.
            (ADDRESS_LABEL, _) => message,
            (ADDRESS_LIFETIME, _) if lifetime == Lifetime::Unlimited => message,
            (ADDRESS_FLAGS, Some(&flags)) if is_ipv6 => {
                message.with_number(kind, u32::from_ne_bytes(flags) | NO_SEARCH)
            }
            _ => message.with(kind, value),
        };
    }
    message
}

/// Returns a route as the kernel described it, by another interface.
fn route_by(bytes: &[u8], index: u32) -> Message {
    let answer = Answer::new(bytes.to_vec());
    let mut fixed = bytes.get(..8).unwrap_or_default().to_vec();
    fixed.extend((answer.number(8).unwrap_or(0) & ON_LINK).to_ne_bytes());
    let mut message = Message::new(fixed);
    for (kind, value) in answer.attributes(ROUTE_FIXED) {
        message = match kind {
            BY => message.with_number(kind, index),
            MULTIPATH => message.with(kind, &hops_by(&answer, index)),
            NEXT_HOP => message,
            // struct rta_cacheinfo: a route that was learned may expire.
            CACHE => match value.get(8..).and_then(|rest| rest.first_chunk()) {
                Some(&ticks) if i32::from_ne_bytes(ticks) > 0 => {
                    message.with_number(EXPIRES, u32::from_ne_bytes(ticks) / TICKS)
                }
                _ => message,
            },
            _ => message.with(kind, value),
        };
    }
    message
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let places = (0..text.len()).step_by(2);
    places
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

fn index(name: &str) -> io::Result<u32> {
    Ok(Interface::find(name)?.index())
}

/// Returns the file of a setting of an interface: `key` is a family and a name.
fn path(key: &str, interface: &str) -> String {
    let (family, key) = key.split_once('/').unwrap_or_default();
    format!("/proc/sys/net/{family}/conf/{interface}/{key}")
}

/// Writes a setting. A kernel without IPv6 has none of it.
fn set(key: &str, interface: &str, value: &str) -> io::Result<()> {
    let path = path(key, interface);
    match fs::write(&path, value.trim()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io::Error::new(
            error.kind(),
            format!("{path} cannot be written: {error}"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learned_address_does_not_expire_at_the_other_interface() {
        let mut fixed = vec![IPV6, 64, 0, 0];
        fixed.extend(3_u32.to_ne_bytes());
        let message = Message::new(fixed).with(ADDRESS_LIFETIME, &[1; 16]);
        let learned = message.with(1, &[0x20; 16]);
        let bytes = learned.bytes();
        let lifetimes = [Lifetime::Kept, Lifetime::Unlimited].map(|lifetime| {
            let message = address_at(bytes, 7, lifetime);
            let answer = Answer::new(message.bytes().to_vec());
            assert_eq!(answer.number(4), Some(7));
            assert!(answer.attribute(ADDRESS_FIXED, 1).is_some());
            answer.attribute(ADDRESS_FIXED, ADDRESS_LIFETIME).is_some()
        });
        assert_eq!(lifetimes, [true, false]);
    }

    #[test]
    fn a_route_with_several_next_hops_moves_with_all_of_them() {
        let hop = |index: u32, flags: u8, gateway: u8| {
            let mut hop = vec![16, 0, flags, 3];
            hop.extend(index.to_ne_bytes());
            hop.extend([8, 0, GATEWAY as u8, 0, 192, 0, 2, gateway]);
            hop
        };
        let several = [hop(2, 0x10, 1), hop(5, 4, 2)].concat();
        let route = |hops: &[u8]| {
            let message = Message::new([0; ROUTE_FIXED]).with(MULTIPATH, hops);
            Answer::new(message.bytes().to_vec())
        };
        assert_eq!(devices(&route(&several)), [2, 5]);
        // A link that was down is not one of the next hops' properties; the weight is.
        let expected = [hop(7, 0, 1), hop(7, 4, 2)].concat();
        assert_eq!(hops_by(&route(&several), 7), expected);
        let one = Message::new([0; ROUTE_FIXED]).with_number(BY, 2);
        assert_eq!(devices(&Answer::new(one.bytes().to_vec())), [2]);
        // A length of zero, or beyond the end, ends nowhere.
        assert_eq!(devices(&route(&[0; 12])), [0]);
        assert_eq!(devices(&route(&several[..20])), [2]);
    }

    #[test]
    fn a_note_says_what_was_moved() {
        let moved = Moved {
            to: "fair0".to_owned(),
            settings: vec![("ipv4/arp_ignore".to_owned(), "0".to_owned())],
            addresses: vec![vec![2, 24, 0x80, 0], vec![0xff]],
            routes: vec![vec![0; 12]],
        };
        let text = format!("boot b\npid 1\noff gro\n{}", moved.text());
        assert_eq!(Moved::of_text(&text), Some(moved));
        assert_eq!(Moved::of_text("boot b\noff gro\n"), None);
        // Of a torn note nothing is taken.
        for torn in [
            "moved-to t\naddress 0",
            "moved-to t\nroute zz",
            "moved-to t\nsetting a",
        ] {
            assert_eq!(Moved::of_text(torn), None, "{torn}");
        }
    }
}
