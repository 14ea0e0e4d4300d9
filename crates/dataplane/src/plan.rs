//! The control thread's model of a link: its classes by place, their guarantees, and their counts.

use crate::bridge::Shaped;
use crate::classifier::{FrameClassifier, random_key};
use crate::early::{Early, Port, Tables};
use crate::frame::{Frame, Received};
use crate::meter::{self, Contract, Delays, Meter};
use crate::note::SharedFilters;
use crate::opaque::OpaqueWindow;
use crate::passing::{Finding, Findings, What};
use crate::work::{Adding, Draining, Gone, Moved, Taking, keep_short};
use fairlane_classify::{Classifier, DigestKey, LinkClassifier};
use fairlane_config::class_report::{ClassReport, ClassTerms, DelayReport};
use fairlane_config::{Class, ClassKind, Link, List, Shared, Steps};
use fairlane_core::tree::{ClassId, ClassStats};
use fairlane_core::{Count, Discipline, Nanos};
use fairlane_io::Backend;
use fairlane_runtime::bridge::Side;
use fairlane_runtime::{Arbiter, ArbiterConfig, Classified, FromPort, Straight};
use std::collections::HashMap;
use std::sync::Arc;

/// Mailboxes of processes that a round polls, and packets that it takes from each: in all about as many as it receives
/// from a device, so that processes which push as fast as they can leave the thread time for received frames.
const SCAN_LIMIT: usize = 8;
const DRAIN_LIMIT: usize = 16;

/// State of a class, in addition to its configuration.
#[derive(Clone, Default)]
pub struct Account {
    pub meter: Arc<Meter>,
    /// Packets counted outside its queues; for most classes, none.
    aside: Option<Box<Aside>>,
    /// Its estimated share of the frames lost before classification.
    pub lost: f64,
    /// Violations that do not count: of packets that left while its terms changed.
    pub excused: u64,
    /// Dropped before it was received.
    pub early: Early,
    pub told: LastReport,
    pub passing: Passing,
}

/// By how much a class has counted otherwise than its queues have.
#[derive(Clone, Default)]
struct Aside {
    /// Packets that its queues do not count: those of its earlier queues.
    carried: ClassStats,
    /// Packets that its queues count and that belong to other classes: removed ones, counted elsewhere.
    foreign: ClassStats,
}

/// Passive TCP observations of a class, or of a flow.
#[derive(Clone, Default)]
pub struct Passing {
    /// Round-trip times since the last report.
    pub trips: Delays,
    /// Retransmitted segments.
    pub again: u64,
    /// Segments that arrived with a CE mark.
    pub marked: u64,
}

impl Passing {
    /// Counts an observation.
    pub fn count(&mut self, what: What) {
        match what {
            What::Trip(micros) => self.trips.record(Nanos::from_micros(micros.into())),
            What::Again => self.again += 1,
            What::Marked => self.marked += 1,
        }
    }

    /// Its round trips, in microseconds; `None` without any.
    pub fn round_trips(&self) -> Option<DelayReport> {
        let told = self.trips.in_micros(None)?;
        Some(DelayReport {
            mean: self.trips.mean().map(|nanos| nanos / 1e3),
            ..told
        })
    }

    /// Adds the observations of a descendant class.
    pub fn extend(&mut self, below: &Passing) {
        self.trips.extend(&below.trips);
        self.again += below.again;
        self.marked += below.marked;
    }
}

/// State of a class, including its descendants, as last reported.
#[derive(Clone, Default)]
pub struct LastReport {
    /// `None` before the first report.
    pub report: Option<Shared<ClassReport>>,
    pub delays: meter::ReadTotals,
}

impl LastReport {
    /// Returns a figure of the report; 0 before the first.
    pub fn figure(&self, of: fn(&ClassReport) -> u64) -> u64 {
        self.report.as_deref().map_or(0, of)
    }
}

impl Account {
    /// Returns its own counts, given those of its queues.
    pub fn own(&self, counted: &ClassStats) -> ClassStats {
        match &self.aside {
            Some(aside) => counted.plus(&aside.carried).minus(&aside.foreign),
            None => *counted,
        }
    }
}

