//! The children of a node in the order of its algorithm, whichever that is.
//!
//! Each algorithm has code of its own, chosen by one jump; a child's record and the algorithm's state of it share a
//! cache line. The queue of a plain leaf, one without flags, is the same whatever the algorithm. The order need not be
//! notified of each packet: the selected child has an allowance, within which nothing changes except the bytes sent.

use crate::grow;
use crate::queue::PacketSlab;
use crate::sched::{Algorithm, CustomScheduler, DrrOfQuantum, algorithms};
use crate::scheduler::{EntityId, Holds, MAX_ENTITIES, Removal, Scheduler, Share, Violation};
use crate::units::{Charge, Length};
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::child::{Child, ChildKind};

/// The selected child of a node, and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    /// Slot of the child.
    pub slot: u32,
    /// Its node if it has children, else [`Selected::LEAF`]; [`Selected::NONE`] for no child.
    pub below: u32,
}

impl Selected {
    /// The child has packets of its own.
    pub(super) const LEAF: u32 = u32::MAX;
    /// There is no child.
    pub(super) const NONE: u32 = u32::MAX - 1;

    pub(super) const NOBODY: Selected = Selected {
        slot: 0,
        below: Self::NONE,
    };

    #[inline]
    pub(super) fn is_somebody(self) -> bool {
        self.below != Self::NONE
    }
}

/// A packet of a plain leaf, to be charged to its order.
pub(super) struct Taken<P> {
    pub class: u32,
    pub len: Length,
    pub payload: P,
    /// The leaf's next packet.
    pub next: Option<Charge>,
}

/// The bytes that the selected child may send before its order must be notified, and the rest of them.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    granted: u32,
    left: u32,
}

impl Allowance {
    /// Bytes that were sent within it.
    #[inline]
    fn used(&self) -> u32 {
        self.granted - self.left
    }
}

/// A child's record next to its state.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Line<S> {
    child: Child,
    state: S,
}

const _: () = assert!(size_of::<Line<[u64; 3]>>() == 64);

impl<S> Holds<S> for Line<S> {
    #[inline]
    fn state(&self) -> &S {
        &self.state
    }
    #[inline]
    fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

/// No free record.
const NO_SLOT: u32 = u32::MAX;

/// Children in the order of `A`: the fields that a packet touches begin a cache line, together with the location of the
/// records, whatever `A` is.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Ordered<A: Scheduler> {
    lines: Vec<Line<A::Entity>>,
    algorithm: A,
    /// First of the free records.
    free: u32,
    name: Algorithm,
}

impl<A: Scheduler> Ordered<A> {
    fn new(name: Algorithm, algorithm: A) -> Box<Self> {
        Box::new(Ordered {
            lines: Vec::new(),
            free: NO_SLOT,
            name,
            algorithm,
        })
    }

    #[inline]
    fn selected(&self) -> Selected {
        let chosen = self.algorithm.select(self.lines.as_slice());
        match self.lines.get(chosen.index()) {
            Some(line) => Selected {
                slot: chosen.index() as u32,
                below: match line.child.tag.kind {
                    ChildKind::Inner => line.child.side,
                    _ => Selected::LEAF,
                },
            },
            None => Selected::NOBODY,
        }
    }

    fn add(&mut self, child: Child, share: Share) -> Option<u32> {
        let slot = match self.lines.get(self.free as usize) {
            Some(line) => core::mem::replace(&mut self.free, line.child.side),
            None => {
                let slot = self.lines.len();
                EntityId::new(slot)?;
                grow::push(&mut self.lines, Line::default());
                slot as u32
            }
        };
        self.lines[slot as usize].child = child;
        let id = EntityId::in_use(slot);
        self.algorithm.add(self.lines.as_mut_slice(), id, share);
        Some(slot)
    }

    fn remove(&mut self, slot: u32) -> Removal {
        let id = EntityId::in_use(slot);
        let removal = self.algorithm.remove(self.lines.as_mut_slice(), id);
        match removal {
            Removal::Done => self.give_back(slot),
            Removal::WhenSelected => {
                self.lines[slot as usize].child = Child::leaving();
            }
        }
        removal
    }

