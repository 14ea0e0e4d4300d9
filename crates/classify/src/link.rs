//! From a packet's bytes to its class and flow, for all code that sends packets through a link.

use alloc::sync::Arc;
use alloc::vec::Vec;

use fairlane_core::Nanos;
use fairlane_core::tree::{ClassFlow, ClassId};

use crate::classifier::Begin;
use crate::fragments::Fragments;
use crate::{Classifier, DigestKey, FlowKey, Origin, Per, Rule};
use fairlane_wire::{Family, Fragment, Headers, Layer, network, parse};

/// The filters of a link: which class, and which flow in it, a packet is of.
#[derive(Clone, Debug)]
pub struct LinkClassifier {
    rules: Arc<Classifier<u32>>,
    classes: Vec<Target>,
    default: u32,
    link_control: Option<u32>,
    key: DigestKey,
    /// Where a filter asks for ports, which later fragments do not have.
    fragments: Option<Fragments>,
    /// The classes of orphans, until they are taken.
    orphans: Vec<ClassId>,
    malformed: u64,
    unmatched: u64,
    opaque: Opaque,
}

/// A class that packets go to.
#[derive(Clone, Copy, Debug)]
struct Target {
    class: ClassId,
    per: Option<Per>,
    /// Bytes of its longest packet.
    longest: u32,
}

/// Packets of protocols that no filter looks into, and the type in the Ethernet header of more than half of them, if
/// there is one: the majority vote of Boyer and Moore, so that single packets of another type change nothing. Its lead
/// is limited, so that the type is that of recent packets.
#[derive(Clone, Copy, Debug, Default)]
struct Opaque {
    packets: u64,
    ethertype: u16,
    /// Votes that its type is ahead by.
    lead: u64,
}

/// Packets of other types in a row that outvote any number of former ones.
const MOST_LEAD: u64 = 100;

impl Opaque {
    #[inline]
    fn add(&mut self, ethertype: u16) {
        self.packets += 1;
        if self.lead == 0 {
            self.ethertype = ethertype;
        }
        self.lead = match self.ethertype == ethertype {
            true => (self.lead + 1).min(MOST_LEAD),
            false => self.lead - 1,
        };
    }
}

/// Why a packet goes where it goes, and what else is counted of it: one of the first three, and any of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(u8);

impl Found {
    /// It matches a filter, or is link-layer control that has a class.
    #[doc(hidden)]
    pub const FILTER: Found = Found(0);
    /// It matches none, or is longer than the class of its filter allows.
    #[doc(hidden)]
    pub const NO_FILTER: Found = Found(1);
    /// It cannot be read.
    #[doc(hidden)]
    pub const UNREADABLE: Found = Found(2);
    /// It is a fragment, which has the class and flow of the first fragment of its datagram, whatever filters say.
    #[doc(hidden)]
    pub const FRAGMENT: Found = Found(4);
    /// It is of a protocol that no filter looks into: neither IP nor link-layer control.
    #[doc(hidden)]
    pub const OPAQUE: Found = Found(8);
    /// Bits that it takes.
    pub const BITS: u32 = 4;

    /// Returns whether this is so.
    #[inline]
    pub fn has(self, other: Found) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[inline]
    #[must_use]
    pub fn and(self, other: Found) -> Found {
        Found(self.0 | other.0)
    }

    /// As a number of [`BITS`](Self::BITS) bits.
    #[inline]
    #[doc(hidden)]
    pub fn to_bits(self) -> u8 {
        self.0
    }

    /// Reads such a number; of a larger one the lowest bits count.
    #[inline]
    #[doc(hidden)]
    pub fn from_bits(bits: u8) -> Found {
        Found(bits & ((1 << Self::BITS) - 1))
    }
}

/// Fewer packets are looked up one by one.
const TOGETHER: usize = 8;
/// Orphans that are noted until they are taken: those of a batch, and more.
const MOST_ORPHANS: usize = 256;

/// Buffer for packets between two steps of [`LinkClassifier::find_all`].
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    begins: Vec<Begin>,
    packets: Vec<(Headers, Origin, bool, usize)>,
}