/// A link as it runs.
pub struct Plan {
    /// The device that its packets leave by.
    pub side: Side,
    pub link: Arc<Link>,
    pub terms: List<ClassTerms>,
    /// The numbers of its classes.
    pub ids: Vec<ClassId>,
    pub accounts: Vec<Account>,
    /// Their last reports, or those of other classes in their places.
    pub told: List<ClassReport>,
    /// Frames that were dropped early of classes that went, below none that stayed.
    pub early_of_gone: u64,
    /// Recent frames that no filter looks into.
    pub opaque: OpaqueWindow,
    /// Key of the flow digest.
    key: DigestKey,
    /// Its rules, made ready.
    rules: Arc<Classifier<u32>>,
    /// Where its frames arrive.
    port: Option<Arc<Port>>,
    /// Tables for early drop of its frames.
    early: Option<Tables>,
    /// Passive TCP observations.
    pub findings: Option<Findings>,
    /// How long packets may wait for the daemon's rounds, in addition to their delay.
    rounds: Nanos,
    /// Where its workers find the filters, if its frames arrive at an interface with workers.
    shared_filters: Option<Arc<SharedFilters>>,
}

/// A link to be applied, with all of its costly parts already built.
pub struct Next {
    pub side: Side,
    link: Arc<Link>,
    terms: List<ClassTerms>,
    /// Its classes have no numbers yet. `None` until it is known that the filters are needed.
    filters: Option<LinkClassifier>,
    /// The digest key and the rules of its filters.
    key: DigestKey,
    rules: Arc<Classifier<u32>>,
    port: Option<Arc<Port>>,
    early: Option<Tables>,
    how: How,
}

enum How {
    /// No class is added, removed or changed, and no filter either.
    Same,
    /// Only the link's rate or the parameters of the classes at these places change: no class is added, removed or
    /// moved, and packets are classified as before.
    Parameters(Vec<usize>),
    Steps(Steps),
    /// By place: the class of that name before.
    Anew(Box<(Discipline<FromPort<Received>>, Vec<ClassId>)>),
}

/// A copy of a plan for comparison on another thread.
#[derive(Clone)]
pub struct Running {
    pub side: Side,
    pub link: Arc<Link>,
    key: DigestKey,
    terms: List<ClassTerms>,
    rules: Arc<Classifier<u32>>,
    port: Option<Arc<Port>>,
    early: Option<Tables>,
}

impl Running {
    /// Computes the change from this link to the other one. Takes time for its classes, and for its filters if they
    /// differ.
    pub fn becomes(&self, link: Arc<Link>) -> Next {
        let same_rules =
            Arc::ptr_eq(&link.rules, &self.link.rules) || link.rules == self.link.rules;
        let same_filters = same_rules
            && link.default == self.link.default
            && link.link_control == self.link.link_control
            && link.longest_frames().eq(self.link.longest_frames());
        let steps = link.steps_from(&self.link);
        let in_place = (steps.as_ref()).filter(|steps| same_filters && steps.is_in_place());
        let outlasts =
            |early: &&Tables| in_place.is_some_and(|steps| early.outlast(&link, &steps.changed));
        let early = self.early.as_ref().filter(outlasts).cloned();
        let lasts = in_place.is_some() && early.is_some() == self.early.is_some();
        let how = match steps {
            Some(steps) if lasts => match steps.changed.is_empty() {
                true if link.rate == self.link.rate => How::Same,
                _ => How::Parameters(steps.changed),
            },
            Some(steps) => How::Steps(steps),
            None => How::Anew(Box::new(link.discipline())),
        };
        let rules = match same_rules {
            true => Arc::clone(&self.rules),
            false => Arc::new(Classifier::new(link.rules.iter().copied())),
        };
        let filters = match how {
            How::Same | How::Parameters(_) => None,
            How::Steps(_) | How::Anew(_) => Some(unnumbered(&link, &rules, self.key)),
        };
        Next {
            side: self.side,
            terms: ClassTerms::after(&link, &self.terms),
            early: match &filters {
                None => early,
                Some(filters) => tables(&self.port, &link, filters),
            },
            port: self.port.clone(),
            filters,
            key: self.key,
            rules,
            link,
            how,
        }
    }
}

