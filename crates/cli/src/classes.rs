//! What became of the packets of each class of a link, beside what it is guaranteed.

use std::collections::HashMap;

use comfy_table::Table;
use fairlane_config::{Kind, Link, NoGuarantee};
use fairlane_core::tree::{ClassId, ClassQueue, Rejection};
use fairlane_core::{Length, Nanos};
use fairlane_sim::{
    ClassFlow, Completion, Delays, Moment, Observer, PICOS_PER_SECOND, PacketInfo, Picos,
};
use serde::Serialize;

use crate::check::report::{rate, time};
use crate::table;

/// Columns to do without on a narrow terminal, the first of them first.
const EXPENDABLE: [usize; 6] = [8, 7, 6, 10, 2, 9];

/// What the bound is for.
const CONDITION: &str = "bound: within which a packet has left that finds its class (or its flow, \
                         in a class of flows) empty, whatever the others send";

/// What it is not for.
const LONGER: &str = "longer than the bound took packets that found others of theirs waiting: ";

/// Packets and their bytes, overhead included.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Count {
    fn add(&mut self, len: Length) {
        self.packets += 1;
        self.bytes += u64::from(len.get());
    }

    fn plus(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// What is counted of one class.
#[derive(Clone, Debug, Default)]
struct Account {
    offered: Count,
    sent: Count,
    dropped: u64,
    discarded: u64,
    marked: u64,
    delays: Delays,
    /// Packets that took longer than the bound.
    beyond: u64,
    /// Packets that found their class, or flow, empty; and the longest that one took.
    alone: u64,
    alone_max: Picos,
}

/// What of one flow, or of a class without, has arrived and not left.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    packets: u32,
    /// The packet that found nothing, by its number, while it is here.
    first: Option<u64>,
}

/// Counts what becomes of every packet of a link. O(1) a packet.
#[derive(Debug)]
pub struct Ledger {
    places: Places,
    accounts: Vec<Account>,
    bounds: Vec<Option<Picos>>,
    present: HashMap<(usize, u64), Present>,
}

impl Ledger {
    /// `ids` are the queues' numbers of the link's classes.
    pub fn new(link: &Link, ids: &[ClassId]) -> Ledger {
        let guarantees = link.guarantees();
        let bound = |delay: Option<Result<Nanos, NoGuarantee>>| delay?.ok().map(Picos::from);
        Ledger {
            places: Places::new(ids),
            accounts: vec![Account::default(); link.classes.len()],
            bounds: guarantees.iter().map(|has| bound(has.delay)).collect(),
            present: HashMap::new(),
        }
    }

    /// Forgets what was counted. Packets on their way stay known.
    pub fn restart(&mut self) {
        self.accounts.fill(Account::default());
    }

    /// Whether the packet that leaves had found its class, or flow, empty.
    fn leaves(&mut self, place: usize, packet: &PacketInfo<ClassFlow>) -> bool {
        let key = (place, packet.flow.flow);
        let Some(present) = self.present.get_mut(&key) else {
            return false;
        };
        let alone = present.first == Some(packet.number);
        if alone {
            present.first = None;
        }
        present.packets -= 1;
        if present.packets == 0 {
            self.present.remove(&key);
        }
        alone
    }

