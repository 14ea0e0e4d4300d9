//! The guarantees of each class, computed through the tree.

use std::collections::HashMap;
use std::ops::Index;
use std::sync::Arc;

use fairlane_core::bounds::{Head, Service, Siblings, Transmit, Wfi, Work};
use fairlane_core::sched::{Algorithm, Sharing};
use fairlane_core::{Length, Nanos, Rate, Weight};

use crate::guarantee::{Each, Guarantee, NoGuarantee};
use crate::list::List;
use crate::reservation::grant;
use crate::site::{Ceiling, Class, ClassKind, Flows, Link, LinkAlgorithm};

/// The weights for which bounds must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The present weights.
    AsTheyAre,
    /// Any weights with the same shares, and siblings without ceilings, so that bounds hold when siblings are added,
    /// changed or removed.
    Whatever,
}

/// Weight, longest packet, rate and burst of a child with a ceiling.
type Limited = (Weight, Length, Rate, u32);

/// A node's children, by the node's algorithm.
enum Order {
    /// By weight; the ceilings are added when the service of the node is known.
    Shares(Siblings, Vec<Limited>),
    Levels,
    None(NoGuarantee),
}

fn order(
    algorithm: Algorithm,
    children: impl Iterator<Item = (Weight, Length, u32)>,
    ceilings: impl Iterator<Item = Limited>,
    hold: Hold,
) -> Order {
    match algorithm.sharing() {
        Sharing::Offers(why) => Order::None(NoGuarantee::Nothing(algorithm.name(), why)),
        Sharing::Levels => Order::Levels,
        Sharing::Weights if !algorithm.is_bounded() => Order::None(unknown(algorithm)),
        Sharing::Weights => {
            let siblings = Siblings::new(algorithm, children);
            match hold {
                Hold::AsTheyAre => Order::Shares(siblings, ceilings.collect()),
                Hold::Whatever => Order::Shares(siblings.whatever_weights(), Vec::new()),
            }
        }
    }
}

fn unknown(algorithm: Algorithm) -> NoGuarantee {
    NoGuarantee::Unknown(algorithm.name())
}

/// The sum of the ceilings of several classes.
#[derive(Clone, Copy, Default)]
struct Taken {
    bps: u64,
    burst: u64,
    /// Number of classes without a ceiling.
    open: u32,
    /// The longest packet of the levels below.
    below: Option<Length>,
}

impl Taken {
    fn add(&mut self, ceiling: Option<Ceiling>) {
        match ceiling {
            Some(ceiling) => {
                self.bps += ceiling.rate.bps();
                self.burst += u64::from(ceiling.burst);
            }
            None => self.open += 1,
        }
    }

    /// Returns the sum without one of them.
    fn without(self, ceiling: Option<Ceiling>) -> Taken {
        match ceiling {
            Some(ceiling) => Taken {
                bps: self.bps - ceiling.rate.bps(),
                burst: self.burst - u64::from(ceiling.burst),
                ..self
            },
            None => Taken {
                open: self.open - 1,
                ..self
            },
        }
    }
}

/// Number of distinct children of a node whose services are cached.
const KNOWN: usize = 16;

/// Weight, longest packet, knowledge of a head and own ceiling: children that agree in these have the same service.
type Kind = (Weight, Length, Head, Option<Ceiling>);

/// The parent of some classes: the link, or a class.
struct Node {
    order: Order,
    /// The most that all classes at a level or above may take, for algorithms with levels.
    taken: HashMap<u32, Taken>,
    /// The service of some kinds of children.
    known: Vec<(Kind, Result<Served, NoGuarantee>)>,
    /// The algorithms from the root to this node.
    path: Arc<[Algorithm]>,
}

impl Node {
    /// Returns a node with these children, below nodes of these algorithms.
    fn new(
        hold: Hold,
        algorithm: Algorithm,
        classes: &(impl Index<usize, Output = Class> + ?Sized),
        children: &[usize],
        above: &[Algorithm],
    ) -> Node {
        let each = |&child: &usize| (classes[child].weight, classes[child].longest, 1);
        let limited = |&child: &usize| {
            let Class {
                weight, longest, ..
            } = classes[child];
            let ceiling = classes[child].ceiling?;
            Some((weight, longest, ceiling.rate, ceiling.burst))
        };
        let (each, limited) = (
            children.iter().map(each),
            children.iter().filter_map(limited),
        );
        Node {
            order: order(algorithm, each, limited, hold),
            taken: match algorithm.sharing() {
                Sharing::Levels => taken(children, classes),
                _ => HashMap::new(),
            },
            known: Vec::new(),
            path: above.iter().copied().chain([algorithm]).collect(),
        }
    }
}

