//! The queues of flows: packets in one slab, threaded into lists.
//!
//! A packet is a length, frozen when it is accepted, and the user's payload or handle. It costs eight bytes in addition
//! to the payload (sixteen where the payload leaves no niche for "free").
//!
//! ```
//! use fairlane_core::Length;
//! use fairlane_core::queue::{PacketList, PacketSlab};
//!
//! let mut slab = PacketSlab::new(64);
//! let (mut one, mut other) = (PacketList::default(), PacketList::default());
//! let len = Length::try_from(1000u32)?;
//! one.push_back(&mut slab, len, 'a').unwrap();
//! other.push_back(&mut slab, len, 'b').unwrap();
//! assert_eq!(one.pop_front(&mut slab), Some((len, 'a')));
//! assert_eq!((slab.len(), one.is_empty(), other.is_empty()), (1, true, false));
//! # Ok::<(), fairlane_core::units::LengthError>(())
//! ```

mod list;
mod record;
mod slab;

pub use list::PacketList;
pub(crate) use record::Record;
pub use slab::PacketSlab;
pub(crate) use slab::Stored;
