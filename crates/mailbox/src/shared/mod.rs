//! A mailbox of packets in memory that is shared with another process, which may stop at any
//! instruction or be hostile.
//!
//! One process holds the [`Sender`], another the [`Receiver`]. Both reach the same words of memory
//! and nothing else of one another. A packet's bytes are copied in by [`Sender::push`] and out by
//! [`Receiver::pop`], so neither ever holds a reference to what the other may change.
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
//! // What the daemon did with it, the client can read.
//! let told: Told = client.told();
//! assert_eq!((told.accepted, told.malformed, told.dropped), (1, 0, 0));
//!
//! // What cannot be is refused: a packet, a ring, memory.
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
//! A ring of `N` slots. The first word of a slot is its *header*: a generation in the upper half,
//! a length in bytes in the lower. The words behind it are the packet's. The place of a push or a
//! pop is a count that starts at 0; place `p` is in slot `p mod N` and has the generation `p / N`,
//! cut to 32 bits. Each side keeps its own place to itself, as in FastForward: no index lies in
//! the shared memory.
//!
//! | header at place `p` | means |
//! | --- | --- |
//! | generation of `p`, length 0 | free, or not written yet |
//! | generation of `p`, length 1 to the longest | a packet |
//! | generation of `p`, longer | *malformed*: the slot is passed over |
//! | any other generation | *out of step*: the receiver reads nothing more, ever |
//!
//! * **Push** goes ahead if the header says free (`Acquire`), writes the packet's words, and writes
//!   the header last (`Release`).
//! * **Pop** reads the header once (`Acquire`), copies as many bytes as that one reading said, and
//!   frees the slot for the next lap: the next generation and length 0 (`Release`).
//!
//! Memory that is all zeros is an empty ring.
//!
//! # Why it is sound
//!
//! **A packet is whole when it is seen.** Its header is a `Release` store behind the stores of its
//! words, and the receiver reads the words behind its `Acquire` load of that header.
//!
//! **A packet is not overwritten while it is copied.** The freeing of the slot is a `Release` store
//! behind the loads of the copy, and the sender writes to the slot behind its `Acquire` load of
//! what freed it. (loom never delays a load behind a store that follows it, so its models can tell
//! that the slot is freed after the copy, but not that `Release` is needed for it.)
//!
//! **An old header is no new one.** A header tells the lap, and each side knows its own.
//!
//! # What the other side can do
//!
//! **Stop.** A sender that is killed in the middle of a push has not written the header, so the
//! half of a packet is never seen, and what was pushed before is whole. A receiver that stops makes
//! the ring full, which a push says at once. Nobody waits for anybody.
//!
//! **Write anything anywhere, at any time.** Every access is an atomic one, so a race has a result
//! and not undefined behaviour. A header is judged by the one value that was read; a length is
//! checked before it is used; a word read is never an index. So a pop copies at most the longest
//! packet, whatever it finds. Who changes a packet while it is being copied garbles his own packet.
//!
//! A malformed length leaves both sides at the same place, so the ring goes on behind it. A wrong
//! generation means that the sides disagree about where they are, and no later header could be
//! believed: the receiver is done with that ring. A sender that keeps to the protocol causes
//! neither.
//!
//! # Sleep
//!
//! A receiver that is going to look away says so with [`doze`](Receiver::doze) and looks at
//! [`is_empty`](Receiver::is_empty) once more. A sender asks [`must_ring`](Sender::must_ring) after
//! its pushes and, if so, wakes the receiver by other means. Each side writes, has a sequentially
//! consistent fence, and reads what the other writes: at least one of them sees the other. A flag
//! that a hostile sender changes harms that sender alone.

mod layout;
mod receiver;
mod sender;

pub use layout::{Geometry, GeometryError, TooSmall};
pub use receiver::{Popped, Receiver};
pub use sender::{PushError, Sender, Told};