fn taken(
    children: &[usize],
    classes: &(impl Index<usize, Output = Class> + ?Sized),
) -> HashMap<u32, Taken> {
    let mut by_level = children.to_vec();
    by_level.sort_by_key(|&child| std::cmp::Reverse(classes[child].level));
    let mut taken: HashMap<u32, Taken> = HashMap::new();
    let mut so_far = Taken::default();
    for &child in &by_level {
        so_far.add(classes[child].ceiling);
        taken.insert(classes[child].level, so_far);
    }
    let mut below = None;
    let levels = by_level.chunk_by(|&a, &b| classes[a].level == classes[b].level);
    for level in levels.rev() {
        if let Some(taken) = taken.get_mut(&classes[level[0]].level) {
            taken.below = below;
        }
        below = below.max(level.iter().map(|&child| classes[child].longest).max());
    }
    taken
}

/// Indexes of a class that waits for no more than its service says.
const NONE: Wfi = Wfi {
    strict: true,
    service: Work::ZERO,
    delay: Work::ZERO,
    latency: Work::ZERO,
    turn: Work::ZERO,
};

/// A share of a service, and indexes in it, which bound the delay of a class.
#[derive(Clone, Copy)]
struct Part {
    of: Service,
    share: f64,
    wfi: Wfi,
}

impl Part {
    /// Returns the delay bound of a class that keeps to its rate and burst; `None` if the ceiling's burst is too short.
    fn conforming_delay(
        self,
        burst: u32,
        ceiling: Option<Ceiling>,
        longest: Length,
    ) -> Option<Nanos> {
        let Part { of, share, wfi } = self;
        match ceiling {
            None => Some(of.conforming_delay(share, wfi, burst.into())),
            Some(Ceiling { rate, burst: depth }) => {
                of.conforming_delay_below(share, wfi, burst.into(), (rate, depth), longest)
            }
        }
    }

    /// Returns the delay bound of one packet in an empty queue; only a strict service has one.
    fn ahead(self, backlog: u64) -> Option<Nanos> {
        let Part { of, share, wfi } = self;
        of.is_strict().then(|| of.delay_below(share, wfi, backlog))
    }

    fn service(self) -> Service {
        self.of.child(self.share, self.wfi)
    }
}

/// The service of a class, and the way in which its own packets wait for it.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    /// The service without its own ceiling.
    pub(crate) free: Service,
    /// For one of several classes by weight: its part of its parent's service.
    by_weight: Option<Part>,
    /// Its part of the service that the ceilings of other classes leave.
    by_rest: Option<Part>,
    /// The service with its own ceiling.
    service: Result<Service, NoGuarantee>,
    /// The delay that the ceiling adds.
    held: Nanos,
}

impl Served {
    fn new(free: Service, by_weight: Option<Part>, by_rest: Option<Part>) -> Served {
        Served {
            free,
            by_weight,
            by_rest,
            service: Ok(free),
            held: Nanos::ZERO,
        }
    }

    fn below_ceiling(self, ceiling: Option<Ceiling>, longest: Length) -> Served {
        let Some(ceiling) = ceiling else {
            return self;
        };
        let service = self
            .free
            .below_ceiling(ceiling.rate, ceiling.burst, longest);
        Served {
            service: service.ok_or(NoGuarantee::Burst),
            held: Service::hold(ceiling.rate, longest),
            ..self
        }
    }

    /// Returns the least burst with which a ceiling of `rate` does not increase its delay.
    pub(crate) fn conforming_burst(self, rate: Rate, longest: Length) -> u32 {
        self.by_weight.map_or(0, |Part { of, share, wfi }| {
            of.conforming_burst(share, wfi, rate, longest)
        })
    }

    fn parts(self) -> impl Iterator<Item = Part> {
        self.by_weight.into_iter().chain(self.by_rest)
    }

    /// Returns the delay bound of a packet of a class that keeps to its rate and burst.
    fn delay(
        self,
        burst: u32,
        ceiling: Option<Ceiling>,
        longest: Length,
    ) -> Result<Nanos, NoGuarantee> {
        let whole = self.service?.delay(burst.into());
        let parts = self.parts();
        let parts = parts.filter_map(|part| part.conforming_delay(burst, ceiling, longest));
        Ok(parts.fold(whole, Nanos::min))
    }

