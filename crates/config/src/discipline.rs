//! From a link's classes to the queues that hold its packets.

use std::fmt;
use std::sync::Arc;

use fairlane_classify::{Classifier, DigestKey, LinkClassifier};
use fairlane_core::scheduler::Violation;
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass, CbqError};
use fairlane_core::tree::{
    ClassConfig, ClassId, ClassQueue, ClassStats, Discarded, FlowsConfig, LeafConfig, Payload,
    Removed, Tree, TreeError,
};
use fairlane_core::{Count, Dequeue, Rejected, Waited};
use fairlane_core::{Length, Nanos, Rate, Weight};

use crate::site::{Ceiling, Class, ClassKind, Flows, Link, LinkAlgorithm, Queue};

/// The queues of a link, in the order of its algorithm.
#[derive(Clone)]
pub enum Discipline<P> {
    /// The class tree.
    Tree(Tree<P>),
    /// Class-based queueing.
    Cbq(Cbq<P>),
}

/// What a class cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// In a class tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// In class-based queueing.
    #[error(transparent)]
    Cbq(#[from] CbqError),
    /// There, classes do not change one by one: the link is made anew.
    #[error("cbq: its classes only change all together")]
    Fixed,
}

impl Link {
    /// Empty queues for the link's classes, and the number that each has there, in the order of
    /// [`classes`](Link::classes). O(classes).
    pub fn discipline<P: Payload>(&self) -> (Discipline<P>, Vec<ClassId>) {
        self.build()
            .expect("what cannot be built was refused when the file was read")
    }

    /// The link's filters. `classes` are the discipline's, in the order of
    /// [`classes`](Link::classes); `key` is drawn at random, so that nobody can choose packets
    /// whose flows meet.
    pub fn classifier(&self, classes: &[ClassId], key: DigestKey) -> LinkClassifier {
        let rules = Arc::new(Classifier::new(self.rules.iter().copied()));
        self.classifier_by(rules, classes, key)
    }

    /// The same, where another link's filters are the same. O(classes).
    pub fn classifier_by(
        &self,
        rules: Arc<Classifier<u32>>,
        classes: &[ClassId],
        key: DigestKey,
    ) -> LinkClassifier {
        let per = self.classes.iter().map(|class| match &class.kind {
            ClassKind::Flows(flows) => Some(flows.per),
            _ => None,
        });
        let classes = classes.iter().copied().zip(per);
        LinkClassifier::sharing(rules, classes, self.default, key)
    }

    /// The same, or what the discipline cannot be, by the class's place.
    pub(crate) fn build<P: Payload>(
        &self,
    ) -> Result<(Discipline<P>, Vec<ClassId>), (usize, BuildError)> {
        self.build_those(|_| true)
    }

    /// The same of some classes and those above them; the others have no number.
    pub(crate) fn build_those<P: Payload>(
        &self,
        is_one: impl Fn(&Class) -> bool,
    ) -> Result<(Discipline<P>, Vec<ClassId>), (usize, BuildError)> {
        let mut wanted: Vec<bool> = self.classes.iter().map(is_one).collect();
        for at in (0..wanted.len()).rev() {
            if let (true, Some(parent)) = (wanted[at], self.classes[at].parent) {
                wanted[parent] = true;
            }
        }
        let LinkAlgorithm::Tree(algorithm) = self.algorithm else {
            let mut cbq = Cbq::new(self.rate, self.limits).marking();
            let ids = self.fill(&wanted, |parent, class| match &class.kind {
                ClassKind::Leaf(queue) => {
                    Ok(cbq.add_leaf(parent, self.cbq_class(class), self.leaf(queue, None))?)
                }
                // Flows are refused when the file is read.
                _ => Ok(cbq.add_inner(parent, self.cbq_class(class))?),
            })?;
            return Ok((Discipline::Cbq(cbq), ids));
        };
        let mut tree = Tree::new(algorithm, None, self.limits).marking();
        let ids = self.fill(&wanted, |parent, class| {
            Ok(self.add(&mut tree, parent, class)?)
        })?;
        Ok((Discipline::Tree(tree), ids))
    }

    fn add<P>(
        &self,
        tree: &mut Tree<P>,
        parent: ClassId,
        class: &Class,
    ) -> Result<ClassId, TreeError> {
        let config = self.class_config(class);
        match &class.kind {
            ClassKind::Inner(algorithm) => tree.add_inner(parent, config, *algorithm),
            ClassKind::Leaf(queue) => {
                tree.add_leaf(parent, config, self.leaf(queue, class.ceiling))
            }
            ClassKind::Flows(flows) => tree.add_flows(parent, config, self.flows(flows)),
        }
    }

