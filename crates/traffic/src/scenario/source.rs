//! A scenario's sources: what they send, and to which class.

use std::net::IpAddr;
use std::str::FromStr;

use fairlane_classify::{
    Family, Layer, LinkClassifier, Origin, Owner, PortRange, Prefix, Protocol, VlanId,
};
use fairlane_config::{At, ClassKind, Link, Report, Role, Scalar, Site, Text, Time, suggestion};
use fairlane_core::tree::ClassId;
use fairlane_core::{Length, Nanos, Rate};
use fairlane_sim::{ClassFlow, ClassSource, Lengths, Picos, Tcp, Traffic};

use super::packet::{Headers, extends_ipv6, host, unnamed};
use super::written;
use crate::links::{no_such, other_side};

/// Most sources of one scenario.
pub(super) const MOST_SOURCES: usize = 1_000_000;
/// Packets that a backlogged source keeps in the queue, unless the scenario says otherwise.
const WINDOW: u32 = 32;
const MOST_RTT: Nanos = Nanos::from_millis(100_000);
/// Packets that a source in a closed loop has on their way at most, likewise: what a common
/// receiver has room for.
const TCP_WINDOW: u32 = 4096;
/// A backlogged source that sees none of its packets leave for so long sends one more.
const PATIENCE: Picos = Picos::from_millis(200);
/// Shape of the spans of an on-off source: their variance is infinite, as measured of real ones.
const SHAPE: f64 = 1.5;

/// A source, or several alike.
pub(crate) struct Source {
    pub name: String,
    pub count: u32,
    to: To,
    traffic: Traffic,
    tcp: Option<Tcp>,
    lengths: Lengths,
    /// From the first to the last.
    active: (Picos, Picos),
    ecn: bool,
    /// Time from one source alike to the next.
    apart: Picos,
}

/// Where a source's packets go.
enum To {
    /// To the class at this place.
    Class(usize),
    /// Where the site's filters send them.
    Classified(Box<Headers>, Origin),
}

impl Source {
    /// All of them; `ids` are the queues' numbers of classes. `index` counts flows of classes
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
                    let frame = headers.frame(number, self.count);
                    classifier.classify(&frame, Layer::Ethernet, origin)
                }
            };
            let later = Picos(self.apart.0 * u128::from(number) / u128::from(self.count));
            ClassSource {
                active: vec![self.active.0 + later..self.active.1],
                patience: Some(PATIENCE),
                ecn: self.ecn,
                tcp: self.tcp,
                ..ClassSource::new(to, self.traffic.clone(), self.lengths.clone())
            }
        };
        (0..self.count)
            .map(|number| plan(number, classifier))
            .collect()
    }
}

