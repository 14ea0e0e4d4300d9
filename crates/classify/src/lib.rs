//! From the headers of a packet to the class it belongs to.
//!
//! Three parts, each of use alone; `fairlane_wire` reads the headers:
//!
//! * [`Classifier`] finds the first [`Rule`] that a packet matches, in a time that hardly
//!   grows with the number of rules, and says which rules can never match.
//! * [`Per::digest`] names the flow that a packet belongs to within a class that holds
//!   one flow per address, subnet, 5-tuple, ...
//! * [`LinkClassifier`] is both for the classes of one link: from a packet's bytes to its class and flow.
//!
//! ```
//! use fairlane_classify::{Classifier, Match, Origin, Rule};
//! use fairlane_wire::{Build, Layer, parse};
//!
//! let voice = Match { dscp: Some("ef".parse()?), ..Match::default() };
//! let house = Match { source: Some("192.168.0.0/16".parse()?), ..Match::default() };
//! let classifier = Classifier::new([
//!     Rule { priority: 10, matches: voice, target: "voice" },
//!     Rule { priority: 0, matches: house, target: "house" },
//! ]);
//!
//! let packet = Build::packet().ipv4([192, 168, 0, 1], [10, 0, 0, 1]).traffic_class(46 << 2).udp(1, 2).payload(&[]);
//! let headers = parse(&packet, Layer::Ip)?;
//! let hit = classifier.classify(&headers, &Origin::default()).unwrap();
//! assert_eq!((hit.rule, hit.target), (0, "voice"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The elements of rules and flows:
//!
//! ```
//! use fairlane_classify::{DigestKey, FlowKey, Origin, Owner, ParsePerError, ParsePortsError, ParsePrefixError, Per, PortRange, Prefix};
//! use fairlane_wire::{Family, Fragment, Headers, Ports};
//!
//! let house: Prefix = "192.168.0.0/16".parse()?;
//! assert!(house.contains(Family::V4, 0xc0a8_0001));
//! let slip = "192.168.0.1/16".parse::<Prefix>();
//! assert!(matches!(slip, Err(ParsePrefixError::HostBits { .. })));
//! let web: PortRange = "80-443".parse()?;
//! assert!(web.contains(443));
//! assert!(matches!("443-80".parse::<PortRange>(), Err(ParsePortsError::Backwards { .. })));
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
//! A link's filters and their effect:
//!
//! ```
//! use fairlane_classify::{Asked, Classifier, DigestKey, Effort, Found, Hit, LinkClassifier, Match, Origin, Per, Rule, Unreachable, WORDS, words};
//! use fairlane_wire::{Build, Family, Layer, Protocol, parse};
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
//! let packet = Build::packet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[]);
//! let headers = parse(&packet, Layer::Ip)?;
//! let origin = Origin::default();
//! assert_eq!(classifier.classify(&headers, &origin), Some(Hit { rule: 0, target: 0 }));
//!
//! // The same for classifying packets elsewhere.
//! let asked: Vec<(Asked, u32)> = classifier.asked(Family::V4, &origin);
//! let (words, (first, target)) = (words(&headers), asked[0]);
//! assert!((0..WORDS).all(|at| words[at] & first.mask[at] == first.value[at]) && target == 0);
//!
//! // By the classes' numbers in the queues; a packet that cannot be read is of the default class.
//! let packet = &packet[..27];
//! let classes = [(ClassId::new(7), None), (ClassId::new(8), Some(Per::SourceIp))];
//! let mut link = LinkClassifier::new(rules, classes, 1, DigestKey([1, 2]));
//! let now = Nanos::ZERO;
//! assert_eq!(link.classify(packet, Layer::Ip, &origin, now).class, ClassId::new(8));
//! assert_eq!(link.malformed(), 1);
//! // By a thread that shares the filters, and counts nothing.
//! let (to, found) = link.find(packet, Layer::Ip, &origin);
//! assert_eq!((to.class, found), (ClassId::new(8), Found::UNREADABLE));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here allocates, waits or fails while it handles a packet: a packet that is unreadable or matches no rule
//! belongs to the default class. The crate is `no_std` with `alloc` and forbids `unsafe`.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod classifier;
mod cover;
mod digest;
mod field;
mod flow_key;
mod fragments;
mod link;
mod origin;
mod pattern;
mod rule;
mod space;
mod words;

pub use classifier::{Classifier, Effort, Hit, Unreachable};
pub use digest::{DigestKey, ParsePerError, Per};
pub use field::{ParsePortsError, ParsePrefixError, PortRange, Prefix};
pub use flow_key::FlowKey;
pub use link::{Found, LinkClassifier, Scratch};
pub use origin::{Origin, Owner};
pub use rule::{Match, Rule};
pub use words::{Asked, WORDS, words};
