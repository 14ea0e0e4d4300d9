//! Top talkers: the flows of all classes of flows by their recent arrivals, counted on demand.
//!
//! Without requests no flow is counted or named. On a request, the forwarding thread [walks](fairlane_dataplane::walk) over all flows once
//! per second, a few at a time between rounds, and reads the counts of each since the last walk; meanwhile it notes the
//! [names](fairlane_dataplane::names) of flows. It stops when no request has come for a while. All requests share the walks, so their
//! number does not add work to the forwarding thread.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use fairlane_classify::{FlowKey, Per};
use fairlane_config::class_report::{DelayReport, bps, part};
use fairlane_config::{ClassKind, Flows};
use fairlane_core::Nanos;
use fairlane_core::tree::ClassId;
use fairlane_runtime::bridge::Side;
use serde::Serialize;

use fairlane_dataplane::names::{Naming, Note};
use fairlane_dataplane::passing::Finding;
use fairlane_dataplane::plan::{Passing, Plan};
use fairlane_dataplane::walk::{ClassWalk, LinkWalk, Talker, Top, Walking};

/// Between two walks.
const INTERVAL: Nanos = Nanos::from_millis(1_000);
/// How long flows are counted after the last request.
const KEPT: Nanos = Nanos::from_millis(10_000);
/// The most flows reported per class and in all; and the number guaranteed to a class however many classes there are.
const OF_A_CLASS: usize = 1_000;
const OF_ALL: usize = 16_384;
const OF_ANY: usize = 16;
/// The most flows of a link whose TCP observations are counted between two walks.
const PASSED: usize = 16_384;
/// Spare entries of a flow table, beyond the current number of flows.
const MORE: usize = 64;

/// The flows that offered most recently.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopFlows {
    /// The length in seconds of the interval covered: the last one.
    pub seconds: f64,
    /// Highest offered rate first: up to 1,000 of each class, and fewer if there are more than 16 classes of flows.
    pub flows: Vec<FlowReport>,
}

/// The recent packets of a flow; bytes count the link's overhead.
#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    /// Its link.
    pub link: Arc<str>,
    /// Its class.
    pub class: Arc<str>,
    /// The fields that its packets share; `others` for all flows beyond the flow table's limit, `unreadable` for frames
    /// with malformed headers, and `?` with the digest if no packet of it has arrived since it was first reported.
    pub flow: String,
    /// Packets that arrived, whether they were queued or dropped.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Their rate.
    pub offered_bps: f64,
    /// Packets that left.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their rate.
    pub bps: f64,
    /// Its part of the bytes that the class sent.
    pub share: f64,
    /// Round-trip times of its TCP, observed passively: from the arrival of a segment to the arrival of its
    /// acknowledgment. Null without any.
    pub rtt_us: Option<DelayReport>,
    /// Its TCP segments that were retransmitted or arrived out of order.
    pub retransmits: u64,
    /// Its TCP segments that arrived with a CE mark.
    pub ecn_ce: u64,
}

/// Receives the flows that send most.
pub(crate) type Hear = Box<dyn FnOnce(&Arc<TopFlows>) + Send>;

/// The control thread's state of flow counting.
#[derive(Default)]
pub(crate) struct Watch {
    waiting: Vec<Hear>,
    /// When the last request came.
    asked: Option<Nanos>,
    /// When the last walk began; `None` while flows are not counted.
    walked: Option<Nanos>,
    latest: Option<Arc<TopFlows>>,
    /// By side.
    links: [Seen; 2],
}

/// Observations of the flows of a link.
#[derive(Default)]
struct Seen {
    /// State of the classes whose flows are counted.
    since: HashMap<ClassId, Since>,
    /// Names of the flows reported or noted last.
    names: HashMap<(Per, u64), FlowKey>,
    /// Flows reported without a name, in ascending order.
    unnamed: Vec<u64>,
    /// TCP observations since the last walk, by class number and flow digest.
    passing: HashMap<(u32, u64), Passing>,
}