    fn give_back(&mut self, slot: u32) {
        let next = core::mem::replace(&mut self.free, slot);
        self.lines[slot as usize].child = Child::free(next);
    }

    fn change(&mut self, slot: u32, share: Share) {
        let id = EntityId::in_use(slot);
        self.algorithm.change(self.lines.as_mut_slice(), id, share);
    }

    fn is_active(&self, slot: u32) -> bool {
        let id = EntityId::in_use(slot);
        self.algorithm.is_active(self.lines.as_slice(), id)
    }

    #[inline]
    fn backlogged(&mut self, slot: u32, head: Charge, arrived: Charge) -> Selected {
        let id = EntityId::in_use(slot);
        let lines = self.lines.as_mut_slice();
        self.algorithm.backlogged(lines, id, head);
        if A::FOLLOWS_PACKETS {
            self.algorithm.arrived(lines, id, arrived);
        }
        self.algorithm.settle(lines);
        self.selected()
    }

    #[inline]
    fn arrived(&mut self, slot: u32, length: Charge) {
        let id = EntityId::in_use(slot);
        self.algorithm
            .arrived(self.lines.as_mut_slice(), id, length);
    }

    /// Reports the bytes that the selected child sent within its allowance.
    fn used(&mut self, work: Charge) {
        let lines = self.lines.as_mut_slice();
        if let Some(id) = self.algorithm.select(lines).get() {
            self.algorithm.used(lines, id, work);
        }
    }

    /// Charges the selected child, also for the bytes it sent within its allowance, and selects the next child and its
    /// allowance.
    // By itself: the needs of one algorithm take no registers from the others.
    #[inline(never)]
    fn charge(
        &mut self,
        slot: u32,
        charged: Charge,
        next: Option<Charge>,
        selected: &mut Selected,
        allowance: &mut Allowance,
    ) {
        let id = EntityId::in_use(slot);
        let charged = charged.plus(allowance.used());
        let lines = self.lines.as_mut_slice();
        if !self.algorithm.advance(lines, id, charged, next) {
            return self.reschedule(id, charged, next, selected, allowance);
        }
        self.look(selected, allowance);
    }

    /// The same where the algorithm has more to do. Apart, and the last that is done then.
    #[inline(never)]
    fn reschedule(
        &mut self,
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
        selected: &mut Selected,
        allowance: &mut Allowance,
    ) {
        self.algorithm.served(charged);
        (self.algorithm).reschedule(self.lines.as_mut_slice(), id, charged, next);
        self.look(selected, allowance);
    }

    /// Selects the next child and its allowance.
    #[inline(always)]
    fn look(&mut self, selected: &mut Selected, allowance: &mut Allowance) {
        self.algorithm.settle(self.lines.as_mut_slice());
        let lines = self.lines.as_slice();
        let chosen = self.algorithm.select(lines);
        let Some(line) = lines.get(chosen.index()) else {
            *selected = Selected::NOBODY;
            *allowance = Allowance::default();
            return;
        };
        selected.slot = chosen.index() as u32;
        selected.below = match line.child.tag.kind {
            ChildKind::Inner => line.child.side,
            _ => Selected::LEAF,
        };
        let granted = Charge::in_range(line.child.longest()).map_or(0, |longest| {
            let id = EntityId::in_use(chosen.index() as u32);
            self.algorithm.allowance(lines, id, longest)
        });
        let left = granted;
        *allowance = Allowance { granted, left };
    }

    fn idle(&mut self, slot: u32) {
        let id = EntityId::in_use(slot);
        self.algorithm.idle(self.lines.as_mut_slice(), id);
        self.algorithm.settle(self.lines.as_mut_slice());
        if self.lines[slot as usize].child.tag.kind == ChildKind::Leaving {
            self.give_back(slot);
        }
    }

    fn discarded(&mut self, slot: u32, packets: u32) {
        let id = EntityId::in_use(slot);
        self.algorithm
            .discarded(self.lines.as_mut_slice(), id, packets);
    }

    fn dropped_first(&mut self, slot: u32) {
        let id = EntityId::in_use(slot);
        self.algorithm.dropped_first(self.lines.as_mut_slice(), id);
    }

