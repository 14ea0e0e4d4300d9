//! Algorithms of other crates, selected by name like the core's own.
//!
//! To order flows, an algorithm needs nothing of this module: [`PacketScheduler`](crate::PacketScheduler) and
//! [`Plus`](super::Plus) take any [`Scheduler`] and are compiled for it. This module is for selection at run time:
//! [`Algorithm::custom`](super::Algorithm::custom) is accepted wherever one of the core's algorithms is, at one
//! indirect call for each statement and with its entities' states in a table of its own. The core's algorithms pay
//! nothing for it.

use super::plus::Plus;
use super::row::{Promise, Row};
use super::s_kps::SKps;
use crate::bounds::child::Child;
use crate::bounds::{self, Head, Siblings, Transmit, Wfi};
use crate::scheduler::{EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation};
use crate::units::{Charge, Length, Weight};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// An algorithm of another crate that programs may know by a name.
///
/// It shares by weight: a weight in a file is a part of the link. `Default` makes it without
/// entities.
pub trait CustomAlgorithm:
    Scheduler<Entity: Sync> + Clone + Default + fmt::Debug + Send + Sync + 'static
{
    /// A one-line description.
    const ABOUT: &'static str;

    /// Returns the guarantee of a child of this weight and longest packet among these siblings, as [`Siblings::bound`]
    /// does, without the error of arithmetic with 40 bits of fraction; `None` if there is no guarantee, or none is
    /// known.
    ///
    /// Classes, `check` and grants count on it: where only the shares are known and not the
    /// numbers ([`Siblings::whatever_weights`]), it must not depend on more.
    fn bound(
        siblings: &Siblings,
        weight: Weight,
        length: Length,
        head: Head,
        transmit: Transmit,
    ) -> Option<Wfi> {
        let _ = (siblings, weight, length, head, transmit);
        None
    }
}

impl<A: CustomAlgorithm> CustomAlgorithm for Plus<A> {
    const ABOUT: &'static str = "SCHED+ over an algorithm of another crate";
}

/// For programs of a laboratory, which register it.
impl CustomAlgorithm for SKps<true> {
    const ABOUT: &'static str = "S-KPS as the QFQ report has it: slots are released as they end";

    fn bound(
        siblings: &Siblings,
        weight: Weight,
        length: Length,
        _: Head,
        transmit: Transmit,
    ) -> Option<Wfi> {
        let terms = siblings.terms(weight, length, transmit)?;
        Some(bounds::s_kps(&terms, siblings.slot()))
    }
}

/// The description of an algorithm and its constructor.
struct Declared {
    row: Row,
    make: fn() -> Box<dyn Statements>,
}

trait Declares {
    const DECLARED: &'static Declared;
}

impl<A: CustomAlgorithm> Declares for A {
    const DECLARED: &'static Declared = &Declared {
        row: Row::of::<A>(A::ABOUT, Promise::Rounded(bound::<A>)),
        make: || {
            Box::new(Stated::<A> {
                algorithm: A::default(),
                states: Vec::new(),
            })
        },
    };
}

fn bound<A: CustomAlgorithm>(child: &Child<'_>) -> Option<Wfi> {
    let (head, transmit) = (child.head, child.transmit);
    A::bound(child.siblings, child.weight, child.length, head, transmit)
}

/// An algorithm of another crate. Those of one name are the same.
///
/// ```
/// use fairlane_core::PacketScheduler;
/// use fairlane_core::sched::{Algorithm, Custom, CustomScheduler, SKps};
///
/// // One that is no built-in, though it lies here.
/// let late = Custom::of::<SKps<true>>("s-kps-late");
/// assert_eq!(Algorithm::custom::<SKps<true>>("s-kps-late"), Algorithm::Custom(late));
/// assert_eq!(Algorithm::Custom(late).name(), "s-kps-late");
///
/// // Chosen at run time: an indirect call for each statement.
/// let scheduler: CustomScheduler = late.scheduler();
/// let link = PacketScheduler::<_, u32>::new(scheduler, Default::default());
/// assert!(link.is_empty());
/// ```
#[derive(Clone, Copy)]
pub struct Custom {
    name: &'static str,
    declared: &'static Declared,
}