/// The last walk over a class.
#[derive(Clone, Copy)]
struct Since {
    at: Nanos,
    sent: u64,
}

impl Watch {
    /// Accepts a request. It is answered at once, or after the second walk.
    pub(crate) fn hear(&mut self, hear: Hear, now: Nanos) {
        self.asked = Some(now);
        match &self.latest {
            Some(latest) => hear(latest),
            None => self.waiting.push(hear),
        }
    }

    /// Returns when the next walk begins: never without requests.
    pub(crate) fn due(&self) -> Nanos {
        match (self.walked, self.asked) {
            (Some(walked), _) => walked + INTERVAL,
            (None, Some(_)) => Nanos::ZERO,
            (None, None) => Nanos::MAX,
        }
    }

    /// Returns the walk that begins now: the last one if there was no request for a long time.
    pub(crate) fn walk(&mut self, plans: &[Plan], now: Nanos) -> Walking {
        let wanted = self.asked.is_some_and(|asked| now.since(asked) < KEPT);
        let last = !wanted && self.waiting.is_empty();
        if last {
            *self = Watch::default();
        } else {
            self.walked = Some(now);
        }
        let all: usize = plans.iter().map(|plan| of_flows(plan).count()).sum();
        let most = (OF_ALL / all.max(1)).clamp(OF_ANY, OF_A_CLASS);
        let mut links = [LinkWalk::default(), LinkWalk::default()];
        for plan in plans {
            let seen = &mut self.links[plan.side as usize];
            let classes = of_flows(plan).map(|(place, flows)| {
                let id = plan.ids[place];
                let begins = !last && !seen.since.contains_key(&id);
                let known = plan.accounts[place].told.figure(|told| told.flows) as usize;
                let table = begins.then(|| Vec::with_capacity(known + MORE));
                let top = Top::new(if last { OF_ANY } else { most });
                ClassWalk::new((place, id), flows.per, table, top)
            });
            let classes = classes.collect();
            let unnamed = std::mem::take(&mut seen.unnamed);
            let naming = (!last).then(|| Box::new(Naming::of(unnamed)));
            links[plan.side as usize] = LinkWalk::new(classes, naming);
        }
        Walking { links, last }
    }

    /// Counts TCP observations while flows are counted. O(findings).
    pub(crate) fn found(&mut self, findings: &[Finding]) {
        if self.walked.is_none() {
            return;
        }
        for finding in findings.iter().filter(|finding| finding.flow != 0) {
            let passing = &mut self.links[finding.side as usize].passing;
            let at = (finding.class, finding.flow);
            if passing.len() < PASSED || passing.contains_key(&at) {
                passing.entry(at).or_default().count(finding.what);
            }
        }
    }

    /// Drops the TCP observations of a link, whose classes get new numbers.
    pub(crate) fn renumbered(&mut self, side: Side) {
        self.links[side as usize].passing.clear();
    }

    /// Answers pending requests with the results of a walk.
    pub(crate) fn walked(&mut self, walking: Walking, plans: &[Plan]) {
        if walking.last {
            return;
        }
        let mut top = TopFlows::default();
        // A class that is counted for the first time has no difference to report.
        let (mut classes, mut told) = (0, 0);
        let links = walking.links.into_iter().zip(&mut self.links);
        for (side, (link, seen)) in Side::BOTH.into_iter().zip(links) {
            classes += link.classes.len();
            let plan = plans.iter().find(|plan| plan.side == side);
            told += plan.map_or(0, |plan| seen.tell(link, plan, &mut top));
        }
        if told == 0 && classes > 0 {
            return;
        }
        let rates = |flow: &FlowReport| (flow.offered_bps, flow.bps);
        (top.flows).sort_by(|one, other| {
            let ((offered, sent), (more, faster)) = (rates(one), rates(other));
            more.total_cmp(&offered).then(faster.total_cmp(&sent))
        });
        let top = Arc::new(top);
        for hear in self.waiting.drain(..) {
            hear(&top);
        }
        self.latest = Some(top);
    }
}

