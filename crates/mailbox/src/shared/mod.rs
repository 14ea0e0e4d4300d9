//! A mailbox of packets in memory shared with another process, which may stop at any instruction or be hostile.
//!
//! One process has the [`Sender`], another the [`Receiver`]. They share only these words of memory. [`Sender::push`]
//! copies a packet's bytes in and [`Receiver::pop`] copies them out, so neither ever has a reference to memory that the
//! other may change.
//!
//! ```
//! use std::sync::atomic::AtomicU64;
//!
//! use fairlane_mailbox::shared::{
//!     Geometry, GeometryError, Popped, PushError, Receiver, Sender, Told, TooSmall,
//! };
//!
//! let geometry = Geometry::new(4, 1500)?;
//! let memory: Vec<AtomicU64> = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
//! let mut client = Sender::new(&memory, geometry)?;
//! let mut daemon = Receiver::new(&memory, geometry)?;
//!
//! client.push(b"a packet")?;
//! let mut packet = Vec::new();
//! assert_eq!(daemon.pop(&mut packet), Popped::Packet);
//! assert_eq!(packet, b"a packet");
//! assert_eq!(daemon.pop(&mut packet), Popped::Empty);
//!
//! // The client can read the daemon's counters.
//! let told: Told = client.told();
//! assert_eq!((told.accepted, told.malformed, told.dropped), (1, 0, 0));
//!
//! // Invalid packets, geometries and memory are rejected.
//! let refused = client.push(&[0; 2000]).unwrap_err();
//! assert_eq!(refused, PushError::Length { given: 2000, longest: 1500 });
//! assert_eq!(Geometry::new(3, 1500), Err(GeometryError::Slots(3)));
//! let TooSmall { given, needed } = Sender::new(&memory[1..], geometry).unwrap_err();
//! assert_eq!(given + 8, needed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The protocol
//!
//! A ring of `N` slots. The first word of a slot is its *header*: a generation in the upper half, a length in bytes in
//! the lower. The words behind it are the packet's. The place of a push or a pop is a count that starts at 0; place `p`
//! is in slot `p mod N` and has the generation `p / N`, truncated to 32 bits. Each side keeps its own place private, as
//! in FastForward: no index is in the shared memory.
//!
//! | header at place `p` | means |
//! | --- | --- |
//! | generation of `p`, length 0 | free, or not written yet |
//! | generation of `p`, length 1 to the longest | a packet |
//! | generation of `p`, longer | *malformed*: the slot is skipped |
//! | any other generation | *out of step*: the receiver never reads the ring again |
//!
//! * **Push** succeeds if the header says free (`Acquire`), writes the packet's words, and writes the header last
//!   (`Release`).
//! * **Pop** reads the header once (`Acquire`), copies as many bytes as that value says, and frees the slot for the
//!   next lap: the next generation and length 0 (`Release`).
//!
//! Zeroed memory is an empty ring.
//!
//! # Why it is sound
//!
//! **A packet is complete when it is visible.** Its header is a `Release` store after the stores of its words, and the
//! receiver reads the words after its `Acquire` load of that header.
//!
//! **A packet is not overwritten while it is copied.** The slot is freed by a `Release` store after the loads of the
//! copy, and the sender writes to the slot after its `Acquire` load of that store. (loom never delays a load past a
//! store that follows it, so its models check that the slot is freed after the copy, but not that `Release` is needed.)
//!
//! **An old header is not mistaken for a new one.** A header contains the lap, and each side knows its own.
//!
//! # A faulty or hostile peer
//!
//! **Stop.** A sender that is killed in the middle of a push has not written the header, so the partial packet is never
//! visible, and earlier packets are complete. If a receiver stops, the ring fills up, and a push reports that at once.
//! Neither side waits for the other.
//!
//! **Write anything anywhere, at any time.** Every access is atomic, so a race has a result and not undefined
//! behaviour. A header is read once and judged by that value; a length is checked before it is used; a word read is
//! never an index. So a pop copies at most the maximum length, for any content. A sender that changes a packet while it
//! is being copied garbles its own packet.
//!
//! A malformed length leaves both sides at the same place, so the ring continues after it. A wrong generation means
//! that the sides disagree about the place, and no later header could be trusted: the receiver stops reading that ring.
//! A sender that keeps to the protocol causes neither.
//!
//! # Sleep
//!
//! Before a receiver stops polling, it calls [`doze`](Receiver::doze) and then [`is_empty`](Receiver::is_empty) once
//! more. A sender calls [`must_ring`](Sender::must_ring) after its pushes and, if it returns true, wakes the receiver
//! by other means. Each side writes, executes a sequentially consistent fence, and reads the other's word: at least one
//! of them sees the other. A flag that a hostile sender changes harms only that sender.

mod layout;
mod receiver;
mod sender;

pub use layout::{Geometry, GeometryError, TooSmall};
pub use receiver::{Popped, Receiver};
pub use sender::{PushError, Sender, Told};
