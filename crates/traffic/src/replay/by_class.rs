//! A replay through the classes of a site's link.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::iter;
use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use fairlane_classify::{DigestKey, LinkClassifier, Origin, Owner};
use fairlane_config::class_report::{ClassReport, ClassTerms};
use fairlane_config::{ClassKind, Link, List, Role, Site};
use fairlane_core::tree::ClassId;
use fairlane_core::units::MAX_WEIGHT;
use fairlane_core::{Discipline, Length, Nanos, Weight};
use fairlane_sim::{ClassFlow, Picos, Server, TransmitQueue, Waiting};
use serde::Serialize;

use super::arrivals::{Arrival, Arrivals, Body, Frame, Listed};
use super::by_flow::Flow;
use super::capture::Packets;
use super::csv;
use super::departures::Departures;
use super::engine::{self, ReplayStage};
use super::framing::View;
use super::in_order::Disorder;
use super::recording::Recording;
use crate::ledger::{Ledger, Places};
use crate::links::other_side;

/// The discipline of a link, and the number that each class has there.
pub type Queues<B> = (Discipline<Waiting<ClassFlow, B>>, Vec<ClassId>);

/// Returns arrivals from rows of `time_ns,flow,len`, and `key` if the file has it.
pub fn rows<'a>(
    input: impl BufRead + 'a,
    name: String,
    link: &'a Link,
    ids: Vec<ClassId>,
) -> Result<impl Arrivals<ClassFlow, ()> + 'a> {
    let rows = csv::Rows::with_optional(input, name, ["time_ns", "flow", "len", "key"], 1)?;
    let places = || link.classes.iter().enumerate();
    let by_name: HashMap<&str, usize> = places().map(|(at, class)| (&*class.name, at)).collect();
    let by_number: HashMap<u64, usize> = places()
        .map(|(at, class)| (class.number as u64, at))
        .collect();
    let most = link.longest.get() - link.overhead;
    let rows = rows.within(2, 1..=most.into());
    Ok(Listed::new(rows, move |rows| {
        let time = rows.number(0)?;
        // The class is given by its name, else by its number in the file.
        let word = rows.word(1);
        let numbered = || by_number.get(&word.parse().ok()?);
        let found = by_name.get(word).or_else(numbered).copied();
        let at = class_of(link, word, found, || rows.place())?;
        let len = rows.number(2)?;
        let key = if rows.has(3) { rows.number(3)? } else { 0 };
        let flows = matches!(link.classes[at].kind, ClassKind::Flows(_));
        Ok(Arrival {
            time,
            to: ClassFlow {
                class: ids[at],
                flow: if flows { key } else { 0 },
            },
            len: len as u32,
            body: (),
        })
    }))
}

/// The class that a row means, or why it means none.
fn class_of(
    link: &Link,
    word: &str,
    found: Option<usize>,
    place: impl Fn() -> String,
) -> Result<usize> {
    let Some(at) = found else {
        bail!(
            "{}: flow '{}' is no class of link '{}': it is a class's name, or its number in the \
             order of the file, 0 to {}",
            place(),
            word.escape_debug(),
            link.name,
            link.classes.len() - 1
        );
    };
    if let ClassKind::Inner(_) = link.classes[at].kind {
        bail!(
            "{}: flow '{}': class '{}' has children, and packets go to a class without",
            place(),
            word.escape_debug(),
            link.classes[at].name
        );
    }
    Ok(at)
}

/// The owner of packets of attached processes: a capture does not contain it.
const NOBODY: Owner = Owner {
    uid: u32::MAX,
    gid: u32::MAX,
    pid: 0,
};

/// The packets of a capture, classified by the link's filters.
pub struct Classified<R: Read> {
    packets: Packets<R>,
    classifier: LinkClassifier,
    /// The numbers of the classes, and the fragments of each without a first one.
    ids: Vec<ClassId>,
    orphans: Vec<u64>,
    origin: Origin,
    view: View,
}

impl<R: Read> Classified<R> {
    /// Treats packets as arriving from the other side of the `link`, which is one of the `site`; `ids` are the numbers
    /// of the classes in the link's discipline.
    pub fn new(packets: Packets<R>, site: &Site, link: &Link, ids: &[ClassId]) -> Self {
        let from = other_side(site, link.to);
        let origin = Origin {
            ingress: from.ingress(),
            owner: (from == Role::Attached).then_some(NOBODY),
        };
        Classified {
            packets,
            // The same in every run.
            classifier: link.classifier(ids, DigestKey([0; 2])),
            ids: ids.to_vec(),
            orphans: vec![0; ids.len()],
            origin,
            view: View::default(),
        }
    }

    /// Returns the packets.
    pub fn packets(&self) -> &Packets<R> {
        &self.packets
    }

    /// Adds the numbers of malformed packets, of packets that no filter matched, and of each class's orphans.
    pub fn complete(&self, report: &mut Report) {
        report.malformed = self.classifier.malformed();
        report.unmatched = self.classifier.unmatched();
        for (class, &orphans) in report.classes.iter_mut().zip(&self.orphans) {
            class.orphan_fragments = orphans;
        }
    }
}

