//! From a TOML file to a validated site.
//!
//! [`Site::parse`] reads a file into links, each with its class tree and its filters, or returns the errors as
//! `file:line:column: sentence`, with the nearest known name.
//!
//! ```
//! use fairlane_config::{
//!     Backend, Class, ClassKind, Diagnostic, Each, Elements, Flows, Guarantee, Interfaces, Link,
//!     LinkAlgorithm, LongestBy, Near, NoGuarantee, Queue, Role, Site, SiteError, Unmatched,
//!     Workers,
//! };
//! use fairlane_core::Discipline;
//! use fairlane_core::sched::Algorithm;
//!
//! let text = r#"
//! [interfaces]
//! inside = "lan0"
//! outside = "wan0"
//!
//! [workers]
//! cores = [2, 3]
//!
//! [[link]]
//! name = "up"
//! to = "outside"
//! rate = "38mbit"
//! algorithm = "wf2q+"
//!
//! [[link.class]]
//! name = "voice"
//! rate = "2mbit"
//!
//! [[link.class]]
//! name = "everybody"
//! per = "source-ip"
//! flows = { most = 64 }
//! default = true
//!
//! [[link.filter]]
//! class = "voice"
//! dscp = "ef"
//! "#;
//! let site = Site::parse(text, "site.toml")?;
//! let Interfaces { near, backend, .. } = site.interfaces.as_ref().ok_or("no interfaces")?;
//! assert_eq!((near, backend), (&Near::Inside("lan0".to_owned()), &Backend::Packet));
//! let workers = Workers { receive: Some(1), transmit: Some(0), cores: vec![2, 3], arbiters: None };
//! assert_eq!(site.workers.as_ref(), Some(&workers));
//!
//! let link: &Link = site.link("up").ok_or("no link")?;
//! assert_eq!((link.to, link.longest_by), (Role::Outside, LongestBy::Assumed));
//! assert_eq!(link.algorithm, LinkAlgorithm::Tree(Algorithm::Wf2qPlus));
//! assert!(matches!(link.classes[0].kind, ClassKind::Leaf(Queue { .. })));
//! let ClassKind::Flows(flows) = &link.classes[1].kind else { return Err("no flows".into()) };
//! assert!(matches!(**flows, Flows { most: 64, .. }));
//! let mut classes: Elements<'_, Class> = link.classes.iter();
//! assert!(classes.any(|class| &*class.name == "everybody"));
//!
//! // The guarantees of each class, and of each flow of the second.
//! let guarantees: Vec<Guarantee> = link.guarantees();
//! let bps: Result<u64, NoGuarantee> = guarantees[0].rate;
//! assert!(bps? >= 2_000_000);
//! // 64 flows, and one that all further ones share.
//! let each: &Each = guarantees[1].each.as_ref().ok_or("no flows")?;
//! assert_eq!(each.flows, 65);
//!
//! // Queues for it, and the classes' numbers there.
//! let (queues, numbers): (Discipline<Vec<u8>>, _) = link.discipline();
//! println!("{queues:?}, {numbers:?}");
//!
//! // Probably unintended settings, filters that never match, and errors.
//! let (warnings, unmatched): (Vec<Diagnostic>, Vec<Unmatched>) = (site.warnings.clone(), site.unmatched());
//! assert!(warnings.is_empty() && unmatched.is_empty());
//! let error = Site::parse(&text.replace("wf2q+", "wf3q+"), "site.toml").unwrap_err();
//! assert!(matches!(&error, SiteError::Invalid(sentences) if sentences[0].line == 13), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A file that is changed table by table, the effect of the change on the running link, a grant in addition to the
//! file, and the reports:
//!
//! ```
//! use std::sync::Arc;
//!
//! use fairlane_config::class_report::{ClassReport, ClassTerms, SpanReport, bps, part};
//! use fairlane_config::link_report::{ClassRow, LinkReport, SiteReport};
//! use fairlane_config::{
//!     Draft, Grant, List, NotGranted, Offer, ParseSizeError, ParseTimeError, Shared, Site, Size, Steps,
//!     Table, Terms, Time, algorithms, is_interface_name, nearest, read_regular_text, schema, suggestion,
//! };
//! use fairlane_core::tree::ClassStats;
//! use fairlane_core::{Count, Nanos};
//!
//! let text: Arc<str> = r#"
//! [[link]]
//! name = "up"
//! to = "outside"
//! rate = "10mbit"
//!
//! [[link.class]]
//! name = "voice"
//! rate = "2mbit"
//!
//! [[link.class]]
//! name = "rest"
//! weight = 1
//! default = true
//!
//! [[link.filter]]
//! class = "voice"
//! dscp = "ef"
//! "#
//! .into();
//! // The interfaces' MTUs are unknown.
//! let mtu = &|_: &str| None;
//! let running = Site::parse(&text, "site.toml")?;
//!
//! let mut draft = Draft::of(&text, mtu).ok_or("not sound")?;
//! let voice = "[[link.class]]\nname = \"voice\"\nrate = \"3mbit\"\n\n";
//! draft.replace(Table::Class(0, 0), voice).ok_or("no such table")?;
//! let (_, changed) = draft.read(mtu).ok_or("not sound")?;
//! let steps: Steps = changed.links[0].steps_from(&running.links[0]).ok_or("made anew")?;
//! assert!(steps.is_in_place() && !steps.is_empty());
//!
//! let terms = Terms { rate: "64kbit".parse()?, burst: None, delay: None };
//! let call = Grant {
//!     link: "up".to_owned(),
//!     name: "call".to_owned(),
//!     parent: None,
//!     filters: vec!["dscp = \"cs5\"".to_owned()],
//!     reserved: terms.rate,
//!     terms,
//! };
//! let granted = call.clone().admit(&text, mtu, &[])?;
//! assert!(granted.reserved >= terms.rate);
//! // The voice already has 2 of the 10 Mbit/s.
//! let too_much = Grant { terms: Terms { rate: "9mbit".parse()?, ..terms }, ..call };
//! match too_much.admit(&text, mtu, &[]) {
//!     Err(NotGranted::Full { best, .. }) => {
//!         let Offer { rate, .. } = best[0];
//!         assert!(rate < "9mbit".parse()?);
//!     }
//!     other => panic!("nine and two are more than ten: {other:?}"),
//! }
//!
//! let report: LinkReport = SiteReport::new(&running, |_| None).links.remove(0);
//! let row: &ClassRow = &report.classes[0];
//! assert_eq!((&*row.terms.name, row.terms.rate_bps), ("voice", Some(2_000_000)));
//! let terms: List<ClassTerms> = ClassTerms::of(&running.links[0]);
//! let voice: Shared<ClassTerms> = terms.share(0);
//! assert!(voice.is(&row.terms));
//! let idle = ClassReport::counted(voice, &ClassStats::default(), Count::default(), 1.0, 0);
//! assert_eq!((idle.sent_bps, bps(125, 1.0), part(1, 4)), (0.0, 1000.0, 0.25));
//! let rounds = SpanReport::in_micros(Nanos(1_500), Nanos(9_000));
//! assert_eq!((rounds.mean, rounds.max), (1.5, 9.0));
//!
//! // The words of a file.
//! assert_eq!("0.1s".parse::<Time>()?, Time(Nanos::from_millis(100)));
//! assert_eq!("5".parse::<Time>(), Err(ParseTimeError::NoUnit));
//! let size: Result<Size, ParseSizeError> = "64kb".parse();
//! assert_eq!(size?, Size(65_536));
//! assert_eq!(algorithms::named("qfq"), algorithms::all().into_iter().find(|a| a.name() == "qfq"));
//! assert!(is_interface_name("lan0") && schema().contains("wf2q+"));
//! // A path that is not a regular file is rejected, and never blocks.
//! assert!(read_regular_text("/dev/zero".as_ref()).is_err());
//! assert_eq!(suggestion("wieght", ["rate", "weight"]), ", did you mean 'weight'?");
//! assert_eq!(nearest("wieght", ["rate", "weight"]), Some("weight"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod algorithms;
mod build;
mod change;
pub mod class_report;
mod diagnostic;
mod draft;
pub mod figures;
mod file;
mod grant;
mod grants;
mod guarantee;
pub mod link_report;
mod list;
mod load;
mod packet;
mod parse;
mod read;
mod reservation;
mod schema;
mod services;
mod shares;
mod site;
mod text;
mod units;
mod unmatched;
mod written;

pub use change::Steps;
pub use diagnostic::{Diagnostic, Report, SiteError, nearest, suggestion};
pub use draft::{Draft, Table};
pub use grant::{Broken, Grant, Offer, Terms};
pub use grants::NotGranted;
pub use guarantee::{Each, Guarantee, NoGuarantee};
pub use list::{Elements, List, Shared};
pub use load::Tables;
pub use packet::{Classified, ClassifiedBy, DescribedPacket, ParsePacketError};
pub use parse::parse;
pub use read::{INTERFACE_NAME, XDP_MOST_WAITING, is_interface_name};
pub use schema::schema;
pub use site::{
    Attach, Backend, Ceiling, Class, ClassKind, Control, Flows, Interfaces, Link, LinkAlgorithm,
    LongestBy, MtuOf, Near, Queue, Role, Site, Workers,
};
pub use text::{MAX_FILE, read as read_text, read_regular as read_regular_text};
pub use units::{ParseSizeError, ParseTimeError, Size, Time};
pub use unmatched::Unmatched;
pub use written::{At, Scalar, Text, Whole};
