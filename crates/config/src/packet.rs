//! The class and the filter that match a packet described by an operator.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use fairlane_classify::Origin;
use fairlane_wire::{Dscp, Family, Headers, Ports, Protocol, VlanId};
use serde::Serialize;

use crate::site::{Link, Near, Role, Site};

/// A packet as an operator describes it: keys of a filter with single values, or a line that `tcpdump -n` prints
/// (with `-v` for the DSCP, with `-e` for the VLAN).
///
/// ```
/// use fairlane_config::{Classified, ClassifiedBy, DescribedPacket, ParsePacketError, Site};
///
/// let text = r#"
/// [[link]]
/// name = "up"
/// to = "outside"
/// rate = "10mbit"
///
/// [[link.class]]
/// name = "voice"
/// rate = "1mbit"
///
/// [[link.class]]
/// name = "rest"
/// default = true
///
/// [[link.filter]]
/// class = "voice"
/// destination-port = 5060
/// "#;
/// let site = Site::parse(text, "site.toml")?;
/// let line = "12:00:00.1 IP 192.0.2.1.5060 > 198.51.100.2.5060: UDP, length 172";
/// let packet: DescribedPacket = line.parse()?;
/// let to: &Classified = &site.classify(&packet)[0];
/// assert_eq!((&*to.class, to.filter, to.by), ("voice", Some(0), ClassifiedBy::Filter));
///
/// let packet: DescribedPacket = "source=192.0.2.1 protocol=udp destination-port=53".parse()?;
/// assert_eq!(site.classify(&packet)[0].filter, None);
///
/// let refused: Result<DescribedPacket, ParsePacketError> = "destination-port=53".parse();
/// assert!(refused.is_err_and(|error| error.to_string().starts_with("protocol is missing")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescribedPacket(Headers);

/// The reason why a text does not describe a packet: one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParsePacketError(String);

type Result<T> = std::result::Result<T, ParsePacketError>;

fn refuse<T>(sentence: impl Into<String>) -> Result<T> {
    Err(ParsePacketError(sentence.into()))
}

/// The keys of a packet.
const KEYS: &str = "source, destination, source-port, destination-port, protocol, dscp, vlan";

impl FromStr for DescribedPacket {
    type Err = ParsePacketError;

    fn from_str(text: &str) -> Result<DescribedPacket> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let marks = [">", "ARP,", "IP", "IP6"];
        let headers = match words.iter().any(|word| marks.contains(word)) {
            true => of_line(&words),
            false => of_keys(&words),
        };
        headers.map(DescribedPacket)
    }
}

/// Records an address and checks its family.
fn address(headers: &mut Headers, key: &str, address: IpAddr) -> Result<u128> {
    let (family, bits) = match address {
        IpAddr::V4(address) => (Family::V4, u32::from(address).into()),
        IpAddr::V6(address) => (Family::V6, address.into()),
    };
    if headers.family != Family::Other && headers.family != family {
        return refuse(format!(
            "{key} {address}: the other address is of the other IP version"
        ));
    }
    headers.family = family;
    Ok(bits)
}

fn of_keys(words: &[&str]) -> Result<Headers> {
    fn read<T: FromStr<Err: fmt::Display>>(key: &str, value: &str) -> Result<T> {
        let parsed = value.parse();
        parsed.or_else(|reason: T::Err| refuse(format!("{key} {value}: {reason}")))
    }
    let mut headers = Headers::default();
    let mut ports = [None; 2];
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return refuse(format!(
                "{word}: not a packet (use KEY=VALUE with {KEYS}, or a line of tcpdump -n)"
            ));
        };
        match key {
            "source" => headers.source = address(&mut headers, key, read(key, value)?)?,
            "destination" => headers.destination = address(&mut headers, key, read(key, value)?)?,
            "source-port" => ports[0] = Some(read(key, value)?),
            "destination-port" => ports[1] = Some(read(key, value)?),
            "protocol" => headers.protocol = Some(read::<Protocol>(key, value)?),
            "dscp" => headers.dscp = read::<Dscp>(key, value)?,
            "vlan" => headers.vlan = Some(vlan(value)?),
            _ => return refuse(format!("{key}: unknown key (use {KEYS})")),
        }
    }
    if let [None, None] = ports {
    } else if headers.protocol.is_none() {
        return refuse("protocol is missing: a port belongs to one (protocol=udp, protocol=tcp)");
    } else {
        let [source, destination] = ports.map(Option::unwrap_or_default);
        headers.ports = Some(Ports {
            source,
            destination,
        });
    }
    let asks_ip = headers.protocol.is_some() || headers.dscp != Dscp::default();
    if headers.family == Family::Other && asks_ip {
        headers.family = Family::V4;
    }
    Ok(headers)
}

