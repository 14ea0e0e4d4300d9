//! A replay through the classes of a site's link.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use anyhow::{Result, bail, ensure};
use fairlane_classify::{DigestKey, LinkClassifier, Origin};
use fairlane_config::class_report::ClassReport;
use fairlane_config::{Discipline, Kind, Link as Site};
use fairlane_core::Length;
use fairlane_core::tree::ClassId;
use fairlane_sim::{ClassFlow, Picos, Server, TransmitQueue, Waiting};

use crate::classes::{Ledger, Places};
use fairlane_traffic::arrivals::{Arrival, Arrivals, Body, Frame, Listed};
use fairlane_traffic::capture::{Packets, View};
use fairlane_traffic::csv::Rows;
use fairlane_traffic::departures::Departures;
use fairlane_traffic::engine::{self, Course};
use fairlane_traffic::in_order::Disorder;

/// Arrivals from rows of `time_ns,flow,len`, and `key` if the file has it.
pub fn of_classes<'a>(
    input: impl BufRead + 'a,
    name: String,
    link: &'a Site,
    ids: Vec<ClassId>,
) -> Result<impl Arrivals<ClassFlow, ()> + 'a> {
    let rows = Rows::with_optional(input, name, ["time_ns", "flow", "len", "key"], 1)?;
    let places = || link.classes.iter().enumerate();
    let by_name: HashMap<&str, usize> = places()
        .map(|(at, class)| (class.name.as_str(), at))
        .collect();
    let by_number: HashMap<u64, usize> = places()
        .map(|(at, class)| (class.number as u64, at))
        .collect();
    Ok(Listed::new(rows, move |rows| {
        let time = rows.number(0)?;
        // By its name, else by its number in the file.
        let word = rows.word(1);
        let numbered = || by_number.get(&word.parse().ok()?);
        let found = by_name.get(word).or_else(numbered).copied();
        let at = class_of(link, word, found, || rows.place())?;
        let len = rows.number(2)?;
        let most = link.longest.get() - link.overhead;
        ensure!(
            (1..=u64::from(most)).contains(&len),
            "{}: len {len} is not from 1 to {most}, the longest packet of link '{}'",
            rows.place(),
            link.name
        );
        let key = if rows.has(3) { rows.number(3)? } else { 0 };
        let flows = matches!(link.classes[at].kind, Kind::Flows(_));
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
    link: &Site,
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
    if let Kind::Inner(_) = link.classes[at].kind {
        bail!(
            "{}: flow '{}': class '{}' has children, and packets go to a class without",
            place(),
            word.escape_debug(),
            link.classes[at].name
        );
    }
    Ok(at)
}

/// The packets of a capture, classified by the link's filters.
pub struct Captured<R: Read> {
    packets: Packets<R>,
    classifier: LinkClassifier,
    origin: Origin,
    view: View,
}

impl<R: Read> Captured<R> {
    pub fn new(packets: Packets<R>, link: &Site, ids: &[ClassId], origin: Origin) -> Self {
        Captured {
            packets,
            // The same in every run.
            classifier: link.classifier(ids, DigestKey([0; 2])),
            origin,
            view: View::default(),
        }
    }

    /// Packets that could not be read, and that no filter matched.
    pub fn unclassified(&self) -> (u64, u64) {
        (self.classifier.malformed(), self.classifier.unmatched())
    }
}

impl<R: Read> Arrivals<ClassFlow, Frame> for Captured<R> {
    fn next(&mut self) -> Result<Option<Arrival<ClassFlow, Frame>>> {
        let framing = self.packets.framing();
        let Some(packet) = self.packets.next()? else {
            return Ok(None);
        };
        let (seen, layer, headers) = self.view.of(framing, &packet);
        Ok(Some(Arrival {
            time: packet.time,
            to: self.classifier.classify(seen, layer, &self.origin),
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

/// What a replay was.
pub struct Replayed {
    pub classes: Vec<ClassReport>,
    /// From the first arrival to the last departure.
    pub time: Picos,
    /// Packets longer than the link carries.
    pub oversized: u64,
}

/// Sends all `arrivals` over the link, in the order of its classes. `queue` and `ids` are the
/// link's discipline.
pub fn replay<B: Body>(
    link: &Site,
    (queue, ids): (Discipline<Waiting<ClassFlow, B>>, Vec<ClassId>),
    arrivals: &mut dyn Arrivals<ClassFlow, B>,
    departures: &mut dyn Departures,
) -> Result<Replayed> {
    let ledger = Ledger::new(link, &ids);
    let mut server = Server::over(queue, link.rate, TransmitQueue::NONE, ledger);
    let mut through = Through {
        link,
        places: Places::new(&ids),
        oversized: 0,
    };
    let time = engine::replay(&mut server, &mut through, arrivals, departures)?;
    Ok(Replayed {
        classes: server.observer().report(server.queue(), time),
        time,
        oversized: through.oversized,
    })
}

struct Through<'a> {
    link: &'a Site,
    places: Places,
    oversized: u64,
}

type Link<B> = Server<Discipline<Waiting<ClassFlow, B>>, Ledger, ClassFlow, B>;

impl<B: Body> Course<Discipline<Waiting<ClassFlow, B>>, Ledger, ClassFlow, B> for Through<'_> {
    fn overhead(&self) -> u32 {
        self.link.overhead
    }

    fn arrive(&mut self, server: &mut Link<B>, arrival: Arrival<ClassFlow, B>) -> Result<()> {
        let long = arrival.len.checked_add(self.link.overhead);
        let len = long.and_then(Length::new);
        match len.filter(|&len| len <= self.link.longest) {
            // Whether it was accepted the ledger knows.
            Some(len) => drop(server.arrive(arrival.at(), arrival.to, len, arrival.body)),
            None => self.oversized += 1,
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
