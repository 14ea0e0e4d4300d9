//! Arrivals in the classes of a site's link, and the link that sends them.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use anyhow::{Context, Result, bail, ensure};
use fairlane_classify::{DigestKey, Layer, Origin, mark_ce};
use fairlane_config::{Discipline, Kind, Link as Site, Sorter};
use fairlane_core::tree::{ClassId, ClassQueue, ClassStats, Dequeue, Discarded, Payload};
use fairlane_core::{Length, Nanos};
use fairlane_sim::{Link, Picos, TransmitQueue};

use super::arrivals::too_late;
use super::capture::Packets;
use super::departures::{Departure, Departures};
use super::in_order::{Disorder, InOrder};
use super::rows::Rows;
use crate::classes::{Ledger, Passing, Places};

/// A packet's bytes, where there are any.
pub type Bytes = Box<[u8]>;

/// A packet that arrives.
pub struct Arrival {
    /// In nanoseconds, never before that of the arrival before.
    time: u64,
    class: ClassId,
    /// The digest of its flow; 0 in a class without.
    flow: u64,
    /// In bytes, without overhead.
    len: u32,
    body: Body,
}

/// What leaves with a packet.
struct Body {
    bytes: Bytes,
    /// Where the headers are that can be marked, if anywhere.
    headers: Option<(Layer, usize)>,
}

/// Where arrivals come from.
pub trait Arrivals {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Result<Option<Arrival>>;
}

/// Arrivals from rows of `time_ns,flow,len`, and `key` if the file has it.
pub struct Listed<'a, R> {
    rows: Rows<R, 4>,
    link: &'a Site,
    ids: Vec<ClassId>,
    by_name: HashMap<&'a str, usize>,
    by_number: HashMap<u64, usize>,
    order: InOrder<Arrival>,
}

impl<'a, R: BufRead> Listed<'a, R> {
    pub fn new(input: R, name: String, link: &'a Site, ids: &[ClassId]) -> Result<Self> {
        let columns = ["time_ns", "flow", "len", "key"];
        let places = || link.classes.iter().enumerate();
        Ok(Listed {
            rows: Rows::with_optional(input, name, columns, 1)?,
            link,
            ids: ids.to_vec(),
            by_name: places()
                .map(|(at, class)| (class.name.as_str(), at))
                .collect(),
            by_number: places()
                .map(|(at, class)| (class.number as u64, at))
                .collect(),
            order: InOrder::new(),
        })
    }

    /// The class of a row: by its name, else by its number in the file.
    fn class(&self) -> Result<usize> {
        let word = self.rows.word(1);
        let found = match self.by_name.get(word) {
            Some(&at) => Some(at),
            None => word
                .parse()
                .ok()
                .and_then(|number: u64| self.by_number.get(&number).copied()),
        };
        let Some(at) = found else {
            bail!(
                "{}: flow '{}' is no class of link '{}': it is a class's name, or its number in \
                 the order of the file, 0 to {}",
                self.place(),
                word.escape_debug(),
                self.link.name,
                self.link.classes.len() - 1
            );
        };
        if let Kind::Inner(_) = self.link.classes[at].kind {
            bail!(
                "{}: flow '{}': class '{}' has children, and packets go to a class without",
                self.place(),
                word.escape_debug(),
                self.link.classes[at].name
            );
        }
        Ok(at)
    }
}

impl<R: BufRead> Listed<'_, R> {
    /// What was put in order.
    pub fn disorder(&self) -> Disorder {
        self.order.disorder
    }

    fn place(&self) -> String {
        self.rows.place()
    }

    /// The next row.
    fn read(&mut self) -> Result<Option<Arrival>> {
        if !self.rows.next_row()? {
            return Ok(None);
        }
        let time = self.rows.number(0)?;
        let at = self.class()?;
        let len = self.rows.number(2)?;
        let most = self.link.longest.get() - self.link.overhead;
        ensure!(
            (1..=u64::from(most)).contains(&len),
            "{}: len {len} is not from 1 to {most}, the longest packet of link '{}'",
            self.place(),
            self.link.name
        );
        let key = if self.rows.has(3) {
            self.rows.number(3)?
        } else {
            0
        };
        let flows = matches!(self.link.classes[at].kind, Kind::Flows(_));
        Ok(Some(Arrival {
            time,
            class: self.ids[at],
            flow: if flows { key } else { 0 },
            len: len as u32,
            body: Body {
                bytes: Bytes::default(),
                headers: None,
            },
        }))
    }
}