impl<R: Read> Arrivals<ClassFlow, Frame> for Classified<R> {
    fn next(&mut self) -> Result<Option<Arrival<ClassFlow, Frame>>> {
        let Some(packet) = self.packets.next()? else {
            return Ok(None);
        };
        let (seen, layer, headers) = self.view.of(&packet);
        let now = Nanos(packet.time);
        let to = (self.classifier).classify(seen, layer, &self.origin, now);
        for class in self.classifier.take_orphans() {
            if let Some(place) = self.ids.iter().position(|&id| id == class) {
                self.orphans[place] += 1;
            }
        }
        Ok(Some(Arrival {
            time: packet.time,
            to,
            len: packet.len,
            body: Frame::of(&packet.bytes, headers),
        }))
    }

    fn place(&self) -> String {
        self.packets.place()
    }

    fn disorder(&self) -> Disorder {
        self.packets.disorder()
    }
}

/// A link's leaf classes as flows, for flow algorithms, in the order of the file. The weight of each is its entitlement
/// in millionths of the largest one: its guaranteed rate. If its link's algorithm guarantees none, that is its
/// configured rate, or else an equal part of its parent's.
#[derive(Debug)]
pub struct AsFlows {
    /// The entitlement of each.
    pub flows: Vec<Flow>,
    /// The name of each.
    pub names: Vec<String>,
    places: Places,
    /// The flow numbers of the classes, by place; unused for a class with children.
    numbers: Vec<u32>,
    /// Lengths that the link carries, without overhead.
    carried: RangeInclusive<u32>,
}

impl AsFlows {
    /// `ids` are the numbers of the link's classes in its discipline. O(classes).
    pub fn of(link: &Link, ids: &[ClassId]) -> AsFlows {
        let terms = ClassTerms::of(link);
        let entitled = entitlements(link, &terms);
        let queues = terms
            .iter()
            .zip(&entitled)
            .filter(|(terms, _)| terms.queues);
        let most = queues
            .map(|(_, entitled)| *entitled)
            .max()
            .unwrap_or(0)
            .max(1);
        let longest = Length::new(link.longest.get() - link.overhead).unwrap_or(link.longest);
        let (mut flows, mut names, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (terms, entitled) in terms.iter().zip(&entitled) {
            numbers.push(flows.len() as u32);
            if terms.queues {
                let weight = entitled * u64::from(MAX_WEIGHT) / most;
                flows.push(Flow {
                    weight: Weight::new(weight as u32).unwrap_or(Weight::ONE),
                    max_len: longest,
                });
                names.push(terms.name.to_string());
            }
        }
        AsFlows {
            flows,
            names,
            places: Places::new(ids),
            numbers,
            // An empty packet without overhead takes no time on the link.
            carried: u32::from(link.overhead == 0)..=longest.get(),
        }
    }

    /// Records all of `arrivals`, which errors call `name`, except packets that the link does not carry. O(arrivals).
    ///
    /// # Errors
    ///
    /// An arrival is not as it must be.
    pub fn record<B>(
        &self,
        name: String,
        arrivals: &mut dyn Arrivals<ClassFlow, B>,
    ) -> Result<Recording> {
        Recording::of(name, arrivals, |arrival| {
            let place = self.places.of(arrival.to.class);
            let carried = self.carried.contains(&arrival.len);
            carried.then(|| self.numbers[place])
        })
    }
}

/// Returns the entitlement of each class in bit/s.
fn entitlements(link: &Link, terms: &List<ClassTerms>) -> Vec<u64> {
    let above = |at: usize| link.classes[at].parent;
    // Of each class, those below it included.
    let mut queues: Vec<u64> = terms.iter().map(|one| one.queues.into()).collect();
    let mut all = 0;
    for (at, _) in terms.iter().enumerate().filter(|(_, one)| one.queues) {
        all += 1;
        let classes = iter::successors(above(at), |&at| above(at));
        classes.for_each(|class| queues[class] += 1);
    }
    let mut entitled: Vec<u64> = Vec::with_capacity(queues.len());
    // Parents come before their children.
    for (at, one) in terms.iter().enumerate() {
        let (rate, of) = match above(at) {
            Some(parent) => (entitled[parent], queues[parent]),
            None => (link.rate.bps(), all),
        };
        let part = rate * queues[at] / of.max(1);
        entitled.push(one.guaranteed_bps.or(one.rate_bps).unwrap_or(part));
    }
    entitled
}

/// The report of a replay by class; its keys are those of `fairlane replay --config --json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The link's name.
    pub link: String,
    /// The algorithm among its topmost classes.
    pub alg: String,
    /// Its rate in bit/s.
    pub rate_bps: u64,
    /// Overhead in bytes per packet.
    pub overhead: u32,
    /// From the first arrival to the last departure.
    pub seconds: f64,
    /// That left.
    pub packets: u64,
    /// Theirs, without overhead.
    pub bytes: u64,
    /// Packets longer than the link carries, among the drops of their classes.
    pub oversized: u64,
    /// Packets in the default class, as they could not be read.
    pub malformed: u64,
    /// Packets in the default class, as no filter matched.
    pub unmatched: u64,
    /// The link's classes, in the order of the file.
    pub classes: Vec<ClassReport>,
}