    fn check(&self) -> Result<(), Violation> {
        self.algorithm.invariants(self.lines.as_slice())
    }
}

macro_rules! define {
    (
        ($d:tt)
        $(
            $variant:ident$(($most:ident: $kind:ty))?:
                $type:ty = $make:expr, $promise:expr, $about:literal;
        )*
    ) => {
        /// Children in the order of any algorithm.
        #[derive(Clone, Debug)]
        enum Any {
            $($variant(Box<Ordered<$type>>),)*
            DrrOfQuantum(Box<Ordered<DrrOfQuantum>>),
            Custom(Box<Ordered<CustomScheduler>>),
        }

        /// Evaluates an expression with `$ordered` as the [`Ordered`] of whichever algorithm.
        macro_rules! of_any {
            ($d order:expr, $d ordered:ident => $d body:expr) => {
                match $d order {
                    $(Any::$variant($d ordered) => $d body,)*
                    Any::DrrOfQuantum($d ordered) => $d body,
                    Any::Custom($d ordered) => $d body,
                }
            };
        }

        impl Any {
            /// Without children.
            fn new(name: Algorithm) -> Any {
                match name.without_aggregates_of_one() {
                    $(Algorithm::$variant$(($most))? => Any::$variant(Ordered::new(name, $make)),)*
                    Algorithm::DrrOfQuantum(quantum) => {
                        Any::DrrOfQuantum(Ordered::new(name, DrrOfQuantum::new(quantum)))
                    }
                    Algorithm::Custom(custom) => Any::Custom(Ordered::new(name, custom.scheduler())),
                }
            }
        }
    };
}

algorithms!(define!(($)));

/// Children in the order of an algorithm, which is notified of the selected child's service when that has used up its
/// allowance, or before any other statement.
#[derive(Clone, Debug)]
pub(super) struct Order {
    any: Any,
    allowance: Allowance,
}

impl Order {
    /// Without children.
    pub(super) fn new(algorithm: Algorithm) -> Order {
        Order {
            any: Any::new(algorithm),
            allowance: Allowance::default(),
        }
    }

    /// Returns the algorithm.
    pub(super) fn algorithm(&self) -> Algorithm {
        of_any!(&self.any, ordered => ordered.name)
    }

    /// The selected child, which has more to send, sent a packet: whether that is within its
    /// allowance, and nothing needs to be done.
    #[inline(always)]
    pub(super) fn draw(&mut self, len: Length) -> bool {
        let left = self.allowance.left;
        let enough = left >= len.get();
        if enough {
            self.allowance.left = left - len.get();
        }
        enough
    }

    /// To make a statement to.
    #[inline]
    fn told(&mut self) -> &mut Any {
        if self.allowance.granted != 0 {
            self.tell();
        }
        &mut self.any
    }

    #[cold]
    #[inline(never)]
    fn tell(&mut self) {
        let used = core::mem::take(&mut self.allowance).used();
        if let Some(used) = Charge::in_range(used) {
            of_any!(&mut self.any, ordered => ordered.used(used));
        }
    }

    /// Returns the selected child.
    #[inline]
    pub(super) fn selected(&self) -> Selected {
        of_any!(&self.any, ordered => ordered.selected())
    }

    /// Returns the record in a slot that is in use.
    #[inline(always)]
    pub(super) fn child(&self, slot: u32) -> &Child {
        of_any!(&self.any, ordered => &ordered.lines[slot as usize].child)
    }

    /// The record in a slot that is in use, to change.
    #[inline(always)]
    pub(super) fn child_mut(&mut self, slot: u32) -> &mut Child {
        of_any!(&mut self.any, ordered => &mut ordered.lines[slot as usize].child)
    }

    /// Slots, in use or free.
    pub(super) fn slots(&self) -> u32 {
        of_any!(&self.any, ordered => ordered.lines.len() as u32)
    }

    /// Returns whether the table must grow for one more child.
    pub(super) fn is_full(&self) -> bool {
        of_any!(&self.any, ordered => {
            ordered.free == NO_SLOT && ordered.lines.len() == ordered.lines.capacity()
        })
    }