impl Custom {
    /// Known by this name.
    pub const fn of<A: CustomAlgorithm>(name: &'static str) -> Custom {
        let declared = <A as Declares>::DECLARED;
        Custom { name, declared }
    }

    /// As command lines, files and tables call it.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns a one-line description.
    pub const fn about(self) -> &'static str {
        self.declared.row.about
    }

    pub(super) const fn row(self) -> &'static Row {
        &self.declared.row
    }

    /// Returns the algorithm, without entities.
    pub fn scheduler(self) -> CustomScheduler {
        CustomScheduler((self.declared.make)())
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Custom {}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An algorithm with the states of its entities, whatever those are.
#[derive(Clone, Debug)]
struct Stated<A: Scheduler> {
    algorithm: A,
    states: Vec<A::Entity>,
}

/// From the statements about entities: a trait that has no type for states, how an algorithm with
/// states takes them, and how the scheduler that has the trait passes them on.
macro_rules! statements {
    ($(
        fn $name:ident(& $($mut:ident)?; $($argument:ident: $type:ty),*) $(-> $returns:ty)?;
    )*) => {
        trait Statements: fmt::Debug + Send + Sync {
            fn boxed_clone(&self) -> Box<dyn Statements>;
            fn add(&mut self, id: EntityId, share: Share);
            fn expect_holds(&mut self);
            fn served(&mut self, work: Charge);
            $(fn $name(& $($mut)? self, $($argument: $type),*) $(-> $returns)?;)*
        }

        impl<A: CustomAlgorithm> Statements for Stated<A> {
            fn boxed_clone(&self) -> Box<dyn Statements> {
                Box::new(self.clone())
            }

            fn add(&mut self, id: EntityId, share: Share) {
                if self.states.len() <= id.index() {
                    self.states.resize(id.index() + 1, A::Entity::default());
                }
                self.algorithm.add(self.states.as_mut_slice(), id, share);
            }

            fn expect_holds(&mut self) {
                self.algorithm.expect_holds();
            }

            fn served(&mut self, work: Charge) {
                self.algorithm.served(work);
            }

            $(fn $name(& $($mut)? self, $($argument: $type),*) $(-> $returns)? {
                self.algorithm.$name(& $($mut)? self.states[..], $($argument),*)
            })*
        }

        /// An algorithm of another crate, chosen at run time. It keeps the states of its entities.
        #[derive(Debug)]
        pub struct CustomScheduler(Box<dyn Statements>);

        impl Scheduler for CustomScheduler {
            type Entity = ();
            const NAME: &'static str = "custom";
            // Algorithms that do not need these calls ignore them.
            const FOLLOWS_PACKETS: bool = true;

            fn add(&mut self, _: &mut [impl Holds<()>], id: EntityId, share: Share) {
                self.0.add(id, share);
            }

            fn expect_holds(&mut self) {
                self.0.expect_holds();
            }

            fn served(&mut self, work: Charge) {
                self.0.served(work);
            }

            $(fn $name(
                & $($mut)? self,
                _: & $($mut)? [impl Holds<()>],
                $($argument: $type),*
            ) $(-> $returns)? {
                self.0.$name($($argument),*)
            })*
        }
    };
}

statements! {
    fn remove(&mut; id: EntityId) -> Removal;
    fn change(&mut; id: EntityId, share: Share);
    fn weight(&; id: EntityId) -> Weight;
    fn is_active(&; id: EntityId) -> bool;
    fn backlogged(&mut; id: EntityId, head: Charge);
    fn arrived(&mut; id: EntityId, length: Charge);
    fn discarded(&mut; id: EntityId, packets: u32);
    fn dropped_first(&mut; id: EntityId);
    fn select(&;) -> MaybeEntity;
    fn hold(&mut; id: EntityId);
    fn reschedule(&mut; id: EntityId, charged: Charge, next: Option<Charge>);
    fn advance(&mut; id: EntityId, charged: Charge, next: Option<Charge>) -> bool;
    fn allowance(&; id: EntityId, next: Charge) -> u32;
    fn used(&mut; id: EntityId, work: Charge);
    fn idle(&mut; id: EntityId);
    fn invariants(&;) -> Result<(), Violation>;
}

impl Clone for CustomScheduler {
    fn clone(&self) -> Self {
        CustomScheduler(self.0.boxed_clone())
    }
}
