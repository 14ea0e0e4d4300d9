//! Building the queues of a link's classes, and changing them while they hold packets.

use std::sync::Arc;

use fairlane_classify::{Classifier, DigestKey, LinkClassifier};
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass};
use fairlane_core::tree::{
    ClassConfig, ClassId, FlowsConfig, LeafConfig, Payload, Tree, TreeError,
};
use fairlane_core::{Discipline, DisciplineError, Nanos, Rate, Weight};

use crate::site::{Ceiling, Class, ClassKind, Flows, Link, LinkAlgorithm, Queue};

impl Link {
    /// Returns empty queues for the link's classes, and the number of each class there, in the order of
    /// [`classes`](Link::classes). O(classes).
    pub fn discipline<P: Payload>(&self) -> (Discipline<P>, Vec<ClassId>) {
        self.build()
            .expect("what cannot be built was refused when the file was read")
    }

    /// Returns the link's filters. `classes` are the discipline's, in the order of [`classes`](Link::classes). `key`
    /// must be random, so that no sender can choose packets whose flows collide.
    pub fn classifier(&self, classes: &[ClassId], key: DigestKey) -> LinkClassifier {
        let rules = Arc::new(Classifier::new(self.rules.iter().copied()));
        self.classifier_by(rules, classes, key)
    }

    /// Returns the same, using the filters of another link if they are the same. O(classes).
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
            .with_link_control(self.link_control)
            .with_longest(self.longest_frames())
    }

    /// Returns the longest frame of each class, without overhead; a longer one goes to the default class.
    pub fn longest_frames(&self) -> impl Iterator<Item = u32> {
        let classes = self.classes.iter();
        classes.map(|class| match class.longest == self.longest {
            true => u32::MAX,
            false => class.longest.get() - self.overhead,
        })
    }

    /// Builds the queues as [`discipline`](Link::discipline) does. On an error, returns the index of the class and the
    /// reason.
    pub(crate) fn build<P: Payload>(
        &self,
    ) -> Result<(Discipline<P>, Vec<ClassId>), (usize, DisciplineError)> {
        self.build_those(|_| true)
    }

    /// Checks whether the queues of the classes at some indices can be built: some at a time, since all of them
    /// together take much memory, tens of kilobytes for a class of flows.
    pub(crate) fn check(
        &self,
        is_one: impl Fn(usize) -> bool,
    ) -> Result<(), (usize, DisciplineError)> {
        const TOGETHER: usize = 512;
        for from in (0..self.classes.len()).step_by(TOGETHER) {
            let some = from..from + TOGETHER;
            self.build_those::<()>(|at| some.contains(&at) && is_one(at))?;
        }
        Ok(())
    }

    /// Builds the queues of the classes at some indices and of their ancestors; the others have no number.
    pub(crate) fn build_those<P: Payload>(
        &self,
        is_one: impl Fn(usize) -> bool,
    ) -> Result<(Discipline<P>, Vec<ClassId>), (usize, DisciplineError)> {
        let mut wanted: Vec<bool> = (0..self.classes.len()).map(is_one).collect();
        for at in (0..wanted.len()).rev() {
            if wanted[at]
                && let Some(parent) = self.classes[at].parent
            {
                wanted[parent] = true;
            }
        }
        let LinkAlgorithm::Tree(algorithm) = self.algorithm else {
            let mut cbq = Cbq::new(self.rate, self.limits).marking();
            let ids = self.fill(&wanted, |parent, class| match &class.kind {
                ClassKind::Leaf(queue) => {
                    Ok(cbq.add_leaf(parent, self.cbq_class(class), self.leaf(queue, None))?)
                }
                // Classes of flows are rejected when the file is read.
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
        mut add: impl FnMut(ClassId, &Class) -> Result<ClassId, DisciplineError>,
    ) -> Result<Vec<ClassId>, (usize, DisciplineError)> {
        let mut ids: Vec<ClassId> = Vec::with_capacity(self.classes.len());
        for (at, class) in self.classes.iter().enumerate() {
            if !wanted[at] {
                ids.push(ClassId::ROOT);
                continue;
            }
            let parent = class.parent.map_or(ClassId::ROOT, |parent| ids[parent]);
            ids.push(add(parent, class).map_err(|error| (at, error))?);
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
                packet: class.longest,
            },
            ..CbqClass::new(class.rate.unwrap_or(Rate::MIN), class.longest)
        }
    }

    pub(crate) fn class_config(&self, class: &Class) -> ClassConfig {
        ClassConfig {
            weight: Weight::new(class.weight.get() * class.scale).unwrap_or(class.weight),
            level: class.level,
            ceiling: class.ceiling,
            max_length: class.longest,
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
            aqm_floor: flows.aqm_floor,
            leaf: self.leaf(&flows.queue, flows.ceiling),
        }
    }
}

/// Steps by which the queues of a running link become this one's ([`steps_from`](Link::steps_from)), in addition to
/// those of [`Discipline`]. Each step either fails without any effect or is done completely.
impl Link {
    /// Adds the class at this index to the link's queues, below the class with the number `parent`. O(1) amortised.
    ///
    /// # Errors
    ///
    /// Fails if there is no such parent, if the number of classes is at its limit, or if the link is one of CBQ.
    pub fn add_class<P>(
        &self,
        queues: &mut Discipline<P>,
        place: usize,
        parent: ClassId,
    ) -> Result<ClassId, DisciplineError> {
        match queues {
            Discipline::Tree(tree) => Ok(self.add(tree, parent, &self.classes[place])?),
            Discipline::Cbq(_) => Err(DisciplineError::Fixed),
        }
    }

    /// Moves a class of the link's queues, with all its state, to this index, below the class with the number `parent`:
    /// see [`Tree::move_below`]. O(depth), below algorithms that do not follow packets.
    ///
    /// # Errors
    ///
    /// Fails if there is no such class or parent, if the parent is the class itself or below it, or if the link is one
    /// of CBQ.
    pub fn move_class<P>(
        &self,
        queues: &mut Discipline<P>,
        place: usize,
        id: ClassId,
        parent: ClassId,
        now: Nanos,
    ) -> Result<(), DisciplineError> {
        let Discipline::Tree(tree) = queues else {
            return Err(DisciplineError::Fixed);
        };
        let config = self.class_config(&self.classes[place]);
        Ok(tree.move_below(id, parent, config, now)?)
    }

    /// Gives a class of the link's queues the parameters of the class of the same kind at this index. A leaf whose
    /// backlog is within its buffer reservation keeps that until it has been empty. The change of a class of flows only
    /// starts here; [`Discipline::go_on_changing`] must follow. O(1), or O(flows) if the limits of flows change.
    ///
    /// # Errors
    ///
    /// Fails if the class is of another kind, or if the link is one of CBQ.
    pub fn change_class<P>(
        &self,
        queues: &mut Discipline<P>,
        place: usize,
        id: ClassId,
        now: Nanos,
    ) -> Result<(), DisciplineError> {
        let Discipline::Tree(tree) = queues else {
            return Err(DisciplineError::Fixed);
        };
        let class = &self.classes[place];
        let config = self.class_config(class);
        if tree.config(id) != Some(&config) {
            tree.change(id, config, now)?;
        }
        match &class.kind {
            ClassKind::Inner(_) => {}
            ClassKind::Leaf(queue) => {
                tree.change_leaf_when_empty(id, self.leaf(queue, class.ceiling), now)?;
            }
            ClassKind::Flows(flows) => tree.begin_change_of_flows(id, self.flows(flows), now)?,
        }
        Ok(())
    }
}
