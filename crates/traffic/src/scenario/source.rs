//! The sources of a link, and to which class they send.

use std::net::IpAddr;
use std::str::FromStr;

use fairlane_classify::{LinkClassifier, Origin, Owner, PortRange, Prefix};
use fairlane_config::{At, ClassKind, Link, Report, Role, Scalar, Site, Text, Whole, suggestion};
use fairlane_core::Nanos;
use fairlane_core::tree::ClassId;
use fairlane_sim::{ClassFlow, ClassSource};
use fairlane_wire::{Family, Layer, Protocol, VlanId};

use super::packet::{Headers, extends_ipv6, host, unnamed};
use super::sends::{Form, Sends};
use super::written;
use crate::links::other_side;

/// A source of a link, or several alike.
pub(crate) struct Source {
    pub sends: Sends,
    to: To,
    ecn: bool,
}

/// Where a source's packets go.
enum To {
    /// To the class at this place.
    Class(usize),
    /// Where the site's filters send them.
    Classified(Box<Headers>, Origin),
}

impl Source {
    /// Returns the plans of all sources; `ids` are the queues' numbers of classes. `index` counts the flows of classes
    /// that a source names.
    pub(crate) fn plans(
        &self,
        link: &Link,
        ids: &[ClassId],
        classifier: &mut LinkClassifier,
        index: &mut u64,
    ) -> Vec<ClassSource> {
        let mut plan = |number: u32, classifier: &mut LinkClassifier| {
            let to = match &self.to {
                To::Class(place) => {
                    *index += 1;
                    let flows = matches!(link.classes[*place].kind, ClassKind::Flows(_));
                    ClassFlow {
                        class: ids[*place],
                        flow: if flows { *index } else { 0 },
                    }
                }
                To::Classified(headers, origin) => {
                    let frame = headers.frame(number, self.sends.count);
                    classifier.classify(&frame, Layer::Ethernet, origin, Nanos::ZERO)
                }
            };
            ClassSource {
                ecn: self.ecn,
                ..self.sends.plan(number, to)
            }
        };
        (0..self.sends.count)
            .map(|number| plan(number, classifier))
            .collect()
    }
}

/// The value of a scalar, or the reason why it has none is reported.
fn scalar<T: FromStr<Err: std::fmt::Display>>(
    key: &str,
    at: &At<Scalar>,
    report: &mut Report,
) -> Option<T> {
    match at.value().to_string().parse() {
        Ok(value) => Some(value),
        Err(reason) => {
            report.error(&at.span(), format!("{key} '{}': {reason}", at.value()));
            None
        }
    }
}

/// One source on its way from the file.
pub(super) struct Reader<'a> {
    pub source: &'a written::Source,
    pub link: &'a Link,
    pub site: &'a Site,
}