    /// All classes of the link, over a time of this length, with the queue's own counts.
    pub fn report<P>(
        &self,
        link: &Link,
        ids: &[ClassId],
        queue: &impl ClassQueue<P>,
        time: Picos,
    ) -> Vec<ClassReport> {
        let guarantees = link.guarantees();
        let mut accounts = self.accounts.clone();
        // Parents come before their children.
        for at in (0..accounts.len()).rev() {
            if let Some(parent) = link.classes[at].parent {
                let below = accounts[at].clone();
                let above = &mut accounts[parent];
                above.offered.plus(below.offered);
                above.sent.plus(below.sent);
                above.dropped += below.dropped;
                above.discarded += below.discarded;
                above.marked += below.marked;
            }
        }
        let top = link.classes.iter().zip(&accounts);
        let top = top.filter(|(class, _)| class.parent.is_none());
        let all: u64 = top.map(|(_, account)| account.sent.bytes).sum();
        let mut depths: Vec<usize> = Vec::new();
        let mut rows = Vec::with_capacity(accounts.len());
        for (at, class) in link.classes.iter().enumerate() {
            let depth = class.parent.map_or(0, |parent| depths[parent] + 1);
            depths.push(depth);
            let account = &accounts[at];
            let stats = queue.stats(ids[at]).unwrap_or_default();
            let guarantee = &guarantees[at];
            let reason = guarantee.rate.err().or(match guarantee.delay {
                Some(Err(reason)) => Some(reason),
                _ => None,
            });
            let measured = account.delays.count() > 0;
            rows.push(ClassReport {
                name: class.name.clone(),
                number: class.number,
                parent: class.parent.map(|parent| link.classes[parent].name.clone()),
                depth,
                queues: !matches!(class.kind, Kind::Inner(_)),
                guaranteed_bps: guarantee.rate.ok(),
                ceil_bps: class.cap.map(|cap| cap.rate.bps()),
                offered_packets: account.offered.packets,
                offered_bytes: account.offered.bytes,
                offered_bps: bps(account.offered.bytes, time),
                sent_packets: account.sent.packets,
                sent_bytes: account.sent.bytes,
                sent_bps: bps(account.sent.bytes, time),
                share: account.sent.bytes as f64 / all.max(1) as f64,
                dropped: account.dropped,
                discarded: account.discarded,
                marked: account.marked,
                queued_packets: stats.queued.packets,
                queued_bytes: stats.queued.bytes,
                flows: stats.flows,
                delay_us: measured.then(|| DelayReport::of(&account.delays)),
                bound_us: self.bounds[at].map(micros),
                no_bound: reason.as_ref().map(NoGuarantee::to_string),
                beyond_bound: self.bounds[at].map(|_| account.beyond),
                alone_packets: account.alone,
                alone_max_us: (account.alone > 0).then(|| micros(account.alone_max)),
            });
        }
        rows
    }
}

impl Observer<ClassFlow> for Ledger {
    fn arrived(&mut self, _: Moment, packet: &PacketInfo<ClassFlow>) {
        let place = self.places.of(packet.flow.class);
        self.accounts[place].offered.add(packet.len);
        let present = self.present.entry((place, packet.flow.flow)).or_default();
        if present.packets == 0 {
            present.first = Some(packet.number);
        }
        present.packets += 1;
    }

    fn dropped(&mut self, _: Moment, to: ClassFlow, len: Length, _: Rejection) {
        let account = &mut self.accounts[self.places.of(to.class)];
        account.offered.add(len);
        account.dropped += 1;
    }

    fn discarded(&mut self, _: Moment, packet: &PacketInfo<ClassFlow>) {
        let place = self.places.of(packet.flow.class);
        self.leaves(place, packet);
        self.accounts[place].discarded += 1;
    }

    fn completed(&mut self, completion: &Completion<ClassFlow>) {
        let packet = &completion.packet;
        let place = self.places.of(packet.flow.class);
        let delay = completion.end.time - packet.arrival;
        let alone = self.leaves(place, packet);
        let account = &mut self.accounts[place];
        account.sent.add(packet.len);
        account.marked += u64::from(packet.marked);
        account.delays.record(delay);
        if self.bounds[place].is_some_and(|bound| delay > bound) {
            account.beyond += 1;
        }
        if alone {
            account.alone += 1;
            account.alone_max = account.alone_max.max(delay);
        }
    }
}