    fn fill(
        &self,
        wanted: &[bool],
        mut add: impl FnMut(ClassId, &Class) -> Result<ClassId, BuildError>,
    ) -> Result<Vec<ClassId>, (usize, BuildError)> {
        let mut ids: Vec<ClassId> = Vec::with_capacity(self.classes.len());
        for (at, class) in self.classes.iter().enumerate() {
            let parent = class.parent.map_or(ClassId::ROOT, |parent| ids[parent]);
            ids.push(match wanted[at] {
                true => add(parent, class).map_err(|error| (at, error))?,
                false => ClassId::ROOT,
            });
        }
        Ok(ids)
    }

    pub(crate) fn cbq_class(&self, class: &Class) -> CbqClass {
        let bursts = Bursts::default();
        CbqClass {
            priority: class.level,
            borrow: class.borrow,
            bursts: Bursts {
                max: class.cbq_burst,
                min: bursts.min.min(class.cbq_burst),
                packet: self.longest,
            },
            ..CbqClass::new(class.rate.unwrap_or(Rate::MIN), self.longest)
        }
    }

    pub(crate) fn class_config(&self, class: &Class) -> ClassConfig {
        ClassConfig {
            weight: Weight::new(class.weight.get() * class.scale).unwrap_or(class.weight),
            level: class.level,
            ceiling: class.ceiling,
            max_length: self.longest,
        }
    }

    pub(crate) fn leaf(&self, queue: &Queue, ceiling: Option<Ceiling>) -> LeafConfig {
        LeafConfig {
            limits: queue.limits,
            room: queue.room,
            aqm: queue.aqm,
            rate: ceiling.map_or(self.rate, |ceiling| ceiling.rate.min(self.rate)),
        }
    }

    pub(crate) fn flows(&self, flows: &Flows) -> FlowsConfig {
        let usual = FlowsConfig::new(flows.algorithm);
        FlowsConfig {
            algorithm: flows.algorithm,
            most: flows.most,
            keeps_place: usual.keeps_place.min(flows.forget_after),
            forget_after: flows.forget_after,
            weight: Weight::ONE,
            ceiling: flows.ceiling,
            room: flows.room,
            leaf: self.leaf(&flows.queue, flows.ceiling),
        }
    }
}

/// Evaluates an expression with `$queue` as whichever discipline it is.
macro_rules! of_any {
    ($discipline:expr, $queue:ident => $body:expr) => {
        match $discipline {
            Discipline::Tree($queue) => $body,
            Discipline::Cbq($queue) => $body,
        }
    };
}

/// Steps by which a running link becomes another one ([`Link::steps_from`]). Each is refused
/// whole or done whole, and none looks at more than it says.
impl<P> Discipline<P> {
    /// Adds the class at this place of `link`, below the class with the number `parent`. O(1)
    /// amortised.
    ///
    /// # Errors
    ///
    /// There is no such parent, or no room for another class; the link is one of CBQ.
    pub fn add(
        &mut self,
        link: &Link,
        place: usize,
        parent: ClassId,
    ) -> Result<ClassId, BuildError> {
        match self {
            Discipline::Tree(tree) => Ok(link.add(tree, parent, &link.classes[place])?),
            Discipline::Cbq(_) => Err(BuildError::Fixed),
        }
    }

    /// Makes of a class what is at this place of `link`: the same kind with other parameters. A
    /// leaf that is within its room keeps it until it was empty. A class of flows has only begun to
    /// be another one: [`go_on_changing`](Self::go_on_changing) is to follow. O(1), and O(flows)
    /// where the limits of flows change.
    ///
    /// # Errors
    ///
    /// It is of another kind; the link is one of CBQ.
    pub fn change(
        &mut self,
        link: &Link,
        place: usize,
        id: ClassId,
        now: Nanos,
    ) -> Result<(), BuildError> {
        let Discipline::Tree(tree) = self else {
            return Err(BuildError::Fixed);
        };
        let class = &link.classes[place];
        let config = link.class_config(class);
        if tree.config(id) != Some(&config) {
            tree.change(id, config, now)?;
        }
        match &class.kind {
            ClassKind::Inner(_) => {}
            ClassKind::Leaf(queue) => {
                tree.change_leaf_when_empty(id, link.leaf(queue, class.ceiling), now)?;
            }
            ClassKind::Flows(flows) => tree.begin_change_of_flows(id, link.flows(flows), now)?,
        }
        Ok(())
    }

