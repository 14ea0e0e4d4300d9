//! Clients that are other processes.
//!
//! A daemon [listens](Attach::listen) on a Unix socket; another process [`connect`]s, and gets a mailbox in shared
//! memory with a flow of its own. From then on a push accesses that memory alone: no system call, unless the client was
//! silent for so long that it must ring the bell.
//!
//! ```text
//!  process A: ProcessClient --shared memory--\
//!  process B: ProcessClient --shared memory---> Arbiter (as one Source each)
//!        \____ socket, bell __ a thread of the daemon
//! ```
//!
//! # Access control
//!
//! The kernel reports the user and group of a connected process. The first matching [`Rule`](Mapping::rule) gives its
//! [`Class`]: the weight and the limits of its flow, and the number of such clients. A process that matches no rule is
//! rejected with a message.
//!
//! # Isolation of clients
//!
//! A client may crash at any instruction or be hostile; it has access only to its own mailbox.
//!
//! | client | consequence |
//! | --- | --- |
//! | dies, in the middle of a push too | the complete packets in its mailbox are still transmitted, then its flow is removed |
//! | stops | it sends nothing; no other effect |
//! | writes an invalid length into a slot | that slot is skipped; at the [16th](MOST_MALFORMED) it is cut off |
//! | breaks the mailbox in any other way | it is cut off: earlier complete packets are transmitted, nothing more is read |
//! | continues to write after it has left | at most as many packets as the mailbox has slots are taken |
//! | sends nothing after it connected | its connection is closed after [`AttachConfig::hello_timeout`] |
//! | rings needlessly | [256](RINGS_PER_PERIOD) times in [10 ms](PERIOD) its rings are handled, further ones only after that period |
//! | sends anything after its hello | it is cut off |
//! | connects many times, says hello or not | the [places of a user](AttachConfig::most_of_a_user), and those of its class, are its limit |
//! | attaches and detaches repeatedly | the rate is limited ([`AttachConfig::attachments_per_second`]); a place is free again when its last client's packets are sent and the daemon has the mailbox's pages back |
//! | keeps the handle or the mapping of a mailbox that it left | it has no pages; writes allocate new ones, charged to the client |
//! | connects where it gets no place | [64](MOST_PENDING_REFUSALS) such connections, [8](MOST_PENDING_REFUSALS_OF_A_USER) of a user, may stay until they say hello and are refused; further ones are refused at once |
//!
//! All of this costs other clients only time of the listening thread: one message and one new connection in each of its
//! rounds.
//!
//! # Example
//!
//! ```
//! use fairlane_core::{FlowConfig, Length, Nanos, Weight, sched::Qfq};
//! use fairlane_io::{Backend, MemoryBackend, memory};
//! use fairlane_runtime::attach::{
//!     Attach, AttachConfig, AttachStats, Attached, Class, ConnectError, ListenError, Mapping,
//!     ProcessClient, PushRefused, Refusals, Who, connect,
//! };
//! use fairlane_runtime::{Arbiter, ArbiterConfig, Link};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("link.sock");
//!
//! // The daemon: every process may attach, eight at a time.
//! let (near, mut far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(16);
//! let config = ArbiterConfig::new(Link::new("10mbit".parse()?));
//! let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
//! let flow = FlowConfig::new(Weight::new(2).unwrap(), Length::new(1500).unwrap());
//! let guests = Class { name: "guests".into(), flow, most_clients: 8 };
//! let mapping = Mapping::new().class(guests)?.rule(Who::Any, "guests")?;
//! let config = AttachConfig::new(mapping);
//! let made = |bytes: Vec<u8>, _process: &Attached| bytes;
//! let attach = Attach::listen(&path, config.clone(), arbiter.registrar(), made)?;
//! // No other daemon can take the path meanwhile.
//! let taken = Attach::listen(&path, config, arbiter.registrar(), made);
//! assert!(matches!(taken, Err(ListenError::InUse(_))));
//!
//! // Another process.
//! let mut client: ProcessClient = connect(&path)?;
//! assert_eq!(client.class(), "guests");
//! client.push(b"over the link")?;
//! assert!(matches!(client.push(&[0; 2000]), Err(PushRefused::Length { given: 2000, .. })));
//! let nobody = connect("/nonexistent/link.sock");
//! assert!(matches!(nobody, Err(ConnectError::Unreachable { .. })));
//!
//! // The daemon again.
//! arbiter.step(Nanos::ZERO)?;
//! let mut sent = Vec::new();
//! far.receive(&mut sent, 16)?;
//! assert_eq!(sent, [b"over the link"]);
//! let AttachStats { attached, refused, .. } = attach.stats();
//! println!("{attached} attached, {refused} refused");
//! // For a log: one line of each user that was refused, however often.
//! let refusals: Option<Refusals> = attach.take_refusals();
//! println!("{refusals:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Notes
//!
//! A pop costs the arbiter's thread one copy of the packet and its allocation; releasing a client, one system call. The
//! listening thread unmaps its mailbox.
//!
//! [`AttachConfig::most_memory`] limits the memory of all mailboxes. A client that left occupies only the kernel's
//! state of an empty open file, about a kilobyte, until it closes its handles. The daemon cannot see whether it has: a
//! user's total is limited by its open files, and grows no faster than it may attach.
//!
//! The bell is an `eventfd` that the daemon never reads: processes that share a file share its flags, and a client that
//! made it blocking could block the daemon.

mod admission;
mod client;
mod daemon;
mod mapping;
mod message;
mod server;
mod socket;
mod source;

pub use admission::{MOST_PENDING_REFUSALS, MOST_PENDING_REFUSALS_OF_A_USER};
pub use client::{ConnectError, ProcessClient, PushRefused, connect};
pub use daemon::{Attach, AttachConfig, AttachStats, Attached, ListenError, Refusals};
pub use fairlane_io::PeerCredentials;
pub use fairlane_mailbox::shared::Told;
pub use mapping::{Class, Mapping, MappingError, Who, WhoError};
pub use server::{PERIOD, RINGS_PER_PERIOD};
pub use source::MOST_MALFORMED;
