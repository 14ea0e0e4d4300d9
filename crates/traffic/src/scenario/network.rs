//! A scenario of a network: nodes, wires between them, and sources with destinations.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use fairlane_config::{At, Report, Size, Text, Time, algorithms, suggestion};
use fairlane_core::sched::Algorithm;
use fairlane_core::units::MAX_WEIGHT;
use fairlane_core::{Length, Limits, Nanos, Rate, SchedulerLimits, Weight};
use fairlane_sim::{FlowPath, Network, NetworkError, Picos, Wire};

use super::sends::{Form, Sends};
use super::written;
use crate::links::no_such;

/// A packet's bytes unless the scenario says otherwise.
const USUAL_LENGTH: u32 = 1500;
/// The limits of a port's queue, unless the scenario says otherwise.
const USUAL_LIMITS: SchedulerLimits = SchedulerLimits {
    packets: 1000,
    bytes: 1 << 30,
    per_flow: Limits::NONE,
};
const MOST_NODES: usize = 65_535;
/// An end-to-end delay is reported up to 213 days.
const MOST_DELAY: Nanos = Nanos::from_millis(3_600_000);

/// A network that was found to be sound.
pub(crate) struct Plan {
    pub nodes: Vec<Node>,
    /// One way each.
    pub wires: Vec<(u16, u16, Wire)>,
    pub flows: Vec<Flows>,
}

/// A host or a router.
pub(crate) struct Node {
    pub name: String,
    /// Of its output ports, unless a wire says otherwise.
    algorithm: Algorithm,
    limits: SchedulerLimits,
}

/// A source, or several alike.
pub(crate) struct Flows {
    pub sends: Sends,
    pub way: FlowPath,
}

impl Plan {
    /// Creates the network without sources.
    pub(super) fn network(&self, seed: u64) -> Network {
        let mut network = Network::new(self.nodes.len() as u16, seed);
        for &(from, to, wire) in &self.wires {
            let added = network.add_wire(from, to, wire);
            added.expect("the ends of a wire were looked up");
        }
        network
    }

    /// Reads the tables of a network; reports errors in them.
    pub(super) fn read(written: &written::Scenario, report: &mut Report) -> Option<Plan> {
        let before = report.errors();
        let mut reader = Reader::default();
        for node in &written.node {
            reader.node(node, report);
        }
        for wire in &written.wire {
            reader.wire(wire, report);
        }
        // If a wire has an error, unreachable nodes are not reported as well.
        let sound = report.errors() == before;
        let network = sound.then(|| reader.plan.network(0));
        let mut total = 0;
        for (number, at) in written.source.iter().enumerate() {
            let Some(flows) = reader.flows(number, at.value(), network.as_ref(), report) else {
                continue;
            };
            flows.sends.count_in(&mut total, at, report);
            reader.plan.flows.push(flows);
        }
        if report.errors() == before {
            reader.lonely(&written.node, report);
        }
        (report.errors() == before).then_some(reader.plan)
    }
}

/// A network on its way from the file.
struct Reader<'a> {
    plan: Plan,
    /// The nodes by name.
    places: BTreeMap<&'a str, u16>,
    /// Pairs of nodes that wires connect.
    joined: BTreeSet<(u16, u16)>,
}

impl Default for Reader<'_> {
    fn default() -> Self {
        Reader {
            plan: Plan {
                nodes: Vec::new(),
                wires: Vec::new(),
                flows: Vec::new(),
            },
            places: BTreeMap::new(),
            joined: BTreeSet::new(),
        }
    }
}

impl<'a> Reader<'a> {
    fn node(&mut self, node: &'a written::Node, report: &mut Report) {
        let algorithm = algorithm(node.algorithm.as_ref(), node.quantum.as_ref(), report);
        let own = node.limit.as_ref();
        let limits = own.and_then(|limit| limits(limit, report));
        let (name, place) = (node.name.value(), self.plan.nodes.len());
        if self.places.contains_key(name.as_str()) {
            let sentence = format!("node '{name}' is there already");
            return report.error(&node.name.span(), sentence);
        }
        if place == MOST_NODES {
            let sentence = format!("these are more than {MOST_NODES} nodes");
            return report.error(&node.name.span(), sentence);
        }
        self.places.insert(name, place as u16);
        self.plan.nodes.push(Node {
            name: name.clone(),
            algorithm: algorithm.unwrap_or(Algorithm::Fifo),
            limits: limits.unwrap_or(USUAL_LIMITS),
        });
    }