impl Next {
    /// Whether the forwarding thread need not do anything.
    pub fn is_same(&self) -> bool {
        matches!(self.how, How::Same)
    }

    /// Rebuilds all queues, after a change was rejected that should not have been.
    pub fn rebuilt(mut self) -> Next {
        let filters = self.filters();
        Next {
            how: How::Anew(Box::new(self.link.discipline())),
            early: tables(&self.port, &self.link, &filters),
            filters: Some(filters),
            ..self
        }
    }

    /// Its filters, to be numbered.
    fn filters(&mut self) -> LinkClassifier {
        let made = self.filters.take();
        made.unwrap_or_else(|| unnumbered(&self.link, &self.rules, self.key))
    }
}

/// Returns the contract that arriving packets of a class are compared with.
fn contract(terms: &ClassTerms, class: &Class, rounds: Nanos) -> Option<Contract> {
    let limits = match &class.kind {
        ClassKind::Inner(_) => return None,
        ClassKind::Leaf(queue) => queue.limits,
        ClassKind::Flows(flows) => flows.queue.limits,
    };
    let in_packets = u64::from(limits.packets) * u64::from(class.longest.get());
    let bps = match &terms.each {
        Some(each) => each.guaranteed_bps,
        None => terms.guaranteed_bps,
    };
    Some(Contract {
        bps: bps.filter(|&bps| bps > 0)?,
        burst: terms.arrival_burst?.into(),
        bound: terms.bound? + rounds,
        backlog: in_packets.min(limits.bytes.into()),
        is_of_flows: terms.each.is_some(),
    })
}

/// Returns the filters of a link whose classes have no numbers yet.
fn unnumbered(link: &Link, rules: &Arc<Classifier<u32>>, key: DigestKey) -> LinkClassifier {
    let numbers = vec![ClassId::ROOT; link.classes.len()];
    link.classifier_by(Arc::clone(rules), &numbers, key)
}

/// Returns the tables for early drop of frames arriving there.
fn tables(port: &Option<Arc<Port>>, link: &Link, filters: &LinkClassifier) -> Option<Tables> {
    port.as_ref()?.tables(link, filters)
}

impl Plan {
    /// Creates the arbiter of a link that is idle from `now`, with at most this many attached processes. Its frames
    /// arrive at `port`.
    pub fn start<D: Backend<Tx = Frame>>(
        link: &Arc<Link>,
        side: Side,
        device: D,
        processes: usize,
        port: Option<Arc<Port>>,
        now: Nanos,
    ) -> (Plan, Arbiter<Shaped, Straight<D>>) {
        let (discipline, ids) = link.discipline();
        let key = random_key();
        let filters = link.classifier(&ids, key);
        let early = tables(&port, link, &filters);
        let mut plan = Plan {
            side,
            link: Arc::clone(link),
            terms: ClassTerms::of(link),
            accounts: ids.iter().map(|_| Account::default()).collect(),
            told: List::default(),
            early_of_gone: 0,
            opaque: OpaqueWindow::default(),
            ids,
            key,
            rules: Arc::clone(filters.rules()),
            port,
            early,
            findings: None,
            rounds: Nanos::ZERO,
            shared_filters: None,
        };
        plan.enter();
        let early = plan.early.as_ref().map(|tables| Arc::clone(&tables.early));
        let mut classifier = FrameClassifier::new(filters, plan.metered(), early, &plan.ids);
        classifier.overhead = link.overhead;
        let config = ArbiterConfig {
            max_clients: processes.max(1),
            scan_limit: SCAN_LIMIT,
            drain_limit: DRAIN_LIMIT,
            ..ArbiterConfig::new(fairlane_runtime::Link {
                overhead: link.overhead,
                ..fairlane_runtime::Link::new(link.rate)
            })
        };
        let queue = Classified::new(discipline, classifier);
        let mut arbiter = Arbiter::over(queue, config, Straight::to(device), now);
        keep_short(&mut arbiter);
        (plan, arbiter)
    }

