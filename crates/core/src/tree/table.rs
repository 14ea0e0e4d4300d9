//! The tables of a tree: classes, their nodes, rarely used properties of queues; and the checks of additions.

use crate::aqm::{Aqm, AqmConfig};
use crate::grow;
use crate::packet::Count;
use crate::room::Room;
use crate::sched::{Algorithm, Sharing};
use crate::scheduler::{MAX_ENTITIES, Share};
use crate::units::{Length, Rate, Weight};
use alloc::boxed::Box;

use super::ceiling::NONE;
use super::child::{Child, ChildKind, flag};
use super::displace::soft_limit_for;
use super::dynamic::Flows;
use super::order::{Order, Selected};
use super::{
    Body, Ceiling, Class, ClassConfig, ClassId, Extra, FlowsConfig, LeafConfig, Node, Place,
    Remains, Tree, TreeError,
};

impl<P> Tree<P> {
    /// Adds a class whose children `algorithm` orders.
    pub fn add_inner(
        &mut self,
        parent: ClassId,
        config: ClassConfig,
        algorithm: Algorithm,
    ) -> Result<ClassId, TreeError> {
        let (above, share, longest) = self.admit(parent, &config, None)?;
        let node = self.add_node(algorithm, longest, None, (above, NONE));
        let child = Child::inner(node, longest, 0);
        let body = Body::Inner { node, children: 0 };
        let class = self.enter(parent, child, share, Class::new(config, longest, body));
        let Ok((class, slot)) = class else {
            drop(self.take_node(node));
            return Err(TreeError::TooManyClasses(parent));
        };
        self.settle_node(node, class, slot, config.ceiling, longest);
        Ok(class)
    }

    /// Adds a class with a queue of its own.
    pub fn add_leaf(
        &mut self,
        parent: ClassId,
        config: ClassConfig,
        leaf: LeafConfig,
    ) -> Result<ClassId, TreeError> {
        let leaf = clamped(leaf);
        let (above, share, longest) = self.admit(parent, &config, Some(&leaf.aqm))?;
        let flags = flags(config.ceiling, &leaf.aqm);
        let soft_limit = soft_limit_for(Count::default(), leaf.room, leaf.limits);
        let body = Body::Leaf {
            config: leaf,
            extra: NONE,
            soft_limit,
            due: None,
        };
        let child = Child::leaf(NONE, soft_limit, longest, flags);
        self.keep_needed(leaf.room, None, Room::NONE)?;
        let class = self.enter(parent, child, share, Class::new(config, longest, body));
        let Ok((class, slot)) = class else {
            self.keep_room(leaf.room, Room::NONE)?;
            return Err(TreeError::TooManyClasses(parent));
        };
        let owner = (above, slot);
        self.nodes[above as usize].order.child_mut(slot).side = class.number();
        self.places[class.index()] = Place { node: above, slot };
        let extra = self.add_extra(config.ceiling, longest, &leaf, owner);
        if let Some(Class {
            body: Body::Leaf { extra: at, .. },
            ..
        }) = &mut self.classes[class.index()]
        {
            *at = extra;
        }
        Ok(class)
    }

    /// Adds a class that makes a flow of each digest its packets come with.
    pub fn add_flows(
        &mut self,
        parent: ClassId,
        config: ClassConfig,
        flows: FlowsConfig,
    ) -> Result<ClassId, TreeError> {
        let flows = FlowsConfig {
            leaf: clamped(flows.leaf),
            ..flows
        };
        check_flows(&flows)?;
        let (above, share, longest) = self.admit(parent, &config, None)?;
        self.keep_needed(flows.room, None, Room::NONE)?;
        let table = Some(Box::new(Flows::new(flows)));
        let node = self.add_node(flows.algorithm, longest, table, (above, NONE));
        let child = Child::inner(node, longest, 0);
        let body = Body::Flows { node };
        let class = self.enter(parent, child, share, Class::new(config, longest, body));
        let Ok((class, slot)) = class else {
            drop(self.take_node(node));
            self.keep_room(flows.room, Room::NONE)?;
            return Err(TreeError::TooManyClasses(parent));
        };
        self.settle_node(node, class, slot, config.ceiling, longest);
        self.places[class.index()] = Place { node, slot: NONE };
        Ok(class)
    }