fn bps(bytes: u64, time: Picos) -> f64 {
    let seconds = time.0 as f64 / PICOS_PER_SECOND as f64;
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

fn micros(time: Picos) -> f64 {
    time.0 as f64 / 1e6
}

/// One class; bytes count overhead. Null: there is none.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    pub name: String,
    /// Its number in the order of the file, from 0.
    pub number: usize,
    parent: Option<String>,
    #[serde(skip)]
    depth: usize,
    /// Whether packets wait here, not in classes below.
    #[serde(skip)]
    pub queues: bool,
    guaranteed_bps: Option<u64>,
    ceil_bps: Option<u64>,
    offered_packets: u64,
    offered_bytes: u64,
    offered_bps: f64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    sent_bps: f64,
    /// Of what the link sent.
    share: f64,
    /// When they came.
    pub dropped: u64,
    /// Later, by queue management.
    pub discarded: u64,
    marked: u64,
    /// At the end.
    queued_packets: u64,
    queued_bytes: u64,
    flows: u64,
    delay_us: Option<DelayReport>,
    bound_us: Option<f64>,
    /// Why there is no guarantee, or no bound.
    no_bound: Option<String>,
    /// Packets that took longer than the bound.
    beyond_bound: Option<u64>,
    /// Packets that found their class, or flow, empty: those that the bound is for.
    alone_packets: u64,
    alone_max_us: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct DelayReport {
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl DelayReport {
    fn of(delays: &Delays) -> DelayReport {
        DelayReport {
            mean: micros(delays.mean()),
            p50: micros(delays.percentile(50.0)),
            p99: micros(delays.percentile(99.0)),
            max: micros(delays.max()),
        }
    }
}

impl ClassReport {
    /// That a packet which the bound is for took longer: what must never be.
    fn broken(&self) -> Option<String> {
        let (bound, max) = (self.bound_us?, self.alone_max_us?);
        (max > bound).then(|| {
            format!(
                "{}: BEYOND ITS BOUND: a packet that found it empty took {}, not {}",
                self.name,
                shown(max),
                shown(bound)
            )
        })
    }

    /// How many packets took longer that the bound is not for.
    fn beyond(&self) -> Option<String> {
        let beyond = self.beyond_bound.filter(|&beyond| beyond > 0)?;
        let guaranteed = self.guaranteed_bps?;
        let more = match self.offered_bps > guaranteed as f64 {
            true => ", offered more than is guaranteed",
            false => "",
        };
        Some(format!(
            "{} ({beyond} of {}{more})",
            self.name, self.sent_packets
        ))
    }
}

fn shown(micros: f64) -> String {
    time(Nanos((micros * 1e3).round() as u64))
}

/// The classes as a table, children below their parents, and what there is to say of them.
pub fn text(classes: &[ClassReport]) -> String {
    let table = table_of(classes);
    let bounded = classes.iter().any(|class| class.bound_us.is_some());
    let mut lines: Vec<String> = Vec::new();
    if bounded {
        lines.push(CONDITION.to_owned());
    }
    lines.extend(classes.iter().filter_map(ClassReport::broken));
    let beyond: Vec<String> = classes.iter().filter_map(ClassReport::beyond).collect();
    if !beyond.is_empty() {
        lines.push(format!("{LONGER}{}", beyond.join(", ")));
    }
    format!("{table}\n{}", lines.join("\n"))
        .trim_end()
        .to_owned()
}

fn table_of(classes: &[ClassReport]) -> Table {
    let mut table = table::new([
        "class",
        "guaranteed",
        "offered",
        "sent",
        "share",
        "drops",
        "marks",
        "delay\nmean",
        "delay\np50",
        "delay\np99",
        "delay\nmax",
        "bound",
    ]);
    for class in classes {
        let delay = |of: fn(&DelayReport) -> f64| match &class.delay_us {
            Some(delays) => shown(of(delays)),
            None => String::new(),
        };
        let none = if class.queues { "none" } else { "" };
        table.add_row([
            format!("{}{}", "  ".repeat(class.depth), class.name),
            class.guaranteed_bps.map_or("none".to_owned(), rate),
            rate(class.offered_bps.round() as u64),
            rate(class.sent_bps.round() as u64),
            format!("{:.2}%", class.share * 100.0),
            (class.dropped + class.discarded).to_string(),
            class.marked.to_string(),
            delay(|delays| delays.mean),
            delay(|delays| delays.p50),
            delay(|delays| delays.p99),
            delay(|delays| delays.max),
            class.bound_us.map_or(none.to_owned(), shown),
        ]);
    }
    table::fit(&mut table, &EXPENDABLE);
    table
}

/// The place of each class of a link, by the number that the queues know it by.
#[derive(Debug)]
pub struct Places(Vec<usize>);

impl Places {
    /// `ids` are the queues' numbers by place.
    pub fn new(ids: &[ClassId]) -> Places {
        let numbers = ids.iter().map(|id| id.number() as usize + 1);
        let mut places = vec![0; numbers.max().unwrap_or(0)];
        for (place, id) in ids.iter().enumerate() {
            places[id.number() as usize] = place;
        }
        Places(places)
    }

    pub fn of(&self, class: ClassId) -> usize {
        self.0[class.number() as usize]
    }
}

/// What the link did: the line above the table.
pub fn headline(link: &Link, sent: &[ClassReport], time: Picos) -> String {
    let top = sent.iter().filter(|class| class.parent.is_none());
    let bytes: u64 = top.map(|class| class.sent_bytes).sum();
    let carried = bps(bytes, time);
    let part = carried / link.rate.bps() as f64 * 100.0;
    format!(
        "{} at {}: {}, {} carried ({part:.2}%)",
        link.name,
        link.rate,
        link.algorithm,
        rate(carried.round() as u64)
    )
}
