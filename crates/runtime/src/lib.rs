//! PSPAT in user space: clients, their mailboxes, and one arbiter.
//!
//! L. Rizzo, P. Valente, G. Lettieri, V. Maffione, *PSPAT: Software packet
//! scheduling at hardware speed*, 2018.
//!
//! A [`Client`] pushes packets into a mailbox of its own and never waits: not for another client, not for the arbiter.
//! The [`Arbiter`] alone runs the scheduling algorithm. Its [`step`](Arbiter::step) drains the mailboxes into the
//! flows' queues, takes packets out in the algorithm's order at the pace of the link, and releases them.
//!
//! ```text
//!                              |------------- Arbiter -------------|
//!                                       |--------- Shaper ---------|
//!  Client        --mailbox--\                                       / Straight: a Backend
//!  AsyncClient   --mailbox---> drain -> Queue ---------> Pacer --> <  Dispatchers: threads
//!  process       --shared---/           (which next?)    (when?)    \ ClientsDispatch: counts
//! ```
//!
//! A [`Shaper`] is any [`Queue`] with the pace of a link and a release; an arbiter is one with mailboxes in front, and
//! a [`Bridge`](bridge::Bridge) joins two devices, with at most one for each direction.
//!
//! | client | registered by | if its mailbox is full |
//! | --- | --- | --- |
//! | [`Client`], of a thread | [`Registrar::register`] | the packet is returned |
//! | [`AsyncClient`], of a task | [`Registrar::register_async`] | the task waits |
//! | [`DispatchingClient`], keeps its packets and transmits them | [`Registrar::register_dispatching`] | the packet is returned |
//! | another process | `attach` (Linux) | the packet is not taken |
//!
//! `step(now)` reads no clock and starts no thread, so a test drives it on a clock of its own; [`drive`] is the loop
//! around it for a thread of its own, and [`spawn`] starts that thread with all its parts.
//!
//! ```
//! use fairlane_core::Length;
//! use fairlane_io::{MemoryBackend, memory};
//! use fairlane_runtime::{
//!     ArbiterStats, AsyncClient, ChangeLinkError, Client, ClientId, ClientStats, Flow, FlowError, Link,
//!     LinkHandle, LinkStats, Pushed, Refused, RegisterError, Registrar, SpawnConfig, Weighted, spawn,
//! };
//!
//! let (near, _far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(16);
//! let mut config = SpawnConfig::new(Link::new("10mbit".parse()?));
//! config.name = "uplink".to_owned();
//! let (link, handle): (Registrar<Vec<u8>>, LinkHandle) = spawn(config, near)?;
//!
//! // A thread's client and a task's, alike.
//! let four: Weighted = Flow::weight(4);
//! let mut client: Client<Vec<u8>> = link.client(four.max_len(1000))?;
//! let task: AsyncClient<Vec<u8>> = link.async_client(four.max_len(1000))?;
//! assert_ne!(client.id(), task.id());
//! let weightless = link.client(Flow::weight(0).max_len(1000));
//! assert!(matches!(weightless, Err(RegisterError::Flow(FlowError::Weight(_)))));
//!
//! let told: Pushed = client.push(Length::try_from(1000u32)?, vec![0; 1000])?;
//! assert_eq!(told.dropped_before, 0);
//! // A packet that is too long is its client's again.
//! let Refused { packet, reason } = client.push(Length::MAX, vec![7]).unwrap_err();
//! println!("{packet:?}: {reason}");
//!
//! // Asked and changed from any thread.
//! let LinkStats { total, arbiter, .. } = handle.stats()?;
//! let ArbiterStats { looks, .. } = arbiter;
//! println!("{total:?}, at most {:?} from look to look", looks.longest());
//! let clients: Vec<(ClientId, ClientStats)> = handle.client_stats()?;
//! assert!(clients.len() <= 2);
//! let refused = handle.change(client.id(), Flow::weight(0).max_len(1000));
//! assert!(matches!(refused, Err(ChangeLinkError::Flow(_))));
//! handle.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Feedback to clients
//!
//! | event | feedback |
//! | --- | --- |
//! | its mailbox is full | [`push`](Client::push) returns the packet at once |
//! | the packet is too long for its flow | the same |
//! | a packet was dropped inside (its flow's queue is full) | the next `push` returns their number; a task calls `dropped` |
//! | the arbiter is gone | the same, once the mailbox is full |
//!
//! # Units
//!
//! A client passes the length of its packet; the link adds its framing overhead, and all later lengths are those on the
//! link. A flow's `max_length` is the client's, without overhead.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod arbiter;
mod async_client;
#[cfg(target_os = "linux")]
pub mod attach;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod bridge;
mod classified;
mod client;
mod clients;
mod clock;
mod config;
mod delay;
mod driver;
mod inbox;
mod link;
mod pace;
mod queue;
mod registrar;
mod release;
mod shaper;
mod spawned;

pub use arbiter::{Arbiter, ArbiterStats, ClientStats};
pub use async_client::AsyncClient;
pub use classified::{Classified, Classify, FromPort};
pub use client::{Client, ClientId, Pushed, Refusal, Refused};
pub use clock::Clock;
pub use config::ArbiterConfig;
pub use delay::Spans;
#[cfg(target_os = "linux")]
pub use driver::pin_to_core;
pub use driver::{Idling, Next, Step, Steps, drive};
pub use fairlane_mailbox::bell::Woken;
pub use inbox::Source;
pub use link::{Link, Pacer};
#[doc(hidden)]
pub use pace::{Opening, Pace};
pub use queue::Queue;
pub use registrar::{RegisterError, Registrar, Remote};
pub use release::{
    Cleared, ClientsDispatch, Dispatcher, Dispatchers, DispatchingClient, Outlet, Release, Straight,
};
pub use shaper::Shaper;
pub use spawned::{
    ChangeLinkError, Ended, Ending, EndingFuture, Flow, FlowError, LinkHandle, LinkStats,
    SpawnConfig, Weighted, spawn, spawn_over,
};