impl LinkClassifier {
    /// Returns the targets of `rules`, and `default`, are indexes into `classes`: each class's number in the queues,
    /// and its definition of flows if it has any. `key` must be random, so that senders cannot choose packets whose
    /// flows collide. Costs as much as [`Classifier::new`].
    ///
    /// # Panics
    ///
    /// If a packet is classified to an index out of range.
    pub fn new(
        rules: impl IntoIterator<Item = Rule<u32>>,
        classes: impl IntoIterator<Item = (ClassId, Option<Per>)>,
        default: u32,
        key: DigestKey,
    ) -> LinkClassifier {
        LinkClassifier::sharing(Arc::new(Classifier::new(rules)), classes, default, key)
    }

    /// The same with rules that were made ready before. O(classes).
    pub fn sharing(
        rules: Arc<Classifier<u32>>,
        classes: impl IntoIterator<Item = (ClassId, Option<Per>)>,
        default: u32,
        key: DigestKey,
    ) -> LinkClassifier {
        LinkClassifier {
            fragments: rules.asks_ports().then(|| Fragments::new(key)),
            rules,
            classes: classes
                .into_iter()
                .map(|(class, per)| Target {
                    class,
                    per,
                    longest: u32::MAX,
                })
                .collect(),
            default,
            link_control: None,
            key,
            orphans: Vec::new(),
            malformed: 0,
            unmatched: 0,
            opaque: Opaque::default(),
        }
    }

    /// The same, but [link-layer control](Headers::link_control) goes to the class at this place, whatever
    /// filter it matches.
    #[doc(hidden)]
    pub fn with_link_control(self, place: Option<u32>) -> LinkClassifier {
        LinkClassifier {
            link_control: place,
            ..self
        }
    }

    /// The same, but a packet of more bytes than its class allows, by place, goes to the default class, as if it
    /// matched no filter.
    #[doc(hidden)]
    pub fn with_longest(self, longest: impl IntoIterator<Item = u32>) -> LinkClassifier {
        let classes = self.classes.into_iter().zip(longest);
        let classes = classes.map(|(target, longest)| Target { longest, ..target });
        LinkClassifier {
            classes: classes.collect(),
            ..self
        }
    }

    /// Returns the rules alone, which lead to the classes' places in the link.
    pub fn rules(&self) -> &Arc<Classifier<u32>> {
        &self.rules
    }

    /// The same filters for queues that know the classes by other numbers. O(classes).
    #[doc(hidden)]
    pub fn renumber(&mut self, classes: &[ClassId]) {
        for (target, &id) in self.classes.iter_mut().zip(classes) {
            target.class = id;
        }
        if let Some(fragments) = &mut self.fragments {
            fragments.clear();
        }
    }

    /// Returns whether fragments go where the first one of their datagram went: filters ask for
    /// ports.
    #[doc(hidden)]
    pub fn follows_fragments(&self) -> bool {
        self.rules.asks_ports()
    }

    /// Continues with the counts of the filters that these replace.
    pub fn resume(&mut self, former: &LinkClassifier) {
        self.malformed = former.malformed;
        self.unmatched = former.unmatched;
        self.opaque = former.opaque;
    }

    /// Where a packet of a known class goes, by the class's place in the link; counts nothing.
    pub fn within(&self, place: usize, bytes: &[u8], layer: Layer, origin: &Origin) -> ClassFlow {
        let Target { class, per, .. } = self.classes[place];
        let flow = match (per, parse(bytes, layer)) {
            (Some(per), Ok(headers)) => per.digest(&headers, origin, &self.key),
            _ => 0,
        };
        ClassFlow { class, flow }
    }

    /// Returns the definition of flows of the class at this index, and the key of this packet's flow; counts nothing.
    /// `None` if the class has no flows, or the packet cannot be read: its flow is 0 then.
    pub fn key(
        &self,
        place: usize,
        bytes: &[u8],
        layer: Layer,
        origin: &Origin,
    ) -> Option<(Per, FlowKey)> {
        let per = self.classes.get(place)?.per?;
        let headers = parse(bytes, layer).ok()?;
        Some((per, per.key(&headers, origin)))
    }

