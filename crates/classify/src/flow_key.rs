//! The fields that the packets of one flow share, as reported to operators.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::field::mask;
use crate::{Origin, Owner, Per};
use fairlane_wire::{Dscp, Family, Fragment, Headers, Ports, Protocol, VlanId};

/// The common fields of a flow's packets: equal if their [`Per::digest`] is equal. It cannot be
/// derived from a digest. Displayed, it is the operator's name of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlowKey {
    /// Packets other than IP, where flows are defined by IP fields.
    NotIp,
    /// An address.
    Address(IpAddr),
    /// The MAC address of a frame that is not IP.
    Mac([u8; 6]),
    /// This many leading bits of an address; the others are zero.
    Subnet(IpAddr, u8),
    /// Addresses, protocol and ports.
    FiveTuple {
        /// The source address.
        source: IpAddr,
        /// The destination address.
        destination: IpAddr,
        /// The payload protocol.
        protocol: Option<Protocol>,
        /// Where the protocol has some.
        ports: Option<Ports>,
    },
    /// All fragments from the first address to the second.
    Fragments(IpAddr, IpAddr),
    /// The outermost VLAN, or none.
    Vlan(Option<VlanId>),
    /// A code point.
    Dscp(Dscp),
    /// A process, or what none sent.
    Owner(Option<Owner>),
}

impl Per {
    /// Returns the common fields of a packet's flow. O(1).
    pub fn key(self, headers: &Headers, origin: &Origin) -> FlowKey {
        match self {
            Per::Vlan => return FlowKey::Vlan(headers.vlan),
            Per::Owner => return FlowKey::Owner(origin.owner),
            _ => {}
        }
        let mac = |address: u128| {
            let [.., a, b, c, d, e, f] = address.to_be_bytes();
            FlowKey::Mac([a, b, c, d, e, f])
        };
        let width = match (headers.family, self) {
            (Family::V4, _) => 32,
            (Family::V6, _) => 128,
            (Family::Other, Per::SourceIp) => return mac(headers.source),
            (Family::Other, Per::DestinationIp) => return mac(headers.destination),
            (Family::Other, _) => return FlowKey::NotIp,
        };
        let subnet = |address: u128, len: u8| {
            let len = len.min(width);
            FlowKey::Subnet(ip(headers.family, address & mask(width, len)), len)
        };
        let source = ip(headers.family, headers.source);
        let destination = ip(headers.family, headers.destination);
        match self {
            Per::SourceIp => FlowKey::Address(source),
            Per::DestinationIp => FlowKey::Address(destination),
            Per::SourceSubnet(len) => subnet(headers.source, len),
            Per::DestinationSubnet(len) => subnet(headers.destination, len),
            Per::FiveTuple if headers.fragment == Fragment::No => FlowKey::FiveTuple {
                source,
                destination,
                protocol: headers.protocol,
                ports: headers.ports,
            },
            Per::FiveTuple => FlowKey::Fragments(source, destination),
            Per::Dscp => FlowKey::Dscp(headers.dscp),
            Per::Vlan | Per::Owner => FlowKey::NotIp,
        }
    }
}

/// Returns an address as [`Headers`] has it.
fn ip(family: Family, address: u128) -> IpAddr {
    match family {
        Family::V6 => IpAddr::V6(address.into()),
        _ => IpAddr::V4((address as u32).into()),
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FlowKey::NotIp => f.write_str("not IP"),
            FlowKey::Address(address) => address.fmt(f),
            FlowKey::Mac([first, rest @ ..]) => {
                write!(f, "{first:02x}")?;
                rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
            }
            FlowKey::Subnet(address, len) => write!(f, "{address}/{len}"),
            FlowKey::FiveTuple {
                source,
                destination,
                protocol,
                ports,
            } => {
                match protocol {
                    Some(protocol) => write!(f, "{protocol} ")?,
                    None => f.write_str("ip ")?,
                }
                match ports {
                    Some(ports) => {
                        let source = SocketAddr::new(source, ports.source);
                        let destination = SocketAddr::new(destination, ports.destination);
                        write!(f, "{source} > {destination}")
                    }
                    None => write!(f, "{source} > {destination}"),
                }
            }
            FlowKey::Fragments(source, destination) => {
                write!(f, "fragments {source} > {destination}")
            }
            FlowKey::Vlan(Some(vlan)) => write!(f, "vlan {vlan}"),
            FlowKey::Vlan(None) => f.write_str("no vlan"),
            FlowKey::Dscp(dscp) => write!(f, "dscp {dscp}"),
            FlowKey::Owner(Some(Owner { uid, gid, pid })) => {
                write!(f, "pid {pid} uid {uid} gid {gid}")
            }
            FlowKey::Owner(None) => f.write_str("no process"),
        }
    }
}