    /// Returns the delay bound of a packet in an empty queue, though others of its class may have been served ahead.
    fn ahead(self, length: Length) -> Nanos {
        let backlog = length.get().into();
        let parts = self.parts().filter_map(|part| part.ahead(backlog));
        let free = parts.min();
        free.unwrap_or_else(|| self.free.delay(backlog)) + self.held
    }

    fn bps(self) -> Result<u64, NoGuarantee> {
        self.service.map(Service::bps)
    }
}

impl Link {
    /// Returns the guarantees of each class, in the order of [`classes`](Link::classes). O(n log n).
    pub fn guarantees(&self) -> Vec<Guarantee> {
        self.kept_guarantees().to_vec()
    }

    /// Returns the same, computed once and cached.
    pub(crate) fn kept_guarantees(&self) -> &List<Guarantee> {
        let found = &self.found.guarantees;
        found.get_or_init(|| self.guarantees_for(Hold::AsTheyAre).into())
    }

    /// Returns the same for those weights.
    pub(crate) fn guarantees_for(&self, hold: Hold) -> Vec<Guarantee> {
        let mut classes = self.classes.to_vec();
        let top = Top::of_link(self.algorithm, self.rate, self.longest);
        let guarantees = walk_for(hold, top, &mut classes, |_, _, _| ());
        granted(guarantees, &classes, self.shortest())
    }

    /// Returns the same for one class: visits only the children of its ancestors.
    pub(crate) fn guarantee_for(&self, hold: Hold, at: usize) -> Guarantee {
        let LinkAlgorithm::Tree(mut algorithm) = self.algorithm else {
            return by_estimate(&self.classes[at].kind);
        };
        let mut way = vec![at];
        while let Some(parent) = self.classes[way[way.len() - 1]].parent {
            way.push(parent);
        }
        let mut above = Ok(Service::of_link(self.rate, self.longest));
        let mut path = Arc::default();
        loop {
            let here = way.pop().unwrap_or(at);
            let class = &self.classes[here];
            let beside =
                (0..self.classes.len()).filter(|&other| self.classes[other].parent == class.parent);
            let beside: Vec<_> = beside.collect();
            let mut node = Node::new(hold, algorithm, &self.classes, &beside, &path);
            let has = above
                .and_then(|above| share(&mut node, above, class))
                .map(|free| free.below_ceiling(class.ceiling, class.longest));
            match class.kind {
                ClassKind::Inner(below) if here != at => algorithm = below,
                _ => {
                    let mut guarantee = of_class(class, has, node.path, hold);
                    grant(&mut guarantee, &class.kind, self.shortest());
                    return guarantee;
                }
            }
            above = has.and_then(|has| has.service);
            path = node.path;
        }
    }
}

/// Returns the guarantees, including those that depend on the classes' buffer reservations.
pub(crate) fn granted(
    mut guarantees: Vec<Guarantee>,
    classes: &[Class],
    shortest: Length,
) -> Vec<Guarantee> {
    for (guarantee, class) in guarantees.iter_mut().zip(classes) {
        grant(guarantee, &class.kind, shortest);
    }
    guarantees
}

/// Computes the same, from the root down. `meet` sees each class with the service that it has without its ceiling, and
/// may increase the ceiling's burst. Its siblings under strict priority see the larger burst only in another walk.
pub(crate) fn walk(
    top: Top<'_>,
    classes: &mut [Class],
    meet: impl FnMut(usize, &mut Class, Served),
) -> Vec<Guarantee> {
    walk_for(Hold::AsTheyAre, top, classes, meet)
}

/// The parent of some classes: the link, or one of its classes.
#[derive(Clone, Copy)]
pub(crate) struct Top<'a> {
    /// The scheduling algorithm among those without a parent.
    pub algorithm: LinkAlgorithm,
    /// The service it gets.
    pub service: Result<Service, NoGuarantee>,
    /// The algorithms of its ancestors, from the root down.
    pub path: &'a [Algorithm],
}

impl Top<'static> {
    pub(crate) fn of_link(algorithm: LinkAlgorithm, rate: Rate, longest: Length) -> Top<'static> {
        Top {
            algorithm,
            service: Ok(Service::of_link(rate, longest)),
            path: &[],
        }
    }
}