    /// Returns where a packet goes: to the class of the first filter that it matches; to the
    /// default class if it matches none, or cannot be read, which is counted. Its flow is 0 in a
    /// class without flows, and if it cannot be read.
    ///
    /// Where a filter asks for ports, a fragment goes where the first one of its datagram went, if that was seen in the
    /// last second; of up to 4,096 datagrams this is known, of 16 of a source. A later fragment of any other datagram
    /// is an [orphan](Self::take_orphans), and is classified without ports.
    #[inline]
    pub fn classify(
        &mut self,
        bytes: &[u8],
        layer: Layer,
        origin: &Origin,
        now: Nanos,
    ) -> ClassFlow {
        let mut headers = Headers::default();
        let (mut to, found) = match headers.read(bytes, layer) {
            Ok(()) => self.find_read(&headers, origin, bytes.len()),
            Err(_) => self.unreadable(),
        };
        if found.has(Found::FRAGMENT)
            && let Some(fragments) = &mut self.fragments
        {
            to = follow(fragments, &mut self.orphans, (&headers, origin), to, now);
        }
        self.count(found, bytes);
        to
    }

    /// The same for packets that arrive together, as in [`find_all`](Self::find_all): appends the class of each to
    /// `to`, in order. Costs what [`classify`](Self::classify) does for each, or less where the filters are many.
    ///
    /// ```
    /// use fairlane_classify::{DigestKey, LinkClassifier, Match, Origin, Rule, Scratch};
    /// use fairlane_core::Nanos;
    /// use fairlane_core::tree::ClassId;
    /// use fairlane_wire::{Build, Layer};
    ///
    /// let dns = Match { destination_port: Some("53".parse()?), ..Match::default() };
    /// let rules = [Rule { priority: 0, matches: dns, target: 0 }];
    /// let classes = [(ClassId::new(7), None), (ClassId::new(8), None)];
    /// let mut link = LinkClassifier::new(rules, classes, 1, DigestKey([1, 2]));
    ///
    /// let ip = Build::packet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    /// let to_port = |port| ip.clone().udp(1, port).payload(&[]);
    /// let packets = [to_port(53), to_port(80), to_port(53)];
    /// let (mut scratch, mut to) = (Scratch::default(), Vec::new());
    /// let bytes = packets.iter().map(|packet| (&packet[..], Origin::default()));
    /// link.classify_all(bytes, Layer::Ip, Nanos::ZERO, &mut scratch, &mut to);
    /// assert!(to.iter().map(|to| to.class.number()).eq([7, 8, 7]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn classify_all<'a>(
        &mut self,
        packets: impl ExactSizeIterator<Item = (&'a [u8], Origin)>,
        layer: Layer,
        now: Nanos,
        scratch: &mut Scratch,
        to: &mut Vec<ClassFlow>,
    ) {
        let (mut unmatched, mut malformed) = (0, 0);
        let mut opaque = self.opaque;
        let mut fragments = self.fragments.take();
        let mut orphans = core::mem::take(&mut self.orphans);
        self.each(packets, layer, scratch, |of, class_flow, found| {
            let mut class_flow = class_flow;
            unmatched += u64::from(found.has(Found::NO_FILTER));
            malformed += u64::from(found.has(Found::UNREADABLE));
            if found.has(Found::FRAGMENT)
                && let Some(fragments) = &mut fragments
            {
                class_flow = follow(fragments, &mut orphans, of, class_flow, now);
            }
            if found.has(Found::OPAQUE) {
                opaque.add(of.0.ethertype);
            }
            to.push(class_flow);
        });
        (self.fragments, self.orphans) = (fragments, orphans);
        self.unmatched += unmatched;
        self.malformed += malformed;
        self.opaque = opaque;
    }

    /// The same without counting, with the result to be [counted](Self::count): for threads that share the filters.
    #[inline]
    pub fn find(&self, bytes: &[u8], layer: Layer, origin: &Origin) -> (ClassFlow, Found) {
        let mut headers = Headers::default();
        match headers.read(bytes, layer) {
            Ok(()) => self.find_read(&headers, origin, bytes.len()),
            Err(_) => self.unreadable(),
        }
    }

    /// The same for packets that arrive together: calls `found` once for each, in order. `scratch` is a reusable
    /// buffer; its contents do not matter to the caller. With many filters, look-ups begin in memory that is in no near
    /// cache: it is prefetched for all packets at once, where each would wait for it. O(packets), each of which costs
    /// as much as [`find`](Self::find) and, with many filters, some 15 ns more; less by the waits that it saves.
    #[inline]
    pub fn find_all<'a>(
        &self,
        packets: impl ExactSizeIterator<Item = (&'a [u8], Origin)>,
        layer: Layer,
        scratch: &mut Scratch,
        mut found: impl FnMut(ClassFlow, Found),
    ) {
        self.each(packets, layer, scratch, |_, to, what| found(to, what));
    }