    /// Returns the node of this name.
    fn place(&self, key: &str, text: &Text, report: &mut Report) -> Option<u16> {
        let found = self.places.get(text.value().as_str());
        if found.is_none() {
            let near = suggestion(text.value(), self.places.keys().copied());
            let sentence = format!("{key} '{}': there is no such node{near}", text.value());
            report.error(&text.span(), sentence);
        }
        found.copied()
    }

    /// Adds a wire, in both directions unless the file says otherwise.
    fn wire(&mut self, wire: &written::Wire, report: &mut Report) {
        let before = report.errors();
        let from = self.place("from", &wire.from, report);
        let to = self.place("to", &wire.to, report);
        if from.is_some() && from == to {
            let sentence = format!("to '{}': the wire begins there", wire.to.value());
            report.error(&wire.to.span(), sentence);
        }
        let rate: Option<Rate> = wire.rate.read("rate", report);
        let delay: Option<Time> = wire.delay.read("delay", report);
        if delay.is_some_and(|delay| delay.0 > MOST_DELAY) {
            let sentence = format!("delay '{}': it is at most 1h", wire.delay.value());
            report.error(&wire.delay.span(), sentence);
        }
        let algorithm = algorithm(wire.algorithm.as_ref(), wire.quantum.as_ref(), report);
        let own = wire.limit.as_ref();
        let limits = own.and_then(|limit| limits(limit, report));
        if report.errors() > before {
            return;
        }
        let (Some(from), Some(to), Some(rate), Some(delay)) = (from, to, rate, delay) else {
            return;
        };
        let ways = [(from, to), (to, from)];
        let ways = &ways[..if wire.one_way { 1 } else { 2 }];
        if ways.iter().any(|way| self.joined.contains(way)) {
            let sentence = format!(
                "to '{}': a wire joins it with '{}' already, and packets take the first; a wire \
                 of one direction has one-way = true",
                wire.to.value(),
                wire.from.value()
            );
            return report.error(&wire.to.span(), sentence);
        }
        self.joined.extend(ways);
        for &(from, to) in ways {
            let node = &self.plan.nodes[usize::from(from)];
            let port = Wire {
                rate,
                delay: delay.0.into(),
                algorithm: algorithm.unwrap_or(node.algorithm),
                limits: limits.unwrap_or(node.limits),
            };
            self.plan.wires.push((from, to, port));
        }
    }

    /// Reports nodes without a wire, which are unreachable.
    fn lonely(&self, nodes: &[written::Node], report: &mut Report) {
        let ends: BTreeSet<u16> = (self.joined.iter())
            .flat_map(|&(from, to)| [from, to])
            .collect();
        for (node, place) in nodes.iter().zip(0..) {
            if !ends.contains(&place) {
                let sentence = format!("node '{}': no wire leads there", node.name.value());
                report.error(&node.name.span(), sentence);
            }
        }
    }

    /// The `number`-th source of the file.
    fn flows(
        &self,
        number: usize,
        source: &written::Source,
        network: Option<&Network>,
        report: &mut Report,
    ) -> Option<Flows> {
        let before = report.errors();
        let others = [
            ("class", source.class.as_ref().map(At::span)),
            ("rtt", source.rtt.as_ref().map(At::span)),
            ("ecn", source.ecn.as_ref().map(At::span)),
        ];
        for (key, at) in others.into_iter().chain(source.headers()) {
            if let Some(at) = at {
                let sentence =
                    format!("{key}: sources of a site's link have one, those of a network none");
                report.error(&at, sentence);
            }
        }
        let weight = match &source.weight {
            Some(at) => at.within("weight", 1..i64::from(MAX_WEIGHT) + 1, report),
            None => Some(1),
        };
        for (key, given) in [("from", &source.from), ("to", &source.to)] {
            if given.is_none() {
                let sentence = format!("the key '{key}' is missing: the node of one end");
                report.error(&source.traffic.span(), sentence);
            }
        }
        let (from, to) = (source.from.as_ref()?, source.to.as_ref()?);
        let places = (
            self.place("from", from, report),
            self.place("to", to, report),
        );
        let mut round = Picos::ZERO;
        if let ((Some(from), Some(there)), Some(network)) = (places, network) {
            let both = source.traffic.value() == "tcp";
            match self.on_wires(from, there, both, network) {
                Ok(delay) => round = delay,
                Err(why) => report.error(&to.span(), format!("to '{}': {why}", to.value())),
            }
        }
        if report.errors() > before {
            return None;
        }
        let form = Form {
            source,
            overhead: 0,
            usual: Length::new(USUAL_LENGTH)?,
            longest: Length::MAX,
            round: Some(round),
        };
        let way = FlowPath {
            from: places.0?,
            to: places.1?,
            weight: Weight::new(weight?)?,
        };
        let sends = form.read(number, report)?;
        self.pass(&sends, way, source, network, report);
        (report.errors() == before).then_some(Flows { sends, way })
    }