    /// Workers where its frames arrive find its filters here, which this classifier has.
    pub fn publishes_to(&mut self, shared: &Arc<SharedFilters>, classifier: &mut FrameClassifier) {
        self.shared_filters = Some(Arc::clone(shared));
        self.publish(classifier);
    }

    fn publish(&self, classifier: &mut FrameClassifier) {
        if let Some(shared) = &self.shared_filters {
            classifier.table = shared.publish(&classifier.filters);
        }
    }

    /// Replaces the description of the link, which has not changed otherwise.
    pub fn describe(&mut self, next: Next) {
        self.link = next.link;
        self.terms = next.terms;
        self.note_guarantees();
    }

    /// Its frames are dropped early by its tables, and counted in them, from now on.
    fn enter(&mut self) {
        let early = self.early.as_ref().map(|tables| &tables.early);
        for (place, account) in self.accounts.iter_mut().enumerate() {
            account.early.enter(early, place);
        }
        self.note_guarantees();
        if let Some(port) = &self.port {
            port.exchange(early.cloned());
        }
    }

    /// Installs the early-drop tables again, after others were installed where frames arrive.
    pub fn reinstall(&self) {
        if let Some(port) = &self.port {
            port.reinstall();
        }
    }

    pub fn running(&self) -> Running {
        Running {
            side: self.side,
            link: Arc::clone(&self.link),
            key: self.key,
            terms: self.terms.clone(),
            rules: Arc::clone(&self.rules),
            port: self.port.clone(),
            early: self.early.clone(),
        }
    }

    /// Sets how long packets may wait for the daemon's rounds, in addition to their delay, before they count as late.
    pub fn allow(&mut self, rounds: Nanos) {
        if self.rounds != rounds {
            self.rounds = rounds;
            self.note_guarantees();
        }
    }

    /// Notes the current guarantee of each class at its meter.
    fn note_guarantees(&self) {
        let longest = u64::from(self.link.longest.get());
        let classes = self.link.classes.iter();
        for ((account, terms), class) in self.accounts.iter().zip(self.terms.iter()).zip(classes) {
            let burst = terms.guaranteed_burst.unwrap_or(0).max(longest);
            (account.meter).set_guaranteed(terms.guaranteed_bps, burst + longest);
            (account.meter).set_contract(contract(terms, class, self.rounds));
        }
    }

    fn metered(&self) -> impl Iterator<Item = (ClassId, &Arc<Meter>)> {
        let meters = self.accounts.iter().map(|account| &account.meter);
        self.ids.iter().copied().zip(meters)
    }

    /// Returns the classes that another link removes, if packets may be queued in any: they drain first, or until the
    /// deadline.
    pub fn draining(&self, next: &Next, until: Nanos) -> Option<Draining> {
        let all: Vec<usize>;
        let gone = match &next.how {
            How::Same | How::Parameters(_) => return None,
            How::Steps(steps) => &steps.gone,
            How::Anew(_) => {
                all = (0..self.ids.len()).collect();
                &all
            }
        };
        if gone.is_empty() {
            return None;
        }
        let names = places(&next.link);
        let is_no_more = |&&place: &&usize| {
            holds_packets(&self.link, place) && !names.contains_key(&*self.link.classes[place].name)
        };
        let ids = gone.iter().filter(is_no_more).map(|&place| self.ids[place]);
        let ids: Vec<ClassId> = ids.collect();
        (!ids.is_empty()).then(|| Draining::new(self.side, ids, until))
    }

    /// Returns the classes that must be added first, if any.
    pub fn adding(&self, next: &Next) -> Option<Adding> {
        let How::Steps(steps) = &next.how else {
            return None;
        };
        (!steps.added.is_empty()).then(|| {
            let link = Arc::clone(&next.link);
            Adding::new(self.side, link, steps.added.clone(), self.kept(steps))
        })
    }