    /// The same, with the headers and the origin of each packet.
    #[inline]
    fn each<'a>(
        &self,
        packets: impl ExactSizeIterator<Item = (&'a [u8], Origin)>,
        layer: Layer,
        scratch: &mut Scratch,
        mut found: impl FnMut((&Headers, &Origin), ClassFlow, Found),
    ) {
        if packets.len() < TOGETHER || !self.rules.is_large() {
            for (bytes, origin) in packets {
                let mut headers = Headers::default();
                let (to, what) = match headers.read(bytes, layer) {
                    Ok(()) => self.find_read(&headers, &origin, bytes.len()),
                    Err(_) => self.unreadable(),
                };
                found((&headers, &origin), to, what);
            }
            return;
        }
        scratch.begins.clear();
        scratch.packets.clear();
        for (bytes, origin) in packets {
            let mut headers = Headers::default();
            let is_readable = headers.read(bytes, layer).is_ok();
            // Of what cannot be read anything may be fetched.
            scratch.begins.push(self.rules.begin(&headers, &origin));
            scratch
                .packets
                .push((headers, origin, is_readable, bytes.len()));
        }
        self.rules.fetch(&mut scratch.begins);
        for (headers, origin, is_readable, length) in scratch.packets.drain(..) {
            let (to, what) = match is_readable {
                true => self.find_read(&headers, &origin, length),
                false => self.unreadable(),
            };
            found((&headers, &origin), to, what);
        }
    }

    #[inline]
    fn unreadable(&self) -> (ClassFlow, Found) {
        let default = self.classes[self.default as usize].class;
        (default.into(), Found::UNREADABLE)
    }

    #[inline]
    fn find_read(&self, headers: &Headers, origin: &Origin, length: usize) -> (ClassFlow, Found) {
        let control = self.link_control.filter(|_| headers.link_control);
        let target = control.or_else(|| self.rules.target(headers, origin));
        let target =
            target.filter(|&place| length <= self.classes[place as usize].longest as usize);
        let mut found = match target {
            Some(_) => Found::FILTER,
            None => Found::NO_FILTER,
        };
        if headers.fragment != Fragment::No {
            if self.follows_fragments() {
                found = found.and(Found::FRAGMENT);
            }
        } else if headers.family == Family::Other && !headers.link_control {
            found = found.and(Found::OPAQUE);
        }
        let place = target.unwrap_or(self.default);
        let Target { class, per, .. } = self.classes[place as usize];
        let flow = per.map_or(0, |per| per.digest(headers, origin, &self.key));
        (ClassFlow { class, flow }, found)
    }

    /// Counts a packet's result by these filters.
    #[inline]
    pub fn count(&mut self, found: Found, bytes: &[u8]) {
        self.unmatched += u64::from(found.has(Found::NO_FILTER));
        self.malformed += u64::from(found.has(Found::UNREADABLE));
        if found.has(Found::OPAQUE) {
            let ethertype = network(bytes).map_or(0, |(ethertype, _)| ethertype);
            self.opaque.add(ethertype);
        }
    }

    /// Packets so far of protocols that no filter looks into: neither IP nor link-layer control; and the type in the
    /// Ethernet header of most recent ones.
    #[doc(hidden)]
    pub fn opaque(&self) -> (u64, u16) {
        (self.opaque.packets, self.opaque.ethertype)
    }

    /// Takes the classes that orphans went to since the last time, once for each of them: later fragments of datagrams
    /// of which no first fragment is known. 256 are noted at most.
    #[inline]
    #[doc(hidden)]
    pub fn take_orphans(&mut self) -> impl Iterator<Item = ClassId> {
        self.orphans.drain(..)
    }

    /// Packets so far that could not be read.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Packets so far that could be read and matched no filter.
    #[doc(hidden)]
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }
}

/// Returns where a fragment goes that filters sort into `to`.
#[cold]
fn follow(
    fragments: &mut Fragments,
    orphans: &mut Vec<ClassId>,
    (headers, origin): (&Headers, &Origin),
    to: ClassFlow,
    now: Nanos,
) -> ClassFlow {
    let followed = fragments.follow(headers, origin, to, now);
    if followed.is_none() && orphans.len() < MOST_ORPHANS {
        orphans.push(to.class);
    }
    followed.unwrap_or(to)
}
