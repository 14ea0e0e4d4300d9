//! From a packet's bytes to the class it belongs to.
//!
//! Six parts, each of use alone:
//!
//! * [`parse`] reads what rules and digests ask about from a frame: [`Headers`].
//! * [`Classifier`] finds the first [`Rule`] that a packet matches, in a time that hardly
//!   grows with the number of rules, and says which rules can never match.
//! * [`Per::digest`] names the flow that a packet belongs to within a class that holds
//!   one flow per address, subnet, 5-tuple, ...
//! * [`LinkClassifier`] is the first three for the classes of one link: from a packet's bytes to
//!   its class and flow.
//! * [`mark_ce`] sets "congestion experienced" in a frame.
//! * [`segment`] reads what a TCP segment tells whoever it passes: its timestamps.
//!
//! ```
//! use fairlane_classify::{Classifier, Layer, Match, Origin, Rule, parse};
//!
//! let voice = Match { dscp: Some("ef".parse()?), ..Match::default() };
//! let house = Match { source: Some("192.168.0.0/16".parse()?), ..Match::default() };
//! let classifier = Classifier::new([
//!     Rule { priority: 10, matches: voice, target: "voice" },
//!     Rule { priority: 0, matches: house, target: "house" },
//! ]);
//!
//! // Version 4, DSCP 46, 20 bytes, from 192.168.0.1 to 10.0.0.1: UDP without its header.
//! let mut packet = [0; 20];
//! (packet[0], packet[1], packet[3], packet[9]) = (0x45, 46 << 2, 20, 17);
//! packet[12..].copy_from_slice(&[192, 168, 0, 1, 10, 0, 0, 1]);
//! let truncated = parse(&packet, Layer::Ip).unwrap_err();
//! assert_eq!(truncated.to_string(), "a UDP header ends before its 8 bytes");
//!
//! packet[9] = 1;
//! let headers = parse(&packet, Layer::Ip)?;
//! let hit = classifier.classify(&headers, &Origin::default()).unwrap();
//! assert_eq!((hit.rule, hit.target), (0, "voice"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here allocates, waits or fails with a packet in hand: what cannot be read is
//! [`Malformed`], what matches no rule is `None`, and both are the caller's default
//! class. The crate is `no_std` with `alloc` and forbids `unsafe`.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
#![warn(unreachable_pub)]

extern crate alloc;

mod classifier;
mod cover;
mod digest;
mod ecn;
mod field;
mod flow_key;
mod headers;
mod link;
mod parse;
mod pattern;
mod rule;
mod space;
mod tcp;
mod words;

pub use classifier::{Classifier, Effort, Hit, Unreachable};
pub use digest::{DigestKey, ParsePerError, Per};
pub use ecn::mark_ce;
pub use field::{
    Dscp, ParseDscpError, ParsePortsError, ParsePrefixError, ParseProtocolError, PortRange, Prefix,
    Protocol, VlanId,
};
pub use flow_key::FlowKey;
pub use headers::{
    Family, Fragment, Header, Headers, Layer, Malformed, Origin, Owner, Ports, Reason,
};
pub use link::LinkClassifier;
pub use parse::{parse, parse_partly};
pub use rule::{Match, Rule};
pub use tcp::{Segment, segment};
pub use words::{Asked, WORDS, words};
