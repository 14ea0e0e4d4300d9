//! A tree looked at: its classes, their flows, and itself in a line.

use core::fmt;

use super::child::{ChildKind, flag};
use super::{Body, ClassId, Tree};
use crate::packet::Count;

/// The present state of a flow of a class of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DynamicFlow {
    /// The digest that its packets come with; `None` for the common flow of those for which there was
    /// no room.
    pub digest: Option<u64>,
    /// Its backlog.
    pub queued: Count,
}

impl<P> Tree<P> {
    /// Returns the classes by number, the root first. O(numbers in use at once so far) for all of them.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> {
        let classes = (0..).map(ClassId::new).zip(&self.classes);
        classes.filter_map(|(id, class)| class.as_ref().map(|_| id))
    }

    /// Returns the class right above, or `None` of the root and of a class that does not exist. O(1).
    pub fn parent(&self, class: ClassId) -> Option<ClassId> {
        // The root's parent is no node.
        let above = self.nodes.get(self.class(class).ok()?.parent as usize)?;
        Some(ClassId::new(above.class))
    }

    /// Returns the classes right below. O(classes that existed at once so far) for all of them.
    ///
    /// ```
    /// use fairlane_core::sched::Algorithm;
    /// use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
    /// use fairlane_core::{Length, Weight};
    ///
    /// let mut link = Tree::<String>::new(Algorithm::Qfq, None, Default::default());
    /// let config = ClassConfig::new(Weight::ONE, Length::MAX);
    /// let office = link.add_inner(ClassId::ROOT, config, Algorithm::Drr)?;
    /// let mail = link.add_leaf(office, config, LeafConfig::default())?;
    /// assert!(link.classes().eq([ClassId::ROOT, office, mail]));
    /// assert!(link.children(office).eq([mail]));
    /// assert_eq!(link.parent(mail), Some(office));
    /// # Ok::<(), fairlane_core::tree::TreeError>(())
    /// ```
    pub fn children(&self, class: ClassId) -> impl Iterator<Item = ClassId> {
        let node = match self.class(class).map(|class| class.body) {
            Ok(Body::Inner { node, .. }) => Some(node),
            _ => None,
        };
        let below = node
            .into_iter()
            .flat_map(move |node| self.classes_below(node));
        below.map(ClassId::new)
    }

    /// Returns the flows of a class of flows, those without packets included; none of another class. O(flows that
    /// existed at once so far) for all of them.
    pub fn flows(&self, class: ClassId) -> impl Iterator<Item = DynamicFlow> {
        let node = match self.class(class).map(|class| class.body) {
            Ok(Body::Flows { node }) => Some(&self.nodes[node as usize]),
            _ => None,
        };
        let flows = node.and_then(|node| Some((&node.order, node.flows.as_ref()?)));
        flows.into_iter().flat_map(|(order, flows)| {
            let slots = (0..order.slots()).map(move |slot| order.child(slot));
            let there = slots.filter(|child| child.tag.kind == ChildKind::Flow);
            there.map(move |child| DynamicFlow {
                digest: (!child.has(flag::COMMON)).then(|| child.digest()),
                queued: match child.has(flag::IDLE) {
                    true => Count::default(),
                    false => child.queued(flows.config.leaf.limits),
                },
            })
        })
    }
}

/// Prints sizes, and no packets.
impl<P> fmt::Debug for Tree<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("classes", &self.classes().count())
            .field("queued", &self.queued())
            .finish_non_exhaustive()
    }
}