impl Reader<'_> {
    /// Reads the source with this number in the file; reports errors in it.
    pub(super) fn read(&self, number: usize, report: &mut Report) -> Option<Source> {
        let source = self.source;
        let before = report.errors();
        for (key, given) in [
            ("from", source.from.as_ref().map(Text::span)),
            ("to", source.to.as_ref().map(Text::span)),
            ("weight", source.weight.as_ref().map(At::span)),
        ] {
            if let Some(at) = given {
                let sentence =
                    format!("{key}: only in a network of [[node]] and [[wire]] has a source one");
                report.error(&at, sentence);
            }
        }
        let ecn = source.ecn.as_ref().is_some_and(|ecn| *ecn.value());
        let to = self.to(ecn, report);
        let form = Form {
            source,
            overhead: self.link.overhead,
            usual: self.link.longest,
            longest: self.link.longest,
            round: None,
        };
        let sends = form.read(number, report);
        if report.errors() > before {
            return None;
        }
        Some(Source {
            sends: sends?,
            to: to?,
            ecn,
        })
    }

    fn to(&self, ecn: bool, report: &mut Report) -> Option<To> {
        let source = self.source;
        let given = source.headers().into_iter().find(|(_, at)| at.is_some());
        let given = given.map(|(key, _)| key);
        match (&source.class, given) {
            (Some(class), Some(key)) => {
                report.error(
                    &class.span(),
                    format!("class: '{key}' is there too, and filters sort by that; leave out one of them"),
                );
                None
            }
            (Some(class), None) => self.class(class, report).map(To::Class),
            (None, Some(_)) => self.headers(ecn, report),
            (None, None) => {
                report.error(
                    &source.traffic.span(),
                    "this source needs a class, or headers that the site's filters sort: source, \
                     destination, protocol, source-port, destination-port, dscp, vlan, ingress, \
                     user, group, pid",
                );
                None
            }
        }
    }

    fn class(&self, text: &Text, report: &mut Report) -> Option<usize> {
        let name = text.value();
        let classes = &self.link.classes;
        let Some(place) = classes.iter().position(|class| *class.name == **name) else {
            let near = suggestion(name, classes.iter().map(|class| &*class.name));
            let link = &self.link.name;
            let sentence = format!("class '{name}' does not exist in link '{link}'{near}");
            report.error(&text.span(), sentence);
            return None;
        };
        if let ClassKind::Inner(_) = classes[place].kind {
            let sentence =
                format!("class '{name}' has children, and packets go to a class without");
            report.error(&text.span(), sentence);
            return None;
        }
        Some(place)
    }

    fn headers(&self, ecn: bool, report: &mut Report) -> Option<To> {
        let source = self.source;
        let before = report.errors();
        let from = prefix("source", &source.source, report);
        let to = prefix("destination", &source.destination, report);
        if let (Some(from), Some(to), Some(text)) = (from, to, &source.destination)
            && from.family() != to.family()
        {
            let sentence = format!(
                "destination '{}': the source is of the other version of IP",
                text.value()
            );
            report.error(&text.span(), sentence);
        }
        let family = from.or(to).map_or(Family::V4, Prefix::family);
        let with_ports = source
            .source_port
            .as_ref()
            .or(source.destination_port.as_ref());
        let protocol = match &source.protocol {
            Some(at) => scalar("protocol", at, report),
            None => Some(Protocol::UDP),
        };
        if let (Some(protocol), Some(port)) = (protocol, with_ports)
            && !protocol.has_ports()
        {
            report.error(&port.span(), format!("protocol {protocol} has no ports"));
        }
        if let (Some(protocol), Some(at)) = (protocol, &source.protocol)
            && family == Family::V6
            && extends_ipv6(protocol)
        {
            let sentence = format!(
                "protocol {protocol}: over IPv6 that is a header before the protocol's own"
            );
            report.error(&at.span(), sentence);
        }
        let port = |key, at: &Option<At<Scalar>>, report: &mut Report| match at {
            Some(at) => scalar(key, at, report),
            None => PortRange::new(0, 0),
        };
        let source_port = port("source-port", &source.source_port, report);
        let destination_port = port("destination-port", &source.destination_port, report);
        let dscp = source
            .dscp
            .as_ref()
            .and_then(|at| scalar("dscp", at, report));
        let vlan: Option<u16> = source
            .vlan
            .as_ref()
            .and_then(|at| at.within("vlan", 1..4096, report));
        let origin = self.origin(report);
        if report.errors() > before {
            return None;
        }
        let headers = Headers {
            source: from.unwrap_or(unnamed(family, true)),
            destination: to.unwrap_or(unnamed(family, false)),
            protocol: protocol?,
            source_port: source_port?,
            destination_port: destination_port?,
            dscp,
            vlan: vlan.and_then(VlanId::new),
            ecn,
        };
        Some(To::Classified(Box::new(headers), origin?))
    }

    fn origin(&self, report: &mut Report) -> Option<Origin> {
        let source = self.source;
        let id = |key, at: &Option<At<Whole>>, report: &mut Report| match at {
            Some(at) => at
                .within::<u32>(key, 0..i64::from(u32::MAX), report)
                .map(Some),
            None => Some(None),
        };
        let uid = id("user", &source.user, report)?;
        let gid = id("group", &source.group, report)?;
        let pid = id("pid", &source.pid, report)?;
        let owned = uid.or(gid).or(pid).is_some();
        let roles = [Role::Inside, Role::Outside, Role::Tap, Role::Attached];
        let role = match &source.ingress {
            _ if owned && source.ingress.is_none() => Role::Attached,
            None => other_side(self.site, self.link.to),
            Some(text) => {
                let found = roles.into_iter().find(|role| role.name() == text.value());
                let names = roles.map(Role::name);
                let Some(role) = found else {
                    let sentence = format!(
                        "ingress '{}' does not exist: it is one of {}",
                        text.value(),
                        names.join(", ")
                    );
                    report.error(&text.span(), sentence);
                    return None;
                };
                if owned && role != Role::Attached {
                    let sentence = format!(
                        "ingress '{}': user, group and pid are only known of attached processes",
                        text.value()
                    );
                    report.error(&text.span(), sentence);
                }
                role
            }
        };
        let owner = (role == Role::Attached).then(|| Owner {
            uid: uid.unwrap_or(0),
            gid: gid.unwrap_or(0),
            pid: pid.unwrap_or(1),
        });
        Some(Origin {
            ingress: role.ingress(),
            owner,
        })
    }
}

/// Parses an address or a prefix.
fn prefix(key: &str, text: &Option<Text>, report: &mut Report) -> Option<Prefix> {
    let text = text.as_ref()?;
    match text.value().parse::<IpAddr>() {
        Ok(address) => Some(host(address)),
        Err(_) => text.read(key, report),
    }
}