fn vlan(text: &str) -> Result<VlanId> {
    let id = text.parse().ok().and_then(VlanId::new);
    id.map_or_else(
        || refuse(format!("vlan {text}: not a VLAN (use 1 to 4095)")),
        Ok,
    )
}

/// Parses a line of tcpdump's output.
fn of_line(words: &[&str]) -> Result<Headers> {
    let mut headers = Headers::default();
    let after = |word: &str| {
        let at = words.iter().position(|other| *other == word)?;
        let next = words.get(at + 1)?;
        Some(next.trim_end_matches([',', ')', ':']))
    };
    headers.vlan = after("vlan").map(vlan).transpose()?;
    let arrows = (1..words.len().saturating_sub(1)).filter(|&at| words[at] == ">");
    let mut ends = arrows.filter_map(|at| Some((end(words[at - 1])?, end(words[at + 1])?)));
    let Some((source, destination)) = ends.next() else {
        return match words.contains(&"ARP,") {
            true => {
                headers.link_control = true;
                Ok(headers)
            }
            false => refuse(
                "the line has no addresses (use a line of tcpdump -n; with -v both lines of the packet, the second \
                 one has them)",
            ),
        };
    };
    headers.source = address(&mut headers, "source", source.0)?;
    headers.destination = address(&mut headers, "destination", destination.0)?;
    let hex = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let tos = ["(tos", "tos", "(class", "class"]
        .into_iter()
        .find_map(after);
    if let Some(tos) = tos.and_then(hex) {
        headers.dscp = Dscp::new(tos >> 2).unwrap_or_default();
    }
    let ports = match (source.1, destination.1) {
        (Some(source), Some(destination)) => Some([source, destination]),
        _ => None,
    };
    headers.protocol = protocol(words, ports.is_some());
    // Neighbour discovery.
    headers.link_control =
        words.contains(&"ICMP6,") && (words.contains(&"neighbor") || words.contains(&"router"));
    if let Some(ports) = ports {
        let mut numbers = [0; 2];
        for (number, port) in numbers.iter_mut().zip(ports) {
            match port.parse() {
                Ok(parsed) => *number = parsed,
                Err(_) => {
                    return refuse(format!("port {port}: not a number (use tcpdump -n)"));
                }
            }
        }
        let [source, destination] = numbers;
        headers.ports = Some(Ports {
            source,
            destination,
        });
    }
    Ok(headers)
}

/// Parses an address of a line, with the text after its last dot.
fn end(word: &str) -> Option<(IpAddr, Option<&str>)> {
    let word = word.trim_end_matches([',', ':']);
    if let Ok(address) = word.parse() {
        return Some((address, None));
    }
    let (address, port) = word.rsplit_once('.')?;
    Some((address.parse().ok()?, Some(port)))
}

/// Returns the protocol of a line: the number after `proto` or `next-header`, or by the form of the rest.
fn protocol(words: &[&str], has_ports: bool) -> Option<Protocol> {
    let at = |word: &str| words.iter().position(|other| *other == word);
    let named = ["proto", "next-header"].into_iter().find_map(|word| {
        let number = words.get(at(word)? + 2)?.trim_end_matches([',', ')', ':']);
        number.strip_prefix('(')?.parse::<u8>().ok()
    });
    let by_form = || {
        let is = |names: &[&str]| {
            let mut names = names.iter();
            names.any(|name| {
                words
                    .iter()
                    .any(|word| word.trim_end_matches([',', ':']) == *name)
            })
        };
        match has_ports {
            true if is(&["Flags", "tcp"]) => Some(Protocol::TCP),
            // Lines of decoded protocols (DNS, NTP) do not say UDP.
            true => Some(Protocol::UDP),
            false if is(&["ICMP"]) => Some(Protocol::ICMP),
            false if is(&["ICMP6"]) => Some(Protocol::ICMPV6),
            false => None,
        }
    };
    named.map(Protocol).or_else(by_form)
}

/// The class of a packet in one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Classified {
    /// The link.
    pub link: String,
    /// The class.
    pub class: Arc<str>,
    /// The filter that matches, by its index among those of the link, from 0; none in the default class.
    pub filter: Option<usize>,
    /// The reason for this class.
    pub by: ClassifiedBy,
}

/// The reason for a packet's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassifiedBy {
    /// A filter matches.
    Filter,
    /// A filter of a grant matches.
    Grant,
    /// It is link-layer control, such as ARP.
    LinkControl,
    /// No filter matches: it is the default class.
    Default,
}

impl Site {
    /// Returns the class that a packet falls into in each link, if it leaves by that one. It comes from the
    /// interface on the other side. O(filters).
    #[must_use]
    pub fn classify(&self, packet: &DescribedPacket) -> Vec<Classified> {
        let links = self.links.iter();
        links.map(|link| self.classify_in(link, packet)).collect()
    }

