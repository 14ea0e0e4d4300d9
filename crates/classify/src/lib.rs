//! From a packet's bytes to the class it belongs to.
//!
//! Seven parts, each of use alone:
//!
//! * [`parse`] reads what rules and digests ask about from a frame: [`Headers`].
//! * [`Classifier`] finds the first [`Rule`] that a packet matches, in a time that hardly
//!   grows with the number of rules, and says which rules can never match.
//! * [`Per::digest`] names the flow that a packet belongs to within a class that holds
//!   one flow per address, subnet, 5-tuple, ...
//! * [`LinkClassifier`] is the first three for the classes of one link: from a packet's bytes to
//!   its class and flow.
//! * [`mark_ce`] sets "congestion experienced" in a frame.
//! * [`segment`] reads the timestamps of a passing TCP segment.
//! * [`offload`] cuts a long frame of one connection as segmentation offload does.
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
//! The elements of rules and flows:
//!
//! ```
//! use fairlane_classify::{
//!     DigestKey, Dscp, Family, FlowKey, Fragment, Headers, Origin, Owner, ParseDscpError,
//!     ParsePerError, ParsePortsError, ParsePrefixError, ParseProtocolError, Per, PortRange, Ports,
//!     Prefix, Protocol, VlanId,
//! };
//!
//! let house: Prefix = "192.168.0.0/16".parse()?;
//! assert!(house.contains(Family::V4, 0xc0a8_0001));
//! let slip = "192.168.0.1/16".parse::<Prefix>();
//! assert!(matches!(slip, Err(ParsePrefixError::HostBits { .. })));
//! let web: PortRange = "80-443".parse()?;
//! assert!(web.contains(443));
//! assert!(matches!("443-80".parse::<PortRange>(), Err(ParsePortsError::Backwards { .. })));
//! assert_eq!("ef".parse::<Dscp>()?.get(), 46);
//! assert_eq!("loud".parse::<Dscp>(), Err(ParseDscpError));
//! assert_eq!("tcp".parse::<Protocol>()?, Protocol::TCP);
//! assert_eq!("pigeon".parse::<Protocol>(), Err(ParseProtocolError));
//! assert!(VlanId::new(4096).is_none());
//!
//! // All packets of a host are one flow, whatever it speaks of.
//! let per: Per = "source-ip".parse()?;
//! assert_eq!("weather".parse::<Per>(), Err(ParsePerError));
//! let mut headers = Headers {
//!     family: Family::V4,
//!     source: 0xc0a8_0001,
//!     ports: Some(Ports { source: 40_000, destination: 443 }),
//!     ..Headers::default()
//! };
//! let process = Owner { uid: 1000, gid: 1000, pid: 77 };
//! let origin = Origin { owner: Some(process), ..Origin::default() };
//! let key = DigestKey([1, 2]);
//! let digest = per.digest(&headers, &origin, &key);
//! (headers.ports, headers.fragment) = (None, Fragment::Later);
//! assert_eq!(per.digest(&headers, &origin, &key), digest);
//! assert_eq!(per.key(&headers, &origin), FlowKey::Address("192.168.0.1".parse()?));
//! assert_eq!(Per::Owner.key(&headers, &origin), FlowKey::Owner(Some(process)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A link's filters, their effect, and changes to packets:
//!
//! ```
//! use fairlane_classify::{
//!     Asked, Classifier, DigestKey, Effort, Family, Found, Header, Hit, Layer, LinkClassifier, Malformed,
//!     Match, Origin, Per, Protocol, Reason, Rule, Segment, Unreachable, WORDS, mark_ce,
//!     parse_partly, segment, words,
//! };
//! use fairlane_core::Nanos;
//! use fairlane_core::tree::ClassId;
//!
//! let udp = Match { protocol: Some(Protocol::UDP), ..Match::default() };
//! let rules = [
//!     Rule { priority: 1, matches: udp, target: 0 },
//!     Rule { priority: 0, matches: Match { dscp: Some("ef".parse()?), ..udp }, target: 1 },
//! ];
//! let classifier = Classifier::new(rules);
//! assert_eq!(classifier.unreachable(), [Unreachable { rule: 1, by: vec![0] }]);
//! let Effort { comparisons, .. } = classifier.effort();
//! assert!(comparisons >= 1);
//!
//! // IPv4 and UDP, ECN-capable, with a UDP header that is cut off.
//! let mut packet = [0; 20];
//! (packet[0], packet[1], packet[3], packet[9]) = (0x45, 0b10, 20, 17);
//! let (headers, malformed) = parse_partly(&packet, Layer::Ip);
//! let Malformed { header, reason } = malformed.ok_or("it is whole")?;
//! assert_eq!((header, reason), (Header::Udp, Reason::Short(8)));
//! let origin = Origin::default();
//! assert_eq!(classifier.classify(&headers, &origin), Some(Hit { rule: 0, target: 0 }));
//!
//! // The same for classifying packets elsewhere.
//! let asked: Vec<(Asked, u32)> = classifier.asked(Family::V4, &origin);
//! let (words, (first, target)) = (words(&headers), asked[0]);
//! assert!((0..WORDS).all(|at| words[at] & first.mask[at] == first.value[at]) && target == 0);
//!
//! // By the classes' numbers in the queues; what cannot be read is of the default class.
//! let classes = [(ClassId::new(7), None), (ClassId::new(8), Some(Per::SourceIp))];
//! let mut link = LinkClassifier::new(rules, classes, 1, DigestKey([1, 2]));
//! let now = Nanos::ZERO;
//! assert_eq!(link.classify(&packet, Layer::Ip, &origin, now).class, ClassId::new(8));
//! assert_eq!(link.malformed(), 1);
//! // By a thread that shares the filters, and counts nothing.
//! let (to, found) = link.find(&packet, Layer::Ip, &origin);
//! assert_eq!((to.class, found), (ClassId::new(8), Found::UNREADABLE));
//!
//! assert!(mark_ce(&mut packet, Layer::Ip) && packet[1] == 0b11);
//! let of_tcp: Option<Segment> = segment(&packet, Layer::Ip);
//! assert!(of_tcp.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here allocates, waits or fails while it handles a packet: an unreadable packet is
//! [`Malformed`], one that matches no rule is `None`, and both belong to the caller's default class. The
//! crate is `no_std` with `alloc` and forbids `unsafe`.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod classifier;
mod cover;
mod digest;
mod ecn;
mod field;
mod flow_key;
mod fragments;
mod headers;
mod link;
pub mod offload;
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
pub use link::{Found, LinkClassifier, Scratch};
pub use parse::{network, parse, parse_partly};
pub use rule::{Match, Rule};
pub use tcp::{Segment, segment};
pub use words::{Asked, WORDS, words};