/// Returns the index in the nodes of a class, or of the link for classes without a parent.
fn below(parent: Option<usize>) -> usize {
    parent.map_or(0, |parent| parent + 1)
}

/// Returns the parents of classes, indexed by [`below`].
fn nodes(
    hold: Hold,
    (root, path): (Algorithm, &[Algorithm]),
    classes: &[Class],
) -> Vec<Option<Node>> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); classes.len() + 1];
    for (at, class) in classes.iter().enumerate() {
        children[below(class.parent)].push(at);
    }
    let node = |at: usize, algorithm: Algorithm, above: &[Algorithm]| {
        Node::new(hold, algorithm, classes, &children[at], above)
    };
    let mut nodes: Vec<Option<Node>> = (0..classes.len() + 1).map(|_| None).collect();
    nodes[0] = Some(node(0, root, path));
    for (at, class) in classes.iter().enumerate() {
        if let ClassKind::Inner(algorithm) = class.kind {
            // Parents come before their children.
            let above = nodes[below(class.parent)].as_ref();
            let above = above.map_or_else(Arc::default, |above| Arc::clone(&above.path));
            nodes[at + 1] = Some(node(at + 1, algorithm, &above));
        }
    }
    nodes
}

fn walk_for(
    hold: Hold,
    top: Top<'_>,
    classes: &mut [Class],
    mut meet: impl FnMut(usize, &mut Class, Served),
) -> Vec<Guarantee> {
    let LinkAlgorithm::Tree(root) = top.algorithm else {
        return classes
            .iter()
            .map(|class| by_estimate(&class.kind))
            .collect();
    };
    let mut nodes = nodes(hold, (root, top.path), classes);
    let mut served: Vec<Result<Served, NoGuarantee>> = Vec::with_capacity(classes.len());
    let mut guarantees: Vec<Guarantee> = Vec::with_capacity(classes.len());
    for (at, class) in classes.iter_mut().enumerate() {
        let node = nodes[below(class.parent)].as_mut();
        let node = node.expect("who has children is inner");
        let above = match class.parent {
            Some(parent) => served[parent].and_then(|served| served.service),
            None => top.service,
        };
        let free = above.and_then(|above| share(node, above, class));
        if let Ok(free) = free {
            meet(at, class, free);
        }
        let has = free.map(|free| free.below_ceiling(class.ceiling, class.longest));
        let path = Arc::clone(&node.path);
        guarantees.push(of_class(class, has, path, hold));
        served.push(has);
    }
    guarantees
}

/// Returns the guarantees of a class that gets this service.
fn of_class(
    class: &Class,
    has: Result<Served, NoGuarantee>,
    path: Arc<[Algorithm]>,
    hold: Hold,
) -> Guarantee {
    match &class.kind {
        ClassKind::Inner(_) => plain(has, None, path),
        ClassKind::Leaf(_) => plain(has, Some(delays(has, class.ceiling, class)), path),
        ClassKind::Flows(flows) => each(has, flows, class, path, hold),
    }
}

/// The delay bounds of a packet: if rate and burst are kept to, and if its class may have been served ahead.
type Delays = [Result<Nanos, NoGuarantee>; 2];

fn delays(has: Result<Served, NoGuarantee>, ceiling: Option<Ceiling>, class: &Class) -> Delays {
    let longest = class.longest;
    [
        has.and_then(|has| has.delay(class.arrival_burst, ceiling, longest)),
        has.map(|has| has.ahead(longest)),
    ]
}

fn plain(
    has: Result<Served, NoGuarantee>,
    delays: Option<Delays>,
    path: Arc<[Algorithm]>,
) -> Guarantee {
    Guarantee {
        rate: has.and_then(Served::bps),
        delay: delays.map(|[delay, _]| delay),
        ahead: delays.map(|[_, ahead]| ahead),
        each: None,
        service: has.and_then(|has| has.service),
        burst: None,
        path,
    }
}

fn by_estimate(kind: &ClassKind) -> Guarantee {
    let delay = (!matches!(kind, ClassKind::Inner(_))).then_some(Err(NoGuarantee::Cbq));
    Guarantee {
        rate: Err(NoGuarantee::Cbq),
        service: Err(NoGuarantee::Cbq),
        burst: None,
        delay,
        ahead: delay,
        each: None,
        path: Arc::default(),
    }
}