    fn classify_in(&self, link: &Link, DescribedPacket(headers): &DescribedPacket) -> Classified {
        let near = self.interfaces.as_ref().map(|interfaces| &interfaces.near);
        let from = match (link.to, near) {
            (Role::Outside, Some(Near::Tap(_))) => Role::Tap,
            (Role::Outside, _) => Role::Inside,
            _ => Role::Outside,
        };
        let origin = Origin {
            ingress: from.ingress(),
            owner: None,
        };
        let matching = (link.rules.iter().enumerate())
            .filter(|(_, rule)| rule.matches.matches(headers, &origin));
        // The first of those with the highest priority.
        let found = matching.max_by_key(|&(at, rule)| (rule.priority, std::cmp::Reverse(at)));
        let granted = self.granted_filters(&link.name);
        let control = link.link_control.filter(|_| headers.link_control);
        let (place, filter, by) = match (control, found) {
            (Some(control), _) => (control, None, ClassifiedBy::LinkControl),
            (None, None) => (link.default, None, ClassifiedBy::Default),
            (None, Some((at, rule))) => match at.checked_sub(granted) {
                None => (rule.target, None, ClassifiedBy::Grant),
                number => (rule.target, number, ClassifiedBy::Filter),
            },
        };
        Classified {
            link: link.name.clone(),
            class: Arc::clone(&link.classes[place as usize].name),
            filter,
            by,
        }
    }

    /// Returns the filters of grants, which precede those of a link.
    #[must_use]
    pub fn granted_filters(&self, link: &str) -> usize {
        let grants = self.grants.iter().filter(|grant| grant.link == link);
        grants.map(|grant| grant.filters.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(text: &str) -> Headers {
        let parsed: Result<DescribedPacket> = text.parse();
        parsed.unwrap_or_else(|error| panic!("{text}: {error}")).0
    }

    #[test]
    fn a_line_of_tcpdump_and_keys_describe_the_same_packet() {
        for (line, keys) in [
            (
                "12:00:00.000001 IP 192.0.2.1.5060 > 198.51.100.2.5061: SIP: INVITE",
                "source=192.0.2.1 destination=198.51.100.2 source-port=5060 destination-port=5061 protocol=udp",
            ),
            (
                "IP (tos 0xb8, ttl 64, id 0, offset 0, flags [DF], proto UDP (17), length 200)\n    \
                 192.0.2.1.40000 > 198.51.100.2.53: 1+ A? example.org. (29)",
                "source=192.0.2.1 destination=198.51.100.2 source-port=40000 destination-port=53 protocol=udp dscp=ef",
            ),
            (
                "00:00:00:00:00:01 > 00:00:00:00:00:02, ethertype 802.1Q (0x8100), length 78: vlan 7, p 0, \
                 ethertype IPv4 (0x0800), 10.0.0.1.80 > 10.0.0.2.4711: Flags [S], seq 1, win 1, length 0",
                "source=10.0.0.1 destination=10.0.0.2 source-port=80 destination-port=4711 protocol=tcp vlan=7",
            ),
            (
                "IP6 (class 0xb8, flowlabel 0x1, hlim 64, next-header UDP (17) payload length: 8) \
                 2001:db8::1.443 > 2001:db8::2.9: UDP, length 0",
                "source=2001:db8::1 destination=2001:db8::2 source-port=443 destination-port=9 protocol=udp dscp=ef",
            ),
            (
                "IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 1, seq 1, length 64",
                "source=10.0.0.1 destination=10.0.0.2 protocol=icmp",
            ),
        ] {
            assert_eq!(packet(line), packet(keys), "{line}");
        }
        for line in [
            "ARP, Request who-has 10.0.0.1 tell 10.0.0.2, length 28",
            "IP6 fe80::1 > ff02::1:ff00:2: ICMP6, neighbor solicitation, who has fe80::2, length 32",
        ] {
            assert!(packet(line).link_control, "{line}");
        }
    }

    #[test]
    fn what_is_no_packet_is_refused_with_what_is_allowed() {
        for (text, words) in [
            ("voice", "KEY=VALUE"),
            ("port=5", "unknown key (use source"),
            ("destination-port=5060", "protocol is missing"),
            (
                "destination-port=many protocol=udp",
                "destination-port many",
            ),
            ("source=10.0.0.1 destination=::1", "the other IP version"),
            ("vlan=4096", "use 1 to 4095"),
            ("IP host.1 > host.2: UDP", "no addresses"),
            (
                "12:00:00.000001 IP (tos 0xb8, ttl 64, id 0, offset 0, flags [DF], proto UDP (17), length 200)",
                "with -v both lines",
            ),
            (
                "12:00:00.000001 02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 214: (tos 0x0, \
                 ttl 64, id 0, offset 0, flags [DF], proto UDP (17), length 200)",
                "with -v both lines",
            ),
            ("IP 10.0.0.1.domain > 10.0.0.2.9: UDP", "use tcpdump -n"),
        ] {
            let refused = text.parse::<DescribedPacket>().unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