    /// Goes on with what [`change`](Self::change) began, looking at no more than `left` flows,
    /// which are taken off it. Returns whether there is nothing more to do, as of a class that has
    /// no flows. O(`left`).
    pub fn go_on_changing(&mut self, id: ClassId, left: &mut usize, now: Nanos) -> bool {
        match self {
            Discipline::Tree(tree) => tree.go_on_changing(id, left, now),
            Discipline::Cbq(_) => true,
        }
    }

    /// Removes a class without others below it in steps, as [`Tree::go_on_removing`]; what waits there
    /// is discarded. `None` where there is more to do. O(`left`) where nothing waits there.
    ///
    /// # Errors
    ///
    /// There are classes below it, or it is unknown; the link is one of CBQ.
    pub fn go_on_removing(
        &mut self,
        id: ClassId,
        left: &mut usize,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<Option<Removed>, BuildError> {
        match self {
            Discipline::Tree(tree) => Ok(tree.go_on_removing(id, left, discard)?),
            Discipline::Cbq(_) => Err(BuildError::Fixed),
        }
    }

    /// Takes packets out of a class's own queues, in order, looking at no more than `left` packets
    /// and flows, which are taken off it; `from` is 0 at first and says where to go on. Returns
    /// whether nothing is left, as where there is no such class. O(`left`).
    pub fn take_out(
        &mut self,
        id: ClassId,
        from: &mut u32,
        left: &mut usize,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> bool {
        match self {
            Discipline::Tree(tree) => tree.take_out(id, from, left, now, discard).unwrap_or(true),
            Discipline::Cbq(cbq) => cbq.take_out(id, left, now, discard).unwrap_or(true),
        }
    }

    /// Counts what each flow of a class sends, in this table, or that no more: as
    /// [`Tree::tally_flows`]. O(1).
    pub fn tally_flows(&mut self, id: ClassId, table: Option<Vec<Count>>) -> Vec<Count> {
        match self {
            Discipline::Tree(tree) => tree.tally_flows(id, table),
            Discipline::Cbq(_) => table.unwrap_or_default(),
        }
    }

    /// Whether it is counted what each flow of a class sends. O(1).
    pub fn is_tallied(&mut self, id: ClassId) -> bool {
        match self {
            Discipline::Tree(tree) => tree.is_tallied(id),
            Discipline::Cbq(_) => false,
        }
    }

    /// Tells what each flow of a class sent since it was last told: as [`Tree::take_tally`].
    /// O(`left`).
    pub fn take_tally(
        &mut self,
        id: ClassId,
        from: &mut u32,
        left: &mut usize,
        tell: impl FnMut(Option<u64>, Count),
    ) -> bool {
        match self {
            Discipline::Tree(tree) => tree.take_tally(id, from, left, tell),
            Discipline::Cbq(_) => true,
        }
    }

    /// What became of the packets of a class, without those of the classes below it. O(1).
    pub fn own_stats(&self, id: ClassId) -> Option<ClassStats> {
        of_any!(self, queue => queue.own_stats(id))
    }
}

impl<P> Discipline<P> {
    /// Takes all packets out of a class and those below it, in order; each goes to `discard`.
    /// Nothing happens where there is no such class.
    pub fn flush(&mut self, class: ClassId, now: Nanos, discard: impl FnMut(Discarded<P>)) {
        // An unknown class is the only error there is.
        let _ = match self {
            Discipline::Tree(tree) => tree.flush(class, now, discard).map_err(BuildError::from),
            Discipline::Cbq(cbq) => cbq.flush(class, now, discard).map_err(BuildError::from),
        };
    }
}

impl<P> ClassQueue<P> for Discipline<P> {
    #[inline]
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        of_any!(self, queue => ClassQueue::enqueue(queue, class, flow, len, payload, now, discard))
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P, ClassId> {
        of_any!(self, queue => ClassQueue::dequeue(queue, now, discard))
    }

    #[inline]
    fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId> {
        of_any!(self, queue => ClassQueue::dequeue_with_sojourn(queue, now, discard))
    }

    fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        of_any!(self, queue => ClassQueue::free_held(queue, most, now))
    }

    fn stats(&self, class: ClassId) -> Option<ClassStats> {
        of_any!(self, queue => ClassQueue::stats(queue, class))
    }

    fn len(&self) -> u32 {
        of_any!(self, queue => ClassQueue::len(queue))
    }

    fn expire_idle(&mut self, now: Nanos) {
        of_any!(self, queue => ClassQueue::expire_idle(queue, now));
    }

    fn invariants(&self) -> Result<(), Violation> {
        of_any!(self, queue => ClassQueue::invariants(queue))
    }
}

impl<P> fmt::Debug for Discipline<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        of_any!(self, queue => fmt::Debug::fmt(queue, f))
    }
}
