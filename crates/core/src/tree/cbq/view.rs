//! The classes of CBQ looked at, and itself in a line.

use core::fmt;

use super::Cbq;
use crate::tree::ClassId;

impl<P> Cbq<P> {
    /// Returns the classes by number, the root first. O(numbers in use at once so far) for all of them.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> {
        let classes = (0..).map(ClassId::new).zip(self.classes.iter());
        classes.filter_map(|(id, class)| (!class.removed).then_some(id))
    }

    /// Returns the class right above, or `None` of the root and of a class that does not exist. O(1).
    pub fn parent(&self, class: ClassId) -> Option<ClassId> {
        let parent = self.class(class).ok()?.parent;
        (class != ClassId::ROOT).then_some(ClassId::new(parent))
    }

    /// Returns the classes right below.
    pub fn children(&self, class: ClassId) -> impl Iterator<Item = ClassId> {
        let below = self.class(class).into_iter();
        let numbers = below.flat_map(|class| class.children.iter().copied());
        numbers.map(ClassId::new)
    }
}

/// Prints sizes, and no packets.
impl<P> fmt::Debug for Cbq<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cbq")
            .field("link", &self.link)
            .field("classes", &self.classes().count())
            .field("queued", &self.len())
            .finish_non_exhaustive()
    }
}