/// A time, where there is one; what is none is reported.
pub(super) fn time(key: &str, text: &Option<Text>, report: &mut Report) -> Option<Nanos> {
    let time: Time = text.as_ref()?.read(key, report)?;
    Some(time.0)
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
    /// The `number`-th of the file; or what is wrong with it is reported.
    pub(super) fn read(&self, number: usize, report: &mut Report) -> Option<Source> {
        let source = self.source;
        let before = report.errors();
        let ecn = source.ecn.as_ref().is_some_and(|ecn| *ecn.value());
        let count = match &source.count {
            Some(count) => count.within("count", 1..MOST_SOURCES as i64 + 1, report),
            None => Some(1),
        };
        let to = self.to(ecn, report);
        let lengths = self.lengths(report);
        let traffic = self.traffic(report);
        let start = time("start", &source.start, report).unwrap_or(Nanos::ZERO);
        let stop = time("stop", &source.stop, report);
        if let (Some(stop), Some(text)) = (stop, &source.stop)
            && stop <= start
        {
            let sentence = format!("stop '{}': it is not after the start", text.value());
            report.error(&text.span(), sentence);
        }
        if report.errors() > before {
            return None;
        }
        let ((traffic, tcp), lengths) = (traffic?, lengths?);
        let name = match (&source.name, &source.class) {
            (Some(name), _) | (None, Some(name)) => name.value().clone(),
            (None, None) => format!("source {number}"),
        };
        Some(Source {
            name,
            count: count?,
            to: to?,
            apart: match tcp {
                Some(tcp) => tcp.rtt,
                None => apart(&traffic, &lengths),
            },
            traffic,
            tcp,
            lengths,
            active: (start.into(), stop.map_or(Picos::MAX, Picos::from)),
            ecn,
        })
    }

    fn to(&self, ecn: bool, report: &mut Report) -> Option<To> {
        let source = self.source;
        let given = self.first_header();
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

    /// The first key of those that filters look at.
    fn first_header(&self) -> Option<&'static str> {
        let source = self.source;
        let keys = [
            ("source", source.source.is_some()),
            ("destination", source.destination.is_some()),
            ("protocol", source.protocol.is_some()),
            ("source-port", source.source_port.is_some()),
            ("destination-port", source.destination_port.is_some()),
            ("dscp", source.dscp.is_some()),
            ("vlan", source.vlan.is_some()),
            ("ingress", source.ingress.is_some()),
            ("user", source.user.is_some()),
            ("group", source.group.is_some()),
            ("pid", source.pid.is_some()),
        ];
        keys.into_iter()
            .find(|(_, given)| *given)
            .map(|(key, _)| key)
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
        let id = |key, at: &Option<At<i64>>, report: &mut Report| match at {
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
                        "ingress '{}': only of attached processes is it known whose they are",
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

    /// Lengths with the link's overhead.
    fn lengths(&self, report: &mut Report) -> Option<Lengths> {
        let overhead = self.link.overhead;
        let Some(at) = &self.source.length else {
            return Some(Lengths::Fixed(self.link.longest));
        };
        let text = at.value().to_string();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let most = self.link.longest.get() - overhead;
        let read = |text: &str| {
            let bytes = text.trim().parse::<u32>().ok()?;
            (1..=most)
                .contains(&bytes)
                .then(|| Length::new(bytes + overhead))?
        };
        match (read(first), read(last)) {
            (Some(first), Some(last)) if first == last => Some(Lengths::Fixed(first)),
            (Some(first), Some(last)) if first < last => Some(Lengths::Uniform(first, last)),
            _ => {
                report.error(
                    &at.span(),
                    format!(
                        "length '{text}': it is a frame's bytes from 1 to {most}, or a range as in \"64-{most}\""
                    ),
                );
                None
            }
        }
    }

    /// When it sends, and whether it is in a closed loop.
    fn traffic(&self, report: &mut Report) -> Option<(Traffic, Option<Tcp>)> {
        const WORDS: [&str; 5] = ["cbr", "poisson", "on-off", "backlogged", "tcp"];
        let source = self.source;
        let word = source.traffic.value().as_str();
        let (rated, spans, windowed) = match word {
            "cbr" | "poisson" => (true, false, false),
            "on-off" => (true, true, false),
            "backlogged" | "tcp" => (false, false, true),
            _ => {
                let sentence = no_such("traffic", word, &WORDS);
                report.error(&source.traffic.span(), sentence);
                return None;
            }
        };
        let before = report.errors();
        for (key, text, wanted) in [
            ("rate", &source.rate, rated),
            ("on", &source.on, spans),
            ("off", &source.off, spans),
            ("rtt", &source.rtt, word == "tcp"),
        ] {
            match text {
                None if wanted => report.error(
                    &source.traffic.span(),
                    format!("traffic '{word}': the key '{key}' is missing"),
                ),
                Some(text) if !wanted => {
                    report.error(&text.span(), format!("{key}: traffic '{word}' has none"));
                }
                _ => (),
            }
        }
        let window = match &source.window {
            Some(at) if !windowed => {
                report.error(&at.span(), format!("window: traffic '{word}' has none"));
                None
            }
            Some(at) => at.within("window", 1..1_000_001, report),
            None if word == "tcp" => Some(TCP_WINDOW),
            None => Some(WINDOW),
        };
        let rtt = time("rtt", &source.rtt, report);
        if let (Some(rtt), Some(text)) = (rtt, &source.rtt)
            && !(Nanos(1)..=MOST_RTT).contains(&rtt)
        {
            let sentence = format!("rtt '{}': it is above 0 and at most 100s", text.value());
            report.error(&text.span(), sentence);
        }
        let rate: Option<Rate> = source
            .rate
            .as_ref()
            .and_then(|rate| rate.read("rate", report));
        let on = time("on", &source.on, report);
        let off = time("off", &source.off, report);
        if let (Some(Nanos(0)), Some(text)) = (on, &source.on) {
            report.error(&text.span(), "on: it is above 0");
        }
        if report.errors() > before {
            return None;
        }
        let tcp = rtt.zip(window).map(|(rtt, window)| Tcp {
            rtt: rtt.into(),
            window,
        });
        let traffic = match word {
            "cbr" => Traffic::Cbr(rate?),
            "poisson" => Traffic::Poisson(rate?),
            "on-off" => Traffic::ParetoOnOff {
                alpha: SHAPE,
                mean_on: on?.into(),
                mean_off: off?.into(),
                peak: rate?,
            },
            _ => Traffic::Greedy(window?),
        };
        Some((traffic, tcp))
    }
}

/// An address, or a prefix.
fn prefix(key: &str, text: &Option<Text>, report: &mut Report) -> Option<Prefix> {
    let text = text.as_ref()?;
    match text.value().parse::<IpAddr>() {
        Ok(address) => Some(host(address)),
        Err(_) => text.read(key, report),
    }
}

/// The time over which the beginnings of sources alike are spread, so that they do not send as
/// one: that between two packets, or two spans of sending.
fn apart(traffic: &Traffic, lengths: &Lengths) -> Picos {
    match (traffic, lengths) {
        (Traffic::Cbr(rate), Lengths::Fixed(len) | Lengths::Uniform(len, _)) => {
            let picos = u128::from(len.get()) * 8 * u128::from(fairlane_sim::PICOS_PER_SECOND);
            Picos(picos / u128::from(rate.bps()))
        }
        (
            Traffic::ParetoOnOff {
                mean_on, mean_off, ..
            },
            _,
        ) => *mean_on + *mean_off,
        _ => Picos::ZERO,
    }
}