    /// Returns the properties of a new class of this configuration below `parent`: the parent's node, a share there,
    /// the longest packet. `aqm` is that of a leaf.
    pub(super) fn admit(
        &self,
        parent: ClassId,
        config: &ClassConfig,
        aqm: Option<&AqmConfig>,
    ) -> Result<(u32, Share, Length), TreeError> {
        let above = self.class(parent)?;
        let Body::Inner { node, .. } = above.body else {
            return Err(TreeError::NotInner(parent));
        };
        let longest = config.max_length.min(above.longest);
        let algorithm = self.nodes[node as usize].order.algorithm();
        let share = share(algorithm, config, longest)?;
        check_fit(algorithm, config.ceiling, aqm)?;
        Ok((node, share, longest))
    }

    /// Gives a class a slot in its parent's order and a number.
    fn enter(
        &mut self,
        parent: ClassId,
        child: Child,
        share: Share,
        class: Class,
    ) -> Result<(ClassId, u32), ()> {
        let Some(Class {
            body: Body::Inner { node, children },
            ..
        }) = &mut self.classes[parent.index()]
        else {
            return Err(());
        };
        let above = *node;
        if self.free_classes.is_empty() && self.places.len() >= NONE as usize {
            return Err(());
        }
        let slot = self.nodes[above as usize]
            .order
            .add(child, share)
            .ok_or(())?;
        *children += 1;
        self.refresh(above);
        let class = Class {
            parent: above,
            slot,
            ..class
        };
        Ok((self.register(class, Place::NOWHERE), slot))
    }

    /// Gives a class a number.
    pub(super) fn register(&mut self, class: Class, place: Place) -> ClassId {
        let number = grow::put(&mut self.classes, &mut self.free_classes, Some(class));
        match self.places.get_mut(number as usize) {
            Some(at) => *at = place,
            None => grow::push(&mut self.places, place),
        }
        ClassId::new(number)
    }

    pub(super) fn add_node(
        &mut self,
        algorithm: Algorithm,
        longest: Length,
        flows: Option<Box<Flows>>,
        (parent, slot): (u32, u32),
    ) -> u32 {
        let node = Node {
            order: Order::new(algorithm),
            selected: Selected::NOBODY,
            parent,
            slot,
            longest: longest.into(),
            ceiling: NONE,
            class: 0,
            follows_packets: algorithm.follows_packets(),
            flows,
        };
        grow::put(&mut self.nodes, &mut self.free_nodes, node)
    }

    /// A node is of this class from now on, which has this slot.
    fn settle_node(
        &mut self,
        node: u32,
        class: ClassId,
        slot: u32,
        ceiling: Option<Ceiling>,
        longest: Length,
    ) {
        let parent = self.nodes[node as usize].parent;
        let ceiling = self.add_ceiling(ceiling, longest, (parent, slot));
        let node = &mut self.nodes[node as usize];
        node.class = class.number();
        node.slot = slot;
        node.ceiling = ceiling;
    }

    /// Frees a node for reuse and returns its memory to the caller.
    pub(super) fn take_node(&mut self, node: u32) -> Remains {
        let at = &mut self.nodes[node as usize];
        let remains = Remains {
            _order: core::mem::replace(&mut at.order, Order::new(Algorithm::Fifo)),
            _flows: at.flows.take(),
        };
        at.selected = Selected::NOBODY;
        let ceiling = core::mem::replace(&mut at.ceiling, NONE);
        if ceiling != NONE {
            self.ceilings.remove(ceiling);
        }
        self.free_nodes.push(node);
        remains
    }

    pub(super) fn add_ceiling(
        &mut self,
        ceiling: Option<Ceiling>,
        longest: Length,
        owner: (u32, u32),
    ) -> u32 {
        ceiling.map_or(NONE, |ceiling| self.ceilings.add(ceiling, longest, owner))
    }

    /// Adds an entry of rarely used properties, if the queue needs one.
    pub(super) fn add_extra(
        &mut self,
        ceiling: Option<Ceiling>,
        longest: Length,
        leaf: &LeafConfig,
        owner: (u32, u32),
    ) -> u32 {
        if flags(ceiling, &leaf.aqm) == 0 {
            return NONE;
        }
        let ceiling = self.add_ceiling(ceiling, longest, owner);
        let aqm = self.management(leaf);
        let extra = Extra { aqm, ceiling };
        self.extras.insert(extra)
    }