    /// Reports packets that can never pass a port on their path, since they are longer than its queue's limit.
    fn pass(
        &self,
        sends: &Sends,
        way: FlowPath,
        source: &written::Source,
        network: Option<&Network>,
        report: &mut Report,
    ) {
        let route = network.and_then(|network| network.route(way.from, way.to).ok());
        let ports = route
            .into_iter()
            .flatten()
            .map(|number| self.plan.wires[number]);
        let Some((from, to, wire)) = ports.min_by_key(|(.., wire)| wire.limits.bytes) else {
            return;
        };
        let (longest, most) = (sends.longest(), wire.limits.bytes);
        if u64::from(longest.get()) <= most {
            return;
        }
        let [from, to] = [from, to].map(|node| &self.plan.nodes[usize::from(node)].name);
        let (key, at) = match (&source.length, &source.to) {
            (Some(length), _) => (format!("length '{}'", length.value()), length.span()),
            (None, Some(to)) => (format!("to '{}'", to.value()), to.span()),
            (None, None) => return,
        };
        let sentence = format!(
            "{key}: packets of {longest} exceed the limit of the port from '{from}' to '{to}' (at most {most} \
             bytes)"
        );
        report.error(&at, sentence);
    }

    /// Returns the propagation delay from one node to another, and back if `both`; or the reason why there is no path.
    fn on_wires(&self, from: u16, to: u16, both: bool, network: &Network) -> Result<Picos, String> {
        let name = |node: u16| &self.plan.nodes[usize::from(node)].name;
        let back = both.then_some((to, from));
        let mut delay = Picos::ZERO;
        for (from, to) in iter::once((from, to)).chain(back) {
            let route = network.route(from, to).map_err(|error| match error {
                NetworkError::NoRoute { .. } => {
                    format!("no wires lead from '{}' to '{}'", name(from), name(to))
                }
                _ => "the packets come from there".to_owned(),
            })?;
            for number in route {
                let (_, _, wire) = &self.plan.wires[number];
                delay += wire.delay;
            }
        }
        Ok(delay)
    }
}

fn algorithm(
    name: Option<&Text>,
    quantum: Option<&Text>,
    report: &mut Report,
) -> Option<Algorithm> {
    let found = match name {
        Some(name) => named(name, report)?,
        // Without a name the algorithm is the default.
        None => return algorithms::with_quantum(Algorithm::Fifo, quantum?, report),
    };
    match quantum {
        Some(quantum) => algorithms::with_quantum(found, quantum, report),
        None => Some(found),
    }
}

fn named(text: &Text, report: &mut Report) -> Option<Algorithm> {
    let found = algorithms::named(text.value());
    if found.is_none() {
        let all = algorithms::all();
        let names: Vec<&str> = all.iter().map(|algorithm| algorithm.name()).collect();
        report.error(&text.span(), no_such("algorithm", text.value(), &names));
    }
    found
}

fn limits(limit: &written::Limit, report: &mut Report) -> Option<SchedulerLimits> {
    let mut limits = USUAL_LIMITS;
    if let Some(at) = &limit.packets {
        limits.packets = at.within("limit packets", 1..i64::from(u32::MAX) + 1, report)?;
    }
    if let Some(text) = &limit.bytes {
        let size: Size = text.read("limit bytes", report)?;
        if size.0 == 0 {
            let sentence = format!("limit bytes '{}': it is above 0", text.value());
            report.error(&text.span(), sentence);
        }
        limits.bytes = size.0;
    }
    Some(limits)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Plan, Scenario};
    use super::*;

    #[test]
    fn connections_alike_begin_within_one_round_trip_on_the_wires() {
        let text = "\
            node = [{ name = \"a\" }, { name = \"r\" }, { name = \"b\" }]
            [[wire]]
            from = \"a\"
            to = \"r\"
            rate = \"10mbit\"
            delay = \"2ms\"
            [[wire]]
            from = \"r\"
            to = \"b\"
            rate = \"1mbit\"
            delay = \"3ms\"
            [[source]]
            from = \"a\"
            to = \"b\"
            traffic = \"tcp\"
            count = 2";
        let scenario = Scenario::parse(text, Path::new("scenario.toml"), None).unwrap();
        let Plan::Network(plan) = &scenario.plan else {
            panic!("it is of a network");
        };
        let starts = [0, 1].map(|number| plan.flows[0].sends.plan(number, ()).active[0].start);
        assert_eq!(starts, [Picos::ZERO, Picos::from_millis(5)]);
    }
}
