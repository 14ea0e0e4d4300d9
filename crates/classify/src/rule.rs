//! Rules: a target and the conditions on its packets.

use crate::{Origin, PortRange, Prefix};
use fairlane_wire::{Dscp, Family, Fragment, Headers, Protocol, VlanId};

/// A rule's conditions on a packet; `None` is no condition. The default has no conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// Source address; implies the family.
    pub source: Option<Prefix>,
    /// Destination address; implies the family.
    pub destination: Option<Prefix>,
    /// Source port: the packet must have ports, so a later fragment never matches.
    pub source_port: Option<PortRange>,
    /// Destination port, likewise.
    pub destination_port: Option<PortRange>,
    /// The payload protocol; only IP has one.
    pub protocol: Option<Protocol>,
    /// Differentiated services code point; only IP has one.
    pub dscp: Option<Dscp>,
    /// The outermost VLAN.
    pub vlan: Option<VlanId>,
    /// Whether it is a fragment, including the first. Packets other than IP are none.
    pub fragment: Option<bool>,
    /// The interface that received it, or [`Origin::ATTACHED`].
    pub ingress: Option<u16>,
    /// User of the sending process: matches only packets of processes.
    pub uid: Option<u32>,
    /// Group of that process.
    pub gid: Option<u32>,
    /// That process.
    pub pid: Option<u32>,
    /// The network protocol.
    pub family: Option<Family>,
}

impl Match {
    /// Returns whether a packet matches the rule. O(1). This defines a rule's meaning;
    /// [`Classifier`](crate::Classifier) finds the same faster among many.
    pub fn matches(&self, headers: &Headers, origin: &Origin) -> bool {
        let ip = headers.family != Family::Other;
        let within = |prefix: Option<Prefix>, address| {
            prefix.is_none_or(|prefix| prefix.contains(headers.family, address))
        };
        let ports = |source: Option<PortRange>, destination: Option<PortRange>| {
            (source.is_none() && destination.is_none())
                || headers.ports.is_some_and(|ports| {
                    source.is_none_or(|range| range.contains(ports.source))
                        && destination.is_none_or(|range| range.contains(ports.destination))
                })
        };
        within(self.source, headers.source)
            && within(self.destination, headers.destination)
            && ports(self.source_port, self.destination_port)
            && self.protocol.is_none_or(|p| headers.protocol == Some(p))
            && self.dscp.is_none_or(|dscp| ip && headers.dscp == dscp)
            && self.vlan.is_none_or(|vlan| headers.vlan == Some(vlan))
            && self
                .fragment
                .is_none_or(|is| is == (headers.fragment != Fragment::No))
            && self.ingress.is_none_or(|ingress| origin.ingress == ingress)
            && self
                .uid
                .is_none_or(|uid| origin.owner.is_some_and(|owner| owner.uid == uid))
            && self
                .gid
                .is_none_or(|gid| origin.owner.is_some_and(|owner| owner.gid == gid))
            && self
                .pid
                .is_none_or(|pid| origin.owner.is_some_and(|owner| owner.pid == pid))
            && self.family.is_none_or(|family| headers.family == family)
    }

    /// Returns whether it asks for ports.
    pub(crate) fn asks_ports(&self) -> bool {
        self.source_port.is_some() || self.destination_port.is_some()
    }

    /// Returns whether it tests the packet's origin.
    pub(crate) fn asks_origin(&self) -> bool {
        self.ingress.is_some() || self.uid.or(self.gid).or(self.pid).is_some()
    }
}

/// A match and its target. `T` is the caller's decision about a packet: the number of a class, or
/// an enum of all decisions. A decision other than a class thus has no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule<T = u32> {
    /// Higher comes first; among equals, the earlier in the list.
    pub priority: i32,
    /// The packet's required properties.
    pub matches: Match,
    /// The result of the first matching rule.
    pub target: T,
}