    /// Reserves space for `children` children in all.
    pub(super) fn reserve(&mut self, children: usize) {
        let children = children.min(MAX_ENTITIES);
        of_any!(&mut self.any, ordered => {
            let more = children.saturating_sub(ordered.lines.len());
            ordered.lines.reserve_exact(more);
        });
    }

    /// Takes a child in, which is not backlogged: its slot, or `None` if all are in use.
    pub(super) fn add(&mut self, child: Child, share: Share) -> Option<u32> {
        of_any!(self.told(), ordered => ordered.add(child, share))
    }

    /// Lets a child without packets go. Its slot is free now or once it was selected.
    pub(super) fn remove(&mut self, slot: u32) -> Removal {
        of_any!(self.told(), ordered => ordered.remove(slot))
    }

    /// Gives a child another share.
    pub(super) fn change(&mut self, slot: u32, share: Share) {
        of_any!(self.told(), ordered => ordered.change(slot, share));
    }

    /// Returns whether a child has a place.
    pub(super) fn is_active(&self, slot: u32) -> bool {
        of_any!(&self.any, ordered => ordered.is_active(slot))
    }

    /// Makes a child active with `head` as the head reported to the algorithm, after the arrival of a packet of
    /// `arrived` bytes. Returns the selection after it.
    #[inline]
    pub(super) fn backlogged(&mut self, slot: u32, head: Charge, arrived: Charge) -> Selected {
        of_any!(self.told(), ordered => ordered.backlogged(slot, head, arrived))
    }

    /// Records an arrival for a backlogged child. Only algorithms that follow packets are notified.
    #[inline]
    pub(super) fn arrived(&mut self, slot: u32, length: Charge) {
        of_any!(self.told(), ordered => ordered.arrived(slot, length));
    }

    /// Charges the selected child, where `next` is its next packet, if any. Returns the selection after it.
    #[inline]
    pub(super) fn charge(
        &mut self,
        slot: u32,
        charged: Charge,
        next: Option<Charge>,
        selected: &mut Selected,
    ) {
        let allowance = &mut self.allowance;
        of_any!(&mut self.any, ordered => {
            ordered.charge(slot, charged, next, selected, allowance);
        });
    }

    /// The record in a slot, if there is one, to change. Records lie alike in all orders.
    #[inline(always)]
    fn record(&mut self, slot: u32) -> Option<&mut Child> {
        of_any!(&mut self.any, ordered => {
            ordered.lines.get_mut(slot as usize).map(|line| &mut line.child)
        })
    }

    /// The record of a plain leaf with room for a packet: one without flags.
    #[inline(always)]
    pub(super) fn plain_leaf(&mut self, slot: u32, len: Length) -> Option<&mut Child> {
        let child = self.record(slot)?;
        (child.tag.flags == 0 && child.has_room(len)).then_some(child)
    }

    /// Takes the first packet of the selected child, if that is a plain leaf with packets.
    #[inline(always)]
    pub(super) fn take<P>(&mut self, slot: u32, slab: &mut PacketSlab<P>) -> Option<Taken<P>> {
        let child = self.record(slot)?;
        if child.tag.flags != 0 {
            return None;
        }
        let (len, payload, rest) = child.packets.advance(slab)?;
        let next = rest.length().map(Charge::from);
        child.give_room(len);
        Some(Taken {
            class: child.side,
            len,
            payload,
            next,
        })
    }

    /// The selected child turned out to have nothing; if it was removed, its slot is free.
    pub(super) fn idle(&mut self, slot: u32) {
        of_any!(self.told(), ordered => ordered.idle(slot));
    }

    /// The first packets of a child were discarded.
    pub(super) fn discarded(&mut self, slot: u32, packets: u32) {
        of_any!(self.told(), ordered => ordered.discarded(slot, packets));
    }

    /// The first packet of the selected child, which has others, was discarded.
    pub(super) fn dropped_first(&mut self, slot: u32) {
        of_any!(self.told(), ordered => ordered.dropped_first(slot));
    }

    /// The algorithm's own invariants.
    pub(super) fn check(&self) -> Result<(), Violation> {
        of_any!(&self.any, ordered => ordered.check())
    }
}
