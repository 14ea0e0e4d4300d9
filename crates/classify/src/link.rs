//! From a packet's bytes to its class and flow, for all who send packets through a link.

use alloc::sync::Arc;
use alloc::vec::Vec;

use fairlane_core::tree::{ClassFlow, ClassId};

use crate::classifier::Begin;
use crate::parse::read;
use crate::{Classifier, DigestKey, FlowKey, Headers, Layer, Origin, Per, Rule, parse};

/// The filters of a link: which class, and which flow in it, a packet is of.
#[derive(Clone, Debug)]
pub struct LinkClassifier {
    rules: Arc<Classifier<u32>>,
    classes: Vec<(ClassId, Option<Per>)>,
    default: u32,
    link_control: Option<u32>,
    key: DigestKey,
    malformed: u64,
    unmatched: u64,
}

/// Why a packet goes where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It matches a filter, or is link-layer control that has a class.
    Filter,
    /// It matches none.
    NoFilter,
    /// It cannot be read.
    Unreadable,
}

/// Fewer packets are looked up one by one.
const TOGETHER: usize = 8;

/// Room for what is known of packets between two steps of [`LinkClassifier::find_all`].
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    begins: Vec<Begin>,
    packets: Vec<(Headers, Origin, bool)>,
}

impl LinkClassifier {
    /// The targets of `rules`, and `default`, are places in `classes`: the number that each class
    /// has in the queues, and what tells its flows apart if it has any. `key` is drawn at random,
    /// so that nobody can choose packets whose flows meet. Costs what [`Classifier::new`] does.
    ///
    /// # Panics
    ///
    /// A packet is classified whose place is none.
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
            rules,
            classes: classes.into_iter().collect(),
            default,
            link_control: None,
            key,
            malformed: 0,
            unmatched: 0,
        }
    }

    /// The same, but [link-layer control](Headers::link_control) goes to the class at this place, whatever
    /// filter it matches.
    pub fn with_link_control(self, place: Option<u32>) -> LinkClassifier {
        LinkClassifier {
            link_control: place,
            ..self
        }
    }

    /// The rules alone, which lead to the classes' places in the link.
    pub fn rules(&self) -> &Arc<Classifier<u32>> {
        &self.rules
    }

    /// The same filters for queues that know the classes by other numbers. O(classes).
    pub fn renumber(&mut self, classes: &[ClassId]) {
        for ((class, _), &id) in self.classes.iter_mut().zip(classes) {
            *class = id;
        }
    }

    /// Goes on with the counts of the filters that these take the place of.
    pub fn resume(&mut self, former: &LinkClassifier) {
        self.malformed = former.malformed;
        self.unmatched = former.unmatched;
    }

    /// Where a packet of a known class goes, by the class's place in the link; counts nothing.
    pub fn within(&self, place: usize, bytes: &[u8], layer: Layer, origin: &Origin) -> ClassFlow {
        let (class, per) = self.classes[place];
        let flow = match (per, parse(bytes, layer)) {
            (Some(per), Ok(headers)) => per.digest(&headers, origin, &self.key),
            _ => 0,
        };
        ClassFlow { class, flow }
    }

    /// What tells the flows apart of the class at this place, and what those packets have in common
    /// that this one is of; counts nothing. `None` where the class has no flows, or the packet
    /// cannot be read: its flow is 0 then.
    pub fn key(
        &self,
        place: usize,
        bytes: &[u8],
        layer: Layer,
        origin: &Origin,
    ) -> Option<(Per, FlowKey)> {
        let per = self.classes.get(place)?.1?;
        let headers = parse(bytes, layer).ok()?;
        Some((per, per.key(&headers, origin)))
    }

    /// Where a packet goes: to the class of the first filter that it matches; to the default
    /// class if it matches none, or cannot be read, which is counted. Its flow is 0 in a class
    /// without flows, and if it cannot be read.
    #[inline]
    pub fn classify(&mut self, bytes: &[u8], layer: Layer, origin: &Origin) -> ClassFlow {
        let (to, found) = self.find(bytes, layer, origin);
        self.count(found);
        to
    }

    /// The same for packets that come together, as [`find_all`](Self::find_all) finds them: appends to `to` where each goes,
    /// in order. Costs what [`classify`](Self::classify) does for each, or less where the filters are many.
    ///
    /// ```
    /// use fairlane_classify::{DigestKey, Layer, LinkClassifier, Match, Origin, Rule, Scratch};
    /// use fairlane_core::tree::ClassId;
    ///
    /// let dns = Match { destination_port: Some("53".parse()?), ..Match::default() };
    /// let rules = [Rule { priority: 0, matches: dns, target: 0 }];
    /// let classes = [(ClassId::new(7), None), (ClassId::new(8), None)];
    /// let mut link = LinkClassifier::new(rules, classes, 1, DigestKey([1, 2]));
    ///
    /// let to_port = |port: u8| {
    ///     let mut packet = [0; 28];
    ///     (packet[0], packet[3], packet[9], packet[23]) = (0x45, 28, 17, port);
    ///     packet[25] = 8;
    ///     packet
    /// };
    /// let packets = [to_port(53), to_port(80), to_port(53)];
    /// let (mut scratch, mut to) = (Scratch::default(), Vec::new());
    /// let bytes = packets.iter().map(|packet| (&packet[..], Origin::default()));
    /// link.classify_all(bytes, Layer::Ip, &mut scratch, &mut to);
    /// assert!(to.iter().map(|to| to.class.number()).eq([7, 8, 7]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn classify_all<'a>(
        &mut self,
        packets: impl ExactSizeIterator<Item = (&'a [u8], Origin)>,
        layer: Layer,
        scratch: &mut Scratch,
        to: &mut Vec<ClassFlow>,
    ) {
        let (mut unmatched, mut malformed) = (0, 0);
        self.find_all(packets, layer, scratch, |class_flow, found| {
            unmatched += u64::from(found == Found::NoFilter);
            malformed += u64::from(found == Found::Unreadable);
            to.push(class_flow);
        });
        self.unmatched += unmatched;
        self.malformed += malformed;
    }

    /// The same without counting, and what is to be [counted](Self::count): for threads that share the
    /// filters.
    #[inline]
    pub fn find(&self, bytes: &[u8], layer: Layer, origin: &Origin) -> (ClassFlow, Found) {
        let mut headers = Headers::default();
        match read(bytes, layer, &mut headers) {
            Ok(()) => self.find_read(&headers, origin),
            Err(_) => self.unreadable(),
        }
    }

    /// The same for packets that come together: calls `found` once for each, in order. `scratch` is room that is used again;
    /// what is in it does not matter to the caller. Where the filters are many, look-ups begin with memory that is in no
    /// near cache: it is fetched for all packets at once, where each would wait for it. O(packets), each of which costs
    /// what [`find`](Self::find) does and, where the filters are many, some 15 ns more; less by the waits that it saves.
    #[inline]
    pub fn find_all<'a>(
        &self,
        packets: impl ExactSizeIterator<Item = (&'a [u8], Origin)>,
        layer: Layer,
        scratch: &mut Scratch,
        mut found: impl FnMut(ClassFlow, Found),
    ) {
        if packets.len() < TOGETHER || !self.rules.is_large() {
            for (bytes, origin) in packets {
                let (to, what) = self.find(bytes, layer, &origin);
                found(to, what);
            }
            return;
        }
        scratch.begins.clear();
        scratch.packets.clear();
        for (bytes, origin) in packets {
            let mut headers = Headers::default();
            let is_readable = read(bytes, layer, &mut headers).is_ok();
            // Of what cannot be read anything may be fetched.
            scratch.begins.push(self.rules.begin(&headers, &origin));
            scratch.packets.push((headers, origin, is_readable));
        }
        self.rules.fetch(&mut scratch.begins);
        for (headers, origin, is_readable) in scratch.packets.drain(..) {
            let (to, what) = match is_readable {
                true => self.find_read(&headers, &origin),
                false => self.unreadable(),
            };
            found(to, what);
        }
    }

    #[inline]
    fn unreadable(&self) -> (ClassFlow, Found) {
        let default = self.classes[self.default as usize].0;
        (default.into(), Found::Unreadable)
    }

    #[inline]
    fn find_read(&self, headers: &Headers, origin: &Origin) -> (ClassFlow, Found) {
        let control = self.link_control.filter(|_| headers.link_control);
        let target = control.or_else(|| self.rules.target(headers, origin));
        let found = match target {
            Some(_) => Found::Filter,
            None => Found::NoFilter,
        };
        let place = target.unwrap_or(self.default);
        let (class, per) = self.classes[place as usize];
        let flow = per.map_or(0, |per| per.digest(headers, origin, &self.key));
        (ClassFlow { class, flow }, found)
    }

    /// Counts what was found of a packet by these filters.
    #[inline]
    pub fn count(&mut self, found: Found) {
        match found {
            Found::Filter => {}
            Found::NoFilter => self.unmatched += 1,
            Found::Unreadable => self.malformed += 1,
        }
    }

    /// Packets so far that could not be read.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Packets so far that could be read and matched no filter.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }
}