    /// Returns the order for a change of parameters only.
    pub fn changing(&self, next: &Next) -> Option<Taking> {
        let How::Parameters(places) = &next.how else {
            return None;
        };
        let changed = places.iter().map(|&place| (place, self.ids[place]));
        let link = Arc::clone(&next.link);
        Some(Taking::new(
            self.side,
            link,
            changed.collect(),
            None,
            Vec::new(),
        ))
    }

    /// Returns the numbers of the classes that stay, by their new places.
    fn kept(&self, steps: &Steps) -> Vec<ClassId> {
        let stays = steps.stays.iter();
        let ids = stays.map(|was| was.map_or(ClassId::ROOT, |was| self.ids[was]));
        ids.collect()
    }

    /// Returns the order for the remaining changes, and the resulting plan. `ids` are the new link's, if classes were
    /// added.
    pub fn taking(&self, mut next: Next, ids: Option<Vec<ClassId>>) -> (Taking, Plan) {
        let mut filters = next.filters();
        let Next {
            link,
            terms,
            early,
            how,
            ..
        } = next;
        let (steps, anew) = match how {
            How::Steps(steps) => (steps, None),
            How::Same | How::Parameters(_) => (unchanged(&link), None),
            How::Anew(made) => (all_gone(&self.link, &link), Some(*made)),
        };
        let (anew, new_ids) = anew.unzip();
        let ids = new_ids.or(ids).unwrap_or_else(|| self.kept(&steps));
        filters.renumber(&ids);
        let moved = moved(&steps, &link, &ids);
        let by_name = places(&link);
        let gone: Vec<Gone> = steps
            .gone
            .iter()
            .map(|&place| Gone {
                id: self.ids[place],
                place,
                to: (by_name.get(&*self.link.classes[place].name).copied())
                    .filter(|&to| holds_packets(&link, to)),
                moved: Count::default(),
                stats: ClassStats::default(),
                remains: None,
            })
            .collect();
        let stays = steps.stays.iter();
        let mut accounts: Vec<Account> = stays
            .map(|was| was.map_or_else(Account::default, |was| self.accounts[was].clone()))
            .collect();
        // A class that moved under the same name keeps its meter.
        for gone in &gone {
            if let Some(&to) = by_name.get(&*self.link.classes[gone.place].name) {
                let Account { aside, early, .. } = std::mem::take(&mut accounts[to]);
                accounts[to] = Account {
                    aside,
                    early,
                    ..self.accounts[gone.place].clone()
                };
            }
        }
        let mut plan = Plan {
            side: self.side,
            link: Arc::clone(&link),
            terms,
            ids,
            accounts,
            told: self.told.clone(),
            early_of_gone: self.early_of_gone,
            opaque: self.opaque.clone(),
            key: self.key,
            rules: Arc::clone(filters.rules()),
            port: self.port.clone(),
            early,
            // They come with the plan that replaces this one.
            findings: None,
            rounds: self.rounds,
            shared_filters: self.shared_filters.clone(),
        };
        plan.enter();
        let early = plan.early.as_ref().map(|tables| Arc::clone(&tables.early));
        // Those that go still have packets to send until they have moved.
        let metered = self.metered().chain(plan.metered());
        let mut classifier = FrameClassifier::new(filters, metered, early, &plan.ids);
        classifier.overhead = plan.link.overhead;
        plan.publish(&mut classifier);
        let changed = steps.changed.iter().map(|&place| (place, plan.ids[place]));
        let mut taking = Taking::new(self.side, link, changed.collect(), Some(classifier), gone);
        (taking.moved, taking.anew) = (moved, anew);
        (taking, plan)
    }

    /// Counts the observations that concern its classes.
    pub fn found(&mut self, findings: &[Finding]) {
        let side = self.side;
        let mine = findings.iter().filter(|finding| finding.side == side);
        let mut mine = mine.peekable();
        if mine.peek().is_none() {
            return;
        }
        let places: HashMap<u32, usize> = self.ids.iter().map(|id| id.number()).zip(0..).collect();
        for finding in mine {
            let Some(&place) = places.get(&finding.class) else {
                continue;
            };
            self.accounts[place].passing.count(finding.what);
        }
    }