/// Returns how much the scheduler knows about a class's next packet's length.
fn head(kind: &ClassKind) -> Head {
    match kind {
        ClassKind::Leaf(_) => Head::Known,
        ClassKind::Inner(_) | ClassKind::Flows(_) => Head::Longest,
    }
}

/// Returns a class's part of its parent's service, before its own ceiling; `above` is the same for all children of a
/// node.
fn share(node: &mut Node, above: Service, class: &Class) -> Result<Served, NoGuarantee> {
    match &mut node.order {
        Order::None(reason) => Err(*reason),
        Order::Shares(siblings, ceilings) => {
            let ceilings = std::mem::take(ceilings);
            let is_below_share = |&(weight, _, rate, _): &Limited| {
                (rate.bps() as f64) < siblings.share(weight) * above.bps() as f64
            };
            // Otherwise they leave no class more than its share.
            if ceilings.iter().any(is_below_share) {
                *siblings = siblings.clone().with_ceilings(ceilings);
            }
            let child = (
                class.weight,
                class.longest,
                head(&class.kind),
                class.ceiling.filter(|_| siblings.have_ceilings()),
            );
            let mut known = node.known.iter();
            if let Some(&(_, has)) = known.find(|(one, _)| *one == child) {
                return has;
            }
            let has = within(siblings, above, child);
            if node.known.len() < KNOWN {
                node.known.push((child, has));
            }
            has
        }
        Order::Levels => {
            let taken = node.taken[&class.level];
            let others = taken.without(class.ceiling);
            if others.open > 0 {
                return Err(NoGuarantee::Behind);
            }
            let (bps, burst) = (others.bps, others.burst);
            let free = above.behind(bps, burst).ok_or(NoGuarantee::Behind)?;
            // Directly below the link, a leaf does not wait for a packet on the wire of its own level or above.
            let is_leaf = node.path.len() == 1 && matches!(class.kind, ClassKind::Leaf(_));
            let link = Rate::from_bps(above.bps()).filter(|_| is_leaf);
            let level = link.and_then(|rate| Service::of_level(rate, taken.below, bps, burst));
            let rest = Part {
                of: level.unwrap_or(free),
                share: 1.0,
                wfi: NONE,
            };
            Ok(Served::new(free, None, Some(rest)))
        }
    }
}

fn within(
    siblings: &Siblings,
    above: Service,
    (weight, longest, head, ceiling): Kind,
) -> Result<Served, NoGuarantee> {
    let share = siblings.share(weight);
    let wfi = siblings.bound(weight, longest, head, Transmit::Between);
    let wfi = wfi.ok_or_else(|| unknown(siblings.algorithm()))?;
    let by_weight = Part {
        of: above,
        share,
        wfi,
    };
    let ceiling = ceiling.map(|ceiling| (ceiling.rate, ceiling.burst));
    let rest = siblings.residual(above, (weight, longest, head), ceiling);
    let rest = rest.map(|(of, share, wfi)| Part { of, share, wfi });
    let free = rest.map_or(by_weight.service(), |rest| {
        by_weight.service().or(rest.service())
    });
    Ok(Served::new(free, Some(by_weight), rest))
}

/// Returns the guarantees of each flow while the number of flows is at its limit.
fn each(
    has: Result<Served, NoGuarantee>,
    flows: &Flows,
    class: &Class,
    path: Arc<[Algorithm]>,
    hold: Hold,
) -> Guarantee {
    let longest = class.longest;
    let most = flows.most.saturating_add(1);
    let order = order(
        flows.algorithm,
        std::iter::once((Weight::ONE, longest, most)),
        std::iter::empty(),
        hold,
    );
    let one = has.and_then(|has| match &order {
        Order::None(reason) => Err(*reason),
        Order::Levels => Err(NoGuarantee::Behind),
        Order::Shares(siblings, _) => {
            let one = (Weight::ONE, longest, Head::Known, None);
            let free = within(siblings, has.service?, one)?;
            Ok(free.below_ceiling(flows.ceiling, longest))
        }
    });
    let path = path.iter().copied().chain([flows.algorithm]).collect();
    let [delay, ahead] = delays(one, flows.ceiling, class);
    Guarantee {
        rate: has.and_then(Served::bps),
        delay: Some(delay),
        ahead: Some(ahead),
        each: Some(Box::new(Each {
            flows: most,
            rate: one.and_then(Served::bps),
            service: one.and_then(|one| one.service),
            burst: None,
        })),
        service: has.and_then(|has| has.service),
        burst: None,
        path,
    }
}
