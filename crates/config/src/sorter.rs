//! From a packet's bytes to its class, for all who send packets through a link.

use fairlane_classify::{Classifier, DigestKey, Layer, Origin, Per, parse};
use fairlane_core::tree::ClassId;

use crate::site::{Kind, Link};

/// The filters of a link: which class, and which flow in it, a packet is of.
#[derive(Clone, Debug)]
pub struct Sorter {
    classifier: Classifier<u32>,
    classes: Vec<(ClassId, Option<Per>)>,
    default: u32,
    key: DigestKey,
    malformed: u64,
    unmatched: u64,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorted {
    /// The class, as the discipline knows it.
    pub class: ClassId,
    /// The digest of its flow; 0 in a class without flows, and of malformed packets.
    pub flow: u64,
}

impl Link {
    /// The link's filters. `classes` are the discipline's, in the order of the link's; `key` is
    /// drawn at random, so that nobody can choose packets whose flows meet.
    pub fn sorter(&self, classes: &[ClassId], key: DigestKey) -> Sorter {
        let per = |kind: &Kind| match kind {
            Kind::Flows(flows) => Some(flows.per),
            _ => None,
        };
        let kinds = self.classes.iter().map(|class| per(&class.kind));
        Sorter {
            classifier: Classifier::new(self.rules.iter().copied()),
            classes: classes.iter().copied().zip(kinds).collect(),
            default: self.default,
            key,
            malformed: 0,
            unmatched: 0,
        }
    }
}

impl Sorter {
    /// The filters alone, with the classes' places in the link.
    pub fn classifier(&self) -> &Classifier<u32> {
        &self.classifier
    }

    /// The same filters for a discipline that knows the classes by other numbers. O(classes).
    pub fn renumber(&mut self, classes: &[ClassId]) {
        for ((class, _), &id) in self.classes.iter_mut().zip(classes) {
            *class = id;
        }
    }

    /// Goes on with the counts of the filters that these take the place of.
    pub fn resume(&mut self, former: &Sorter) {
        self.malformed = former.malformed;
        self.unmatched = former.unmatched;
    }

    /// Where a packet of a known class goes, by the class's place in the link; counts nothing.
    pub fn within(&self, place: usize, bytes: &[u8], layer: Layer, origin: &Origin) -> Sorted {
        let (class, per) = self.classes[place];
        let flow = match (per, parse(bytes, layer)) {
            (Some(per), Ok(headers)) => per.digest(&headers, origin, &self.key),
            _ => 0,
        };
        Sorted { class, flow }
    }

    /// Where a packet goes: to the class of the first filter that it matches; to the default
    /// class if it matches none, or cannot be read, which is counted.
    pub fn sort(&mut self, bytes: &[u8], layer: Layer, origin: &Origin) -> Sorted {
        let Ok(headers) = parse(bytes, layer) else {
            self.malformed += 1;
            let (class, _) = self.classes[self.default as usize];
            return Sorted { class, flow: 0 };
        };
        let hit = self.classifier.classify(&headers, origin);
        self.unmatched += u64::from(hit.is_none());
        let class = hit.map_or(self.default, |hit| hit.target);
        let (class, per) = self.classes[class as usize];
        let flow = per.map_or(0, |per| per.digest(&headers, origin, &self.key));
        Sorted { class, flow }
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