    /// Transfers the counts of removed classes to those of the same name, or to the nearest remaining ancestor.
    /// `former` is the plan before.
    pub fn inherit(&mut self, former: &Plan, taken: &Taking) {
        let by_name = places(&self.link);
        let is_at = |place: usize| by_name.get(&*former.link.classes[place].name).copied();
        // A parent's queue counts include those of classes removed from below it.
        let mut below: HashMap<usize, ClassStats> = HashMap::new();
        for gone in &taken.gone {
            let Gone { id, place, .. } = *gone;
            let parent = former.link.classes[place].parent;
            let mut own = match &taken.anew {
                Some(queues) => queues.own_stats(id).unwrap_or_default(),
                None => gone.stats,
            };
            if taken.anew.is_none() {
                if let Some(parent) = parent {
                    let sum = below.entry(parent).or_default();
                    *sum = sum.plus(&gone.stats);
                    let stays = is_at(parent).filter(|&at| self.ids[at] == former.ids[parent]);
                    if let Some(at) = stays {
                        let aside = self.accounts[at].aside.get_or_insert_default();
                        aside.foreign = aside.foreign.plus(&gone.stats);
                    }
                }
                if let Some(counted_above) = below.get(&place) {
                    own = own.minus(counted_above);
                }
            }
            let own = former.accounts[place].own(&own);
            let own = ClassStats {
                flows: 0,
                queued: Count::default(),
                accepted: own.accepted.minus(gone.moved),
                discarded: own.discarded.minus(gone.moved),
                ..own
            };
            let above = std::iter::successors(Some(place), |&at| former.link.classes[at].parent);
            if let Some(heir) = above.into_iter().find_map(is_at) {
                let account = &mut self.accounts[heir];
                // When thousands of classes are rebuilt, most have carried nothing.
                if own != ClassStats::default() {
                    let aside = account.aside.get_or_insert_default();
                    aside.carried = aside.carried.plus(&own);
                }
                account.early.inherit(&former.accounts[place].early);
                // A class that continues under its name keeps the rest.
                if is_at(place).is_none() {
                    let Account { lost, passing, .. } = &former.accounts[place];
                    account.lost += lost;
                    account.passing.again += passing.again;
                    account.passing.marked += passing.marked;
                }
            } else {
                let mut early = former.accounts[place].early.clone();
                self.early_of_gone += early.count(self.link.overhead).packets;
            }
        }
    }
}

/// Returns the classes that move below other parents, given the numbers of all classes.
fn moved(steps: &Steps, link: &Link, ids: &[ClassId]) -> Vec<Moved> {
    let moved = steps.moved.iter().map(|&place| {
        let parent = link.classes[place].parent;
        Moved {
            place,
            id: ids[place],
            parent: parent.map_or(ClassId::ROOT, |parent| ids[parent]),
        }
    });
    moved.collect()
}

fn unchanged(link: &Link) -> Steps {
    Steps {
        stays: (0..link.classes.len()).map(Some).collect(),
        added: Vec::new(),
        moved: Vec::new(),
        changed: Vec::new(),
        gone: Vec::new(),
    }
}

fn all_gone(former: &Link, link: &Link) -> Steps {
    Steps {
        stays: vec![None; link.classes.len()],
        added: Vec::new(),
        moved: Vec::new(),
        changed: Vec::new(),
        gone: (0..former.classes.len()).rev().collect(),
    }
}

/// Returns the places of its classes, by name.
fn places(link: &Link) -> HashMap<&str, usize> {
    let names = link.classes.iter().map(|class| &*class.name);
    names.zip(0..).collect()
}

fn holds_packets(link: &Link, place: usize) -> bool {
    !matches!(
        link.classes[place].kind,
        fairlane_config::ClassKind::Inner(_)
    )
}