    /// Queue management, which draws numbers of its own.
    pub(super) fn management(&mut self, leaf: &LeafConfig) -> Aqm {
        self.seed = self.seed.wrapping_add(1);
        Aqm::new(&leaf.aqm, leaf.rate, self.seed)
    }

    /// Gives an entry back, and the ceiling in it.
    pub(super) fn drop_extra(&mut self, extra: u32) {
        let Some(at) = self.extras.get_mut(extra as usize) else {
            return;
        };
        at.aqm = Aqm::new(&AqmConfig::TailDrop, Rate::MAX, 0);
        let ceiling = core::mem::replace(&mut at.ceiling, NONE);
        if ceiling != NONE {
            self.ceilings.remove(ceiling);
        }
        self.extras.release(extra);
    }

    /// Returns the entry of rarely used properties of a child that is a queue.
    #[inline]
    pub(super) fn extra_of(&self, child: &Child) -> u32 {
        if child.tag.kind == ChildKind::Flow {
            return child.side;
        }
        match &self.classes[child.side as usize] {
            Some(Class {
                body: Body::Leaf { extra, .. },
                ..
            }) => *extra,
            _ => NONE,
        }
    }

    /// Ceiling of a child that is a queue.
    #[inline]
    pub(super) fn ceiling_of_queue(&self, child: &Child) -> Option<u32> {
        let extra = self.extras.get(self.extra_of(child) as usize)?;
        (extra.ceiling != NONE).then_some(extra.ceiling)
    }

    /// Selects again in a node, after a statement about it.
    pub(super) fn refresh(&mut self, node: u32) {
        let node = &mut self.nodes[node as usize];
        node.selected = node.order.selected();
    }
}

/// Returns the properties of a queue beyond its packets, as bits.
pub(super) fn flags(ceiling: Option<Ceiling>, aqm: &AqmConfig) -> u8 {
    let managed = match aqm {
        AqmConfig::TailDrop => 0,
        AqmConfig::Red(_) => flag::AQM,
        AqmConfig::Codel(_) => flag::LEAVING,
    };
    managed | if ceiling.is_some() { flag::CEILING } else { 0 }
}

pub(super) fn clamped(leaf: LeafConfig) -> LeafConfig {
    let limits = leaf.limits.clamped();
    LeafConfig {
        limits,
        room: leaf.room.within(limits),
        ..leaf
    }
}

/// Returns the share of a class in its parent's order.
pub(super) fn share(
    algorithm: Algorithm,
    config: &ClassConfig,
    longest: Length,
) -> Result<Share, TreeError> {
    if config.level > ClassConfig::MAX_LEVEL {
        return Err(TreeError::Level(config.level));
    }
    let weight = match algorithm.sharing() {
        // It takes weights for levels, from 1.
        Sharing::Levels => Weight::new(config.level + 1).unwrap_or(config.weight),
        _ => config.weight,
    };
    Ok(Share::new(weight, longest))
}

/// Returns whether the algorithm can order a leaf with such a ceiling and queue management, or a class with children
/// (`None`).
pub(super) fn check_fit(
    algorithm: Algorithm,
    ceiling: Option<Ceiling>,
    aqm: Option<&AqmConfig>,
) -> Result<(), TreeError> {
    let what = match aqm {
        _ if !algorithm.follows_packets() => return Ok(()),
        None => "a class with others or flows below it",
        Some(_) if ceiling.is_some() => "a class with a ceiling of its own",
        Some(AqmConfig::Codel(_)) if !algorithm.may_lose_first() => {
            "a queue that drops packets as they leave"
        }
        Some(_) => return Ok(()),
    };
    let algorithm = algorithm.name();
    Err(TreeError::Unfit { algorithm, what })
}

/// Returns whether there can be such flows.
pub(super) fn check_flows(flows: &FlowsConfig) -> Result<(), TreeError> {
    if flows.most == 0 || flows.most as usize >= MAX_ENTITIES {
        return Err(TreeError::Flows(flows.most));
    }
    check_fit(flows.algorithm, flows.ceiling, Some(&flows.leaf.aqm))
}
