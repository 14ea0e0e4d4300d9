//! Names of captured flows: the fields that their packets share, as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairlane_classify::Per;
use fairlane_wire::{Family, Fragment, Headers, Protocol};

/// Returns the name of the flow of a packet with these headers, with flows per `per`: the source address, else the
/// 5-tuple.
pub(super) fn flow_name(headers: &Headers, per: Per) -> String {
    let address = |bits: u128| match headers.family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    };
    let (source, destination) = (address(headers.source), address(headers.destination));
    let addresses = match (headers.family, per, headers.fragment, headers.ports) {
        (Family::Other, ..) => return "not IP".to_owned(),
        (_, Per::SourceIp, ..) => return source.to_string(),
        (.., Fragment::First | Fragment::Later, _) => {
            return format!("{source} > {destination} fragments");
        }
        (Family::V4, .., Some(ports)) => {
            let (from, to) = (ports.source, ports.destination);
            format!("{source}:{from} > {destination}:{to}")
        }
        (.., Some(ports)) => {
            let (from, to) = (ports.source, ports.destination);
            format!("[{source}]:{from} > [{destination}]:{to}")
        }
        (.., None) => format!("{source} > {destination}"),
    };
    let is_named = |protocol| Protocol::NAMES.iter().any(|&(_, named)| named == protocol);
    match headers.protocol {
        None => addresses,
        Some(protocol) if is_named(protocol) => format!("{addresses} {protocol}"),
        Some(Protocol(number)) => format!("{addresses} protocol {number}"),
    }
}