impl<R: BufRead> Arrivals for Listed<'_, R> {
    fn next(&mut self) -> Result<Option<Arrival>> {
        loop {
            if let Some(arrival) = self.order.pop() {
                return Ok(Some(arrival));
            }
            if self.order.is_over() {
                return Ok(None);
            }
            match self.read()? {
                Some(arrival) => {
                    let time = arrival.time;
                    let pushed = self.order.push(time, arrival);
                    pushed.map_err(|late| too_late(&self.place(), time, late))?;
                }
                None => self.order.end(),
            }
        }
    }
}

/// The packets of a capture, sorted by the link's filters.
pub struct Sorted<R: Read> {
    packets: Packets<R>,
    sorter: Sorter,
    origin: Origin,
    /// A packet as filters see it, where that is not as it was captured.
    scratch: Vec<u8>,
}

impl<R: Read> Sorted<R> {
    pub fn new(packets: Packets<R>, link: &Site, ids: &[ClassId], origin: Origin) -> Self {
        Sorted {
            packets,
            // The same in every run.
            sorter: link.sorter(ids, DigestKey([0; 2])),
            origin,
            scratch: Vec::new(),
        }
    }

    /// What was put in order.
    pub fn disorder(&self) -> Disorder {
        self.packets.disorder()
    }

    /// Packets that could not be read, and that no filter matched.
    pub fn unsorted(&self) -> (u64, u64) {
        (self.sorter.malformed(), self.sorter.unmatched())
    }
}

impl<R: Read> Arrivals for Sorted<R> {
    fn next(&mut self) -> Result<Option<Arrival>> {
        let framing = self.packets.framing();
        let Some(packet) = self.packets.next()? else {
            return Ok(None);
        };
        let captured = &packet.bytes[..];
        let (layer, start, ether_type) = match framing.layer(captured) {
            Ok((layer, start)) => (layer, start, None),
            Err(ether_type) => (Layer::Ethernet, captured.len(), Some(ether_type)),
        };
        let headers = ether_type.is_none().then_some((layer, start));
        self.scratch.clear();
        if let Some(ether_type) = ether_type {
            self.scratch.extend([0; 12]);
            self.scratch.extend(ether_type.to_be_bytes());
        }
        let seen = captured.get(start..).unwrap_or_default();
        let missing = packet.len as usize - captured.len();
        let seen = if missing > 0 || ether_type.is_some() {
            // What was not captured was there when it was sorted; all headers come first.
            self.scratch.extend(seen);
            let whole = self.scratch.len() + missing.min(usize::from(u16::MAX));
            self.scratch.resize(whole, 0);
            &self.scratch[..]
        } else {
            seen
        };
        let sorted = self.sorter.sort(seen, layer, &self.origin);
        Ok(Some(Arrival {
            time: packet.time,
            class: sorted.class,
            flow: sorted.flow,
            len: packet.len,
            body: Body {
                bytes: captured.into(),
                headers,
            },
        }))
    }
}

/// What waits with a packet.
pub struct Parcel {
    arrival: u64,
    number: u64,
    flow: u64,
    marked: bool,
    body: Body,
}

impl Payload for Parcel {
    fn mark(&mut self) -> bool {
        let Some((layer, start)) = self.body.headers else {
            return false;
        };
        let headers = self.body.bytes.get_mut(start..);
        let marks = headers.is_some_and(|headers| mark_ce(headers, layer));
        self.marked |= marks;
        marks
    }
}

/// What a replay was.
pub struct Replayed {
    pub ledger: Ledger,
    pub stats: Vec<ClassStats>,
    /// From the first arrival to the last departure.
    pub time: Picos,
    /// Packets longer than the link carries.
    pub oversized: u64,
}

/// Sends all `arrivals` over the link, in the order of its classes. `queue` and `ids` are the
/// link's discipline.
pub fn replay(
    link: &Site,
    (queue, ids): (Discipline<Parcel>, Vec<ClassId>),
    arrivals: &mut dyn Arrivals,
    departures: &mut dyn Departures<Bytes>,
) -> Result<Replayed> {
    let mut engine = Engine {
        site: link,
        queue,
        places: Places::new(&ids),
        link: Link::new(link.rate, TransmitQueue::NONE),
        ledger: Ledger::new(link),
        number: 0,
        oversized: 0,
    };
    let mut next = arrivals.next()?;
    let first = next.as_ref().map_or(0, |arrival| arrival.time);
    let mut last = Picos::from_nanos(first);
    // When the queue has something to send, as it said.
    let mut wake: Option<Nanos> = None;
    loop {
        let arrives = next.as_ref().map(|arrival| Picos::from_nanos(arrival.time));
        let ends = engine.link.next_completion();
        let woken = wake.map(Picos::from);
        let now = match (ends, woken.into_iter().chain(arrives).min()) {
            (Some(end), _) => end,
            (None, Some(time)) => time,
            (None, None) => break,
        };
        // At one instant arrivals come first: they count where the next is chosen.
        while let Some(arrival) = next.take_if(|a| Picos::from_nanos(a.time) <= now) {
            engine.arrive(arrival)?;
            next = arrivals.next()?;
        }
        if let Some(departure) = engine.complete()? {
            last = now;
            departures.write(&departure)?;
        }
        wake = engine.choose(now)?;
    }
    let stats = ids
        .iter()
        .map(|&id| engine.queue.stats(id).unwrap_or_default());
    Ok(Replayed {
        stats: stats.collect(),
        ledger: engine.ledger,
        time: last - Picos::from_nanos(first),
        oversized: engine.oversized,
    })
}

