//! Clients that are other processes.
//!
//! A daemon [listens](Attach::listen) on a Unix socket; another process [`connect`]s, and gets a
//! mailbox in shared memory with a flow of its own behind it. From then on a push touches that
//! memory alone: no system call, unless the arbiter looks away and has to be woken.
//!
//! ```text
//!  process A: ProcessClient --shared memory--\
//!  process B: ProcessClient --shared memory---> Arbiter (as one Source each)
//!        \___ socket: hello, doorbell, death __ a thread of the daemon
//! ```
//!
//! # Who may attach
//!
//! The kernel says which user and group a process connected as. The first [`Rule`](Mapping::rule)
//! that matches gives its [`Class`]: the weight and the limits of its flow, and how many such
//! clients there may be. Who matches no rule is told so in a sentence, and that is all.
//!
//! # What a client can do to the others
//!
//! A client may crash at any instruction or be hostile; what it can reach is its own mailbox.
//!
//! | what it does | what happens |
//! | --- | --- |
//! | dies, in the middle of a push too | the whole packets in its mailbox are still sent, then its flow goes |
//! | stops | it sends nothing; that is all |
//! | writes a length that cannot be into a slot | that slot is passed over; at the [16th](MOST_MALFORMED) it is cut off |
//! | breaks the mailbox in any other way | it is cut off: what was whole before is sent, nothing more is read |
//! | goes on writing after it has left | at most as many packets as the mailbox has slots are taken |
//! | says nothing after it connected | its connection is closed after [`AttachConfig::hello_timeout`] |
//! | rings without need | [256](RINGS_PER_PERIOD) times in [10 ms](PERIOD) it is listened to, then not until these are over |
//! | sends anything else | it is cut off |
//! | connects many times | up to its class's number; refused connections wait for their hello in [64](MOST_STRANGERS) places, further ones are closed at once |
//!
//! A pop costs the arbiter's thread one copy of the packet and its allocation.
//!
//! The doorbell is a message on the socket and not an `eventfd`: the flags of a file are shared
//! with every process that has it, and a client that made it blocking could make the daemon wait.

mod client;
mod daemon;
mod desk;
mod mapping;
mod message;
mod server;
mod socket;
mod source;

pub use client::{ConnectError, ProcessClient, PushRefused, connect};
pub use daemon::{Attach, AttachConfig, AttachStats, Attached, ListenError};
pub use fairlane_io::PeerCredentials;
pub use fairlane_mailbox::shared::Told;
pub use mapping::{Class, Mapping, MappingError, Who, WhoError};
pub use server::{MOST_STRANGERS, PERIOD, RINGS_PER_PERIOD};
pub use source::MOST_MALFORMED;