impl Seen {
    /// Adds the flows of a link to the report. Returns the number of classes.
    fn tell(&mut self, link: LinkWalk, plan: &Plan, top: &mut TopFlows) -> usize {
        let notes = link.naming.into_iter().flat_map(|naming| naming.notes);
        let notes = notes.map(|Note { per, flow, key }| ((per, flow), key));
        let former = std::mem::replace(&mut self.names, notes.collect());
        let before = std::mem::take(&mut self.since);
        let mut passing = std::mem::take(&mut self.passing);
        let mut unnamed = Vec::new();
        let mut told = 0;
        for walk in link.classes {
            if !walk.counted {
                continue;
            }
            let (id, at, sent) = (walk.id, walk.at, walk.sent);
            self.since.insert(id, Since { at, sent });
            let (Some(since), Some(terms)) = (before.get(&id), plan.terms.get(walk.place)) else {
                continue;
            };
            told += 1;
            let seconds = at.since(since.at).0 as f64 / 1e9;
            top.seconds = top.seconds.max(seconds);
            let sent = sent.saturating_sub(since.sent);
            for talker in together(walk.top) {
                let flow = self.name(walk.per, talker, &former, &mut unnamed);
                let Talker {
                    offered_bytes,
                    bytes,
                    offered_packets,
                    packets,
                    ..
                } = talker;
                let digest = talker.flow.unwrap_or(0);
                let seen = passing.remove(&(id.number(), digest)).unwrap_or_default();
                top.flows.push(FlowReport {
                    link: Arc::from(&*plan.link.name),
                    class: Arc::clone(&terms.name),
                    flow,
                    offered_packets,
                    offered_bytes,
                    offered_bps: bps(offered_bytes, seconds),
                    packets,
                    bytes,
                    bps: bps(bytes, seconds),
                    // The walk reached the flow after the class.
                    share: part(bytes, sent.max(bytes)),
                    rtt_us: seen.round_trips(),
                    retransmits: seen.again,
                    ecn_ce: seen.marked,
                });
            }
        }
        unnamed.sort_unstable();
        let unnamed = unnamed.into_iter().filter_map(|talker| talker.flow);
        self.unnamed = unnamed.collect();
        told
    }

    /// Returns the name of a flow in a class with flows per `per`.
    fn name(
        &mut self,
        per: Per,
        talker: Talker,
        former: &HashMap<(Per, u64), FlowKey>,
        unnamed: &mut Vec<Talker>,
    ) -> String {
        let flow = match talker.flow {
            None => return "others".to_owned(),
            // Frames that the classifier cannot parse have no digest.
            Some(0) => return "unreadable".to_owned(),
            Some(flow) => flow,
        };
        let at = (per, flow);
        let known = self.names.get(&at).or_else(|| former.get(&at)).copied();
        match known {
            Some(key) => {
                self.names.insert(at, key);
                key.to_string()
            }
            None => {
                unnamed.push(talker);
                format!("?{flow:016x}")
            }
        }
    }
}

/// Returns the classes of flows of a link, by place.
fn of_flows(plan: &Plan) -> impl Iterator<Item = (usize, &Flows)> {
    let classes = plan.link.classes.iter().enumerate();
    classes.filter_map(|(place, class)| match &class.kind {
        ClassKind::Flows(flows) => Some((place, &**flows)),
        _ => None,
    })
}

/// Merges duplicates: a flow that expired and returned may have been reported twice.
fn together(top: Top) -> Vec<Talker> {
    let mut all: Vec<Talker> = top.into_talkers().collect();
    all.sort_unstable_by_key(|talker| talker.flow);
    all.dedup_by(|other, first| {
        let same = other.flow == first.flow;
        if same {
            first.offered_bytes += other.offered_bytes;
            first.bytes += other.bytes;
            first.offered_packets += other.offered_packets;
            first.packets += other.packets;
        }
        same
    });
    all
}