struct Engine<'a> {
    site: &'a Site,
    queue: Discipline<Parcel>,
    places: Places,
    link: Link<(ClassId, Parcel)>,
    ledger: Ledger,
    /// Packets that have arrived.
    number: u64,
    oversized: u64,
}

impl Engine<'_> {
    fn passing(places: &Places, class: ClassId, len: Length, parcel: &Parcel) -> Passing {
        Passing {
            number: parcel.number,
            place: places.of(class),
            flow: parcel.flow,
            len,
        }
    }

    fn arrive(&mut self, arrival: Arrival) -> Result<()> {
        let Arrival {
            time,
            class,
            flow,
            len,
            body,
        } = arrival;
        let long = len.checked_add(self.site.overhead).and_then(Length::new);
        let Some(len) = long.filter(|&len| len <= self.site.longest) else {
            self.oversized += 1;
            return Ok(());
        };
        let parcel = Parcel {
            arrival: time,
            number: self.number,
            flow,
            marked: false,
            body,
        };
        self.number += 1;
        let passing = Engine::passing(&self.places, class, len, &parcel);
        let (places, ledger) = (&self.places, &mut self.ledger);
        let gives_way = |gone: Discarded<Parcel>| {
            ledger.discarded(Engine::passing(places, gone.class, gone.len, &gone.payload));
        };
        let now = Nanos(time);
        match self.queue.enqueue(class, flow, len, parcel, now, gives_way) {
            Ok(()) => self.ledger.accepted(passing),
            Err(_) => self.ledger.refused(passing.place, len),
        }
        Ok(())
    }

    /// The packet in service, if there is one, has left.
    fn complete(&mut self) -> Result<Option<Departure<Bytes>>> {
        let Some(sent) = self.link.complete() else {
            return Ok(None);
        };
        let (class, parcel) = sent.payload;
        let passing = Engine::passing(&self.places, class, sent.len, &parcel);
        let name = || &self.site.classes[passing.place];
        ensure!(
            sent.end.to_nanos() < Nanos::MAX,
            "the packet of class '{}' that arrives at {} leaves too late for {} ns, the last \
             time that can be told",
            name().name,
            parcel.arrival,
            u64::MAX
        );
        let delay = sent.end - Picos::from_nanos(parcel.arrival);
        self.ledger.sent(passing, delay, parcel.marked);
        Ok(Some(Departure {
            start: sent.start.to_nanos().0,
            end: sent.end.to_nanos().0,
            flow: name().number as u32,
            len: sent.len.get() - self.site.overhead,
            arrival: parcel.arrival,
            body: parcel.body.bytes,
        }))
    }

    /// The link is free: the next packet is put on it, or the time told before which there is
    /// none.
    fn choose(&mut self, now: Picos) -> Result<Option<Nanos>> {
        let (places, ledger) = (&self.places, &mut self.ledger);
        let answer = self.queue.dequeue(now.to_nanos(), |gone| {
            ledger.discarded(Engine::passing(places, gone.class, gone.len, &gone.payload));
        });
        self.queue.tidy(now.to_nanos());
        match answer {
            Dequeue::Packet(packet) => {
                let payload = (packet.class, packet.payload);
                let pushed = self.link.push(now, packet.len, payload);
                ensure!(pushed.is_ok(), "the link is not free at {now}");
                Ok(None)
            }
            // A time that has come already is not told again: it would be now for ever.
            Dequeue::NotBefore(time) => {
                let soonest = now.to_nanos().0.checked_add(1).context("the end of time")?;
                Ok(Some(time.max(Nanos(soonest))))
            }
            Dequeue::Empty => Ok(None),
        }
    }
}