impl Report {
    fn new(link: &Link, classes: Vec<ClassReport>, time: Picos, oversized: u64) -> Report {
        let leaves = || classes.iter().filter(|class| class.terms.queues);
        let packets: u64 = leaves().map(|class| class.sent_packets).sum();
        let bytes: u64 = leaves().map(|class| class.sent_bytes).sum();
        Report {
            link: link.name.clone(),
            alg: link.algorithm.to_string(),
            rate_bps: link.rate.bps(),
            overhead: link.overhead,
            seconds: time.as_secs_f64(),
            packets,
            bytes: bytes - packets * u64::from(link.overhead),
            oversized,
            malformed: 0,
            unmatched: 0,
            classes,
        }
    }
}

/// Sends all `arrivals` over the link, in the order of its classes. `queue` and `ids` are the
/// link's discipline.
pub fn replay<B: Body>(
    link: &Link,
    (queue, ids): Queues<B>,
    arrivals: &mut dyn Arrivals<ClassFlow, B>,
    departures: &mut dyn Departures,
) -> Result<Report> {
    let ledger = Ledger::new(link, &ids);
    let mut server = Server::over(queue, link.rate, TransmitQueue::NONE, ledger);
    let mut through = Through {
        link,
        places: Places::new(&ids),
        oversized: 0,
    };
    let time = engine::replay(&mut server, &mut through, arrivals, departures)?;
    let classes = server.observer().report(server.queue(), time);
    Ok(Report::new(link, classes, time, through.oversized))
}

struct Through<'a> {
    link: &'a Link,
    places: Places,
    oversized: u64,
}

type LinkServer<B> = Server<Discipline<Waiting<ClassFlow, B>>, Ledger, ClassFlow, B>;

impl<B: Body> ReplayStage<Discipline<Waiting<ClassFlow, B>>, Ledger, ClassFlow, B> for Through<'_> {
    fn overhead(&self) -> u32 {
        self.link.overhead
    }

    fn arrive(&mut self, server: &mut LinkServer<B>, arrival: Arrival<ClassFlow, B>) -> Result<()> {
        let long = arrival.len.checked_add(self.link.overhead);
        let len = long.and_then(Length::new);
        match len.filter(|&len| len <= self.link.longest) {
            // Whether it was accepted the ledger knows.
            Some(len) => drop(server.arrive(arrival.at(), arrival.to, len, arrival.body)),
            None => {
                self.oversized += 1;
                let len = u64::from(arrival.len) + u64::from(self.link.overhead);
                server.observer_mut().oversized(arrival.to, len);
            }
        }
        Ok(())
    }

    fn number(&self, of: ClassFlow) -> u32 {
        self.link.classes[self.places.of(of.class)].number as u32
    }

    fn name(&self, of: ClassFlow) -> String {
        format!(
            "class '{}'",
            self.link.classes[self.places.of(of.class)].name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(text: &str) -> Vec<(String, u32)> {
        let site = Site::parse(text, "site.toml").unwrap();
        let (_, ids): Queues<Frame> = site.links[0].discipline();
        let classes = AsFlows::of(&site.links[0], &ids);
        let weights = classes.flows.iter().map(|flow| flow.weight.get());
        classes.names.into_iter().zip(weights).collect()
    }

    fn class(name: &str, keys: &str) -> String {
        format!("[[link.class]]\nname = '{name}'\n{keys}\n")
    }

    #[test]
    fn a_class_that_nothing_is_guaranteed_has_its_rate_or_a_part_of_what_is_above_it() {
        let link = "[[link]]\nname = 'up'\nrate = '10mbit'\n";
        // CBQ guarantees nothing, but has rates.
        let (fast, slow) = ("rate = '6mbit'", "rate = '3mbit'\ndefault = true");
        let cbq = [class("fast", fast), class("slow", slow)].concat();
        let cbq = weights(&format!("{link}algorithm = 'cbq'\n{cbq}"));
        let expected = [("fast", 1_000_000), ("slow", 500_000)];
        assert_eq!(
            cbq,
            expected.map(|(name, weight)| (name.to_owned(), weight))
        );
        // Nor does SFQ, whose classes share their parent's rate.
        let sfq = [
            class("voice", "rate = '4mbit'"),
            class("rest", "rate = '6mbit'\nalgorithm = 'sfq'"),
            class("one", "parent = 'rest'"),
            class("other", "parent = 'rest'\ndefault = true"),
        ];
        let sfq = weights(&format!("{link}{}", sfq.concat()));
        let expected = [("voice", 1_000_000), ("one", 750_000), ("other", 750_000)];
        assert_eq!(
            sfq,
            expected.map(|(name, weight)| (name.to_owned(), weight))
        );
    }
}
