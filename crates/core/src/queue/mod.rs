//! What a flow holds: packets in one slab, threaded into lists.
//!
//! A packet is a length, frozen when it is accepted, and the user's payload or
//! handle. It costs eight bytes beside the payload (sixteen where the payload
//! leaves no niche for "free").

mod list;
mod slab;

pub use list::PacketList;
pub use slab::PacketSlab;
pub(crate) use slab::Stored;
