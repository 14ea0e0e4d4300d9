//! A site configuration that has been validated.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use fairlane_classify::{Origin, Per, Rule};
use fairlane_core::aqm::AqmConfig;
use fairlane_core::room::Room;
pub use fairlane_core::tree::Ceiling;
use fairlane_core::{Length, Limits, Nanos, Rate, SchedulerLimits, Weight};

use fairlane_core::sched::Algorithm;

use crate::diagnostic::Diagnostic;
use crate::grant::Grant;
use crate::guarantee::Guarantee;
use crate::list::List;

/// Looks up the MTU, in bytes, of the interface with the given name on the machine that the file is for. Returns `None`
/// if there is no such interface.
///
/// ```
/// use fairlane_config::{LongestBy, MtuOf, Site};
///
/// let text = r#"
/// [interfaces]
/// inside = "lan0"
/// outside = "wan0"
///
/// [[link]]
/// name = "up"
/// to = "outside"
/// rate = "10mbit"
///
/// [[link.class]]
/// name = "all"
/// default = true
/// "#;
/// let mtu: MtuOf = &|interface| (interface == "wan0").then_some(1_400);
/// let site = Site::parse_for(text, "site.toml", mtu)?;
/// assert_eq!(site.links[0].longest_by, LongestBy::Interface { mtu: 1_400 });
/// # Ok::<(), fairlane_config::SiteError>(())
/// ```
pub type MtuOf<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// The contents of one site file, validated: every value is in range and consistent with the others.
#[derive(Clone, Debug)]
pub struct Site {
    /// The interfaces; not needed for a file that is only simulated.
    pub interfaces: Option<Interfaces>,
    /// The socket for attached processes.
    pub attach: Option<Attach>,
    /// The control API.
    pub control: Option<Control>,
    /// The workers; `None` if one thread does everything.
    pub workers: Option<Workers>,
    /// The shaped directions, at least one; each leaves by another interface.
    pub links: Vec<Arc<Link>>,
    /// The text of the file; empty if it is a part of another file.
    pub text: Arc<str>,
    /// Settings that are valid but probably unintended, such as a filter that never matches.
    pub warnings: Vec<Diagnostic>,
    /// The grants in force, whose classes are in `links` but not in the text.
    pub grants: Vec<Arc<Grant>>,
}

impl Site {
    /// Returns the link with this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        let mut links = self.links.iter();
        links.find(|link| link.name == name).map(|link| &**link)
    }

    /// Returns the MTU that this interface had when the site was read, if the longest packet of a link follows from it.
    pub fn mtu_of(&self, interface: &str) -> Option<u32> {
        let interfaces = self.interfaces.as_ref()?;
        self.links.iter().find_map(|link| match link.longest_by {
            LongestBy::Interface { mtu } if interfaces.named(link.to) == Some(interface) => {
                Some(mtu)
            }
            _ => None,
        })
    }
}

/// The interfaces that Fairlane stands between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// Name of the interface towards the rest of the world.
    pub outside: String,
    /// The side opposite `outside`.
    pub near: Near,
    /// Whether the tap device has the addresses and routes of `outside` during a run.
    pub move_addresses: bool,
    /// Whether a run begins although the kernel passes packets between the interfaces itself.
    pub allow_bypass: bool,
    /// How frames are read and written.
    pub backend: Backend,
    /// The configured speed of the interfaces.
    pub speed: Option<Rate>,
    /// The budget of a round of the forwarding thread.
    pub longest_round: Nanos,
}

impl Interfaces {
    /// The default budget of a round.
    pub const LONGEST_ROUND: Nanos = Nanos::from_millis(1);

    /// Returns the interface on this side, if there is one.
    pub fn named(&self, side: Role) -> Option<&str> {
        match (side, &self.near) {
            (Role::Outside, _) => Some(&self.outside),
            (Role::Inside, Near::Inside(name)) | (Role::Tap, Near::Tap(name)) => Some(name),
            _ => None,
        }
    }
}

/// The socket for attached processes, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The Unix socket that they connect to.
    pub socket: PathBuf,
    /// Limit on their number.
    pub processes: usize,
    /// Limit on the processes of one user.
    pub processes_per_user: usize,
    /// Limit on the memory of all mailboxes together, in bytes.
    pub memory: u64,
}

impl Attach {
    /// The longest frame of a process in bytes, if that of its link is longer; a mailbox's slots have this size.
    pub const LONGEST: u32 = 9_018;
    /// Number of frames in a mailbox.
    pub const SLOTS: usize = 256;

    /// Returns the bytes of memory that a mailbox takes for frames of up to `longest` bytes: for each frame a header,
    /// in whole cache lines, and two cache lines for the mailbox.
    pub const fn mailbox(longest: u32) -> u64 {
        const LINE: u64 = 64;
        const HEADER: u64 = 8;
        2 * LINE + Self::SLOTS as u64 * (HEADER + longest as u64).next_multiple_of(LINE)
    }
}

/// Where a running site is asked for its state, and changed: at least one of `socket` and `http`.
///
/// ```
/// use fairlane_config::{Control, Site};
///
/// let text = r#"
/// [control]
/// socket = "/run/fairlane.sock"
///
/// [[link]]
/// name = "up"
/// to = "outside"
/// rate = "10mbit"
///
/// [[link.class]]
/// name = "all"
/// default = true
/// "#;
/// let site = Site::parse(text, "site.toml")?;
/// let Control { socket, mode, http, .. } = site.control.ok_or("nobody can ask it")?;
/// assert_eq!(socket.as_deref(), Some("/run/fairlane.sock".as_ref()));
/// assert_eq!((mode, http), (0o600, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// A Unix socket. Any process that may open it may change the site.
    pub socket: Option<PathBuf>,
    /// The permissions of the socket.
    pub mode: u32,
    /// A loopback address for HTTP.
    pub http: Option<SocketAddr>,
    /// The file with the token for changes over HTTP.
    pub token: Option<PathBuf>,
    /// The file with the token for reading over HTTP, if that needs one.
    pub read_token: Option<PathBuf>,
}

/// Receive and transmit workers, in addition to the forwarding thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Number of receive workers at each interface, from 1 to [`MOST`](Self::MOST); `None` if it follows from the
    /// machine's cores and the interface's queues.
    pub receive: Option<usize>,
    /// Number of transmit workers at each interface, at most [`MOST`](Self::MOST); 0 if the forwarding thread
    /// transmits, and `None` if it follows from the machine's cores and the interface's queues.
    pub transmit: Option<usize>,
    /// The cores of the workers, first the receive workers, then the transmit workers, of both those at `inside` first.
    /// Empty, or as many as there are workers.
    pub cores: Vec<usize>,
    /// Number of arbiter threads: 1 for both links, 2 for one per link; `None` if it follows from the machine's cores.
    pub arbiters: Option<usize>,
}

impl Workers {
    /// The most receive workers at an interface, each with a ring of its own, and the most transmit workers.
    pub const MOST: usize = 16;
}

/// The side opposite `outside`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Near {
    /// Another interface, by name: an inline bridge.
    Inside(String),
    /// A tap device of this name, which is created: shaping the egress of one interface.
    Tap(String),
    /// Attached processes only.
    Nothing,
}

/// How frames are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// AF_PACKET rings.
    #[default]
    Packet,
    /// AF_XDP.
    Xdp,
}

/// A side of Fairlane that frames come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The interface towards the machines that are shaped.
    Inside,
    /// The interface towards the rest of the world.
    Outside,
    /// The tap device.
    Tap,
    /// Processes that push frames through shared memory; only a source of frames.
    Attached,
}

impl Role {
    /// Returns its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Inside => "inside",
            Role::Outside => "outside",
            Role::Tap => "tap",
            Role::Attached => "attached",
        }
    }

    /// Returns the number for it as an ingress in filters.
    pub const fn ingress(self) -> u16 {
        match self {
            Role::Inside => 0,
            Role::Outside => 1,
            Role::Tap => 2,
            Role::Attached => Origin::ATTACHED,
        }
    }
}

/// A shaped direction.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The interface of its egress.
    pub to: Role,
    /// The link's rate, overhead included.
    pub rate: Rate,
    /// Bytes that each packet takes on the wire in addition to the frame.
    pub overhead: u32,
    /// The longest packet, overhead included.
    pub longest: Length,
    /// The source of `longest`.
    pub longest_by: LongestBy,
    /// The scheduling algorithm among the classes without a parent; for CBQ, in the whole link.
    pub algorithm: LinkAlgorithm,
    /// The limit of the whole link's backlog.
    pub limits: SchedulerLimits,
    /// The classes, parents before their children.
    pub classes: List<Class>,
    /// The rules of the filters, whose targets are indices into [`classes`](Link::classes).
    pub rules: Arc<[Rule<u32>]>,
    /// The class of packets that no rule matches, and of malformed ones.
    pub default: u32,
    /// The class of [link-layer control](fairlane_wire::Headers::link_control), whatever rule matches; `None` if
    /// that is classified as any other packet.
    pub link_control: Option<u32>,
    /// Cached results of computations. A copy, which may be changed into another link, starts with an empty cache.
    pub(crate) found: Found,
}

/// Results that are computed once per link and cached.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) guarantees: OnceLock<List<Guarantee>>,
    /// The total buffer reservation of all classes: packets and bytes.
    pub(crate) kept: OnceLock<(u64, u64)>,
    /// A report on the classes, whose type is defined above this module.
    pub(crate) report: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Another link with the same classes, except for some.
    like: Option<Like>,
}

impl Found {
    /// Returns a cache filled with the guarantees and, if the link is derived from an earlier one, a reference to it.
    pub(crate) fn of(guarantees: List<Guarantee>, kept: (u64, u64), like: Option<Like>) -> Found {
        Found {
            guarantees: OnceLock::from(guarantees),
            kept: OnceLock::from(kept),
            report: OnceLock::new(),
            like,
        }
    }
}

/// An earlier version of a link, with the ranges of classes that may differ from it. All other classes are unchanged:
/// they have the same guarantees and the same indices. So does the default class.
#[derive(Debug)]
pub(crate) struct Like {
    /// Identifies the link; the reference does not keep it alive.
    link: Weak<Link>,
    but: Vec<Range<usize>>,
}

impl Like {
    /// Returns a reference to a link with the same classes except those at these indices, which are in order.
    pub(crate) fn of(link: &Arc<Link>, but: Vec<Range<usize>>) -> Like {
        let link = Arc::downgrade(link);
        Like { link, but }
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It follows from the rest of the link, whenever it was found.
        f.debug_struct("Found").finish_non_exhaustive()
    }
}

impl Clone for Found {
    fn clone(&self) -> Found {
        Found::default()
    }
}

/// The shortest Ethernet frame, without its checksum.
pub(crate) const SHORTEST_FRAME: u32 = 60;

pub(crate) fn shortest(longest: Length, overhead: u32) -> Length {
    let shortest = Length::new(SHORTEST_FRAME + overhead);
    shortest.map_or(longest, |shortest| shortest.min(longest))
}

impl Link {
    /// Returns the link that this one is derived from, if it still exists.
    pub(crate) fn former(&self) -> Option<Arc<Link>> {
        self.found.like.as_ref()?.link.upgrade()
    }

    /// Returns the indices of the classes that may differ from those in the other link, in order; `None` if that is
    /// unknown.
    pub(crate) fn differs_from(&self, other: &Link) -> Option<&[Range<usize>]> {
        let like = self.found.like.as_ref()?;
        // The weak reference keeps the address from being used for another link.
        std::ptr::eq(like.link.as_ptr(), other).then_some(&*like.but)
    }

    /// Returns whether another link has the same settings.
    pub(crate) fn says_what(&self, other: &Link) -> bool {
        let Link {
            name,
            to,
            rate,
            overhead,
            longest,
            longest_by,
            algorithm,
            limits,
            classes,
            rules,
            default,
            link_control,
            found: _,
        } = self;
        let head = (to, rate, overhead, longest, longest_by, algorithm, limits);
        let of_other = (
            &other.to,
            &other.rate,
            &other.overhead,
            &other.longest,
            &other.longest_by,
            &other.algorithm,
            &other.limits,
        );
        *name == other.name
            && head == of_other
            && (default, link_control) == (&other.default, &other.link_control)
            && (rules, classes) == (&other.rules, &other.classes)
    }

    /// Returns the least length that a packet counts for where a buffer reservation is in packets: the shortest
    /// Ethernet frame, overhead included.
    pub fn shortest(&self) -> Length {
        shortest(self.longest, self.overhead)
    }
}

/// The source of a link's longest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongestBy {
    /// The file.
    File,
    /// The MTU of the interface that the link leaves by, plus an Ethernet header and two VLAN tags.
    Interface {
        /// The MTU in bytes.
        mtu: u32,
    },
    /// An assumed MTU of 1500, since the interface is unknown.
    Assumed,
}

/// The scheduling algorithm of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAlgorithm {
    /// A class tree, with this algorithm at its root.
    Tree(Algorithm),
    /// Class-based queueing as in ALTQ.
    Cbq,
}

impl std::fmt::Display for LinkAlgorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkAlgorithm::Tree(algorithm) => algorithm.fmt(f),
            LinkAlgorithm::Cbq => f.write_str(LinkAlgorithm::CBQ),
        }
    }
}

impl LinkAlgorithm {
    /// The name of class-based queueing.
    pub const CBQ: &'static str = "cbq";
}

/// A class.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: Arc<str>,
    /// Its number in the order of the file, from 0; implicit classes are last: first the class of link-layer control,
    /// then the default class.
    pub number: usize,
    /// Its parent's index among the link's classes; `None` for a child of the root.
    pub parent: Option<usize>,
    /// The rate configured in the file. The guaranteed rate is at least this.
    pub rate: Option<Rate>,
    /// The ceiling, an upper limit of its rate.
    pub ceiling: Option<Ceiling>,
    /// Its longest packet, overhead included; for a parent, the longest of its children.
    pub longest: Length,
    /// Bytes that may arrive at once in addition to its guaranteed rate, or to a flow's, for its delay bound to hold.
    pub arrival_burst: u32,
    /// Its weight among its siblings, computed from their rates and weights.
    pub weight: Weight,
    /// The factor, a power of two, by which the queues multiply its weight and those of its siblings. It brings the
    /// largest weight within a factor of two of the largest possible, so that virtual time keeps its scale when classes
    /// are added or removed.
    pub scale: u32,
    /// Its weight in the rest that the rates of its siblings and its own leave; 0 for none.
    pub share: u32,
    /// Its priority level, if levels apply: higher first.
    pub level: u32,
    /// In CBQ: whether it may borrow its parent's unused rate.
    pub borrow: bool,
    /// In CBQ: packets that it may send back to back after an idle period.
    pub cbq_burst: u32,
    /// The contents: child classes, a queue or flows.
    pub kind: ClassKind,
}

/// The contents of a class.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassKind {
    /// Child classes under this algorithm.
    Inner(Algorithm),
    /// One queue.
    Leaf(Queue),
    /// A queue for each flow. Boxed, since few of thousands of classes are of this kind, and the others should stay
    /// small.
    Flows(Box<Flows>),
}

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// The limits of its backlog.
    pub limits: Limits,
    /// Its buffer reservation, available however full the link is.
    pub room: Room,
    /// The queue management that drops or marks packets before the limit is reached.
    pub aqm: AqmConfig,
}

/// Queues that are created when flows appear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flows {
    /// The packet fields that identify a flow.
    pub per: Per,
    /// The scheduling algorithm among the flows.
    pub algorithm: Algorithm,
    /// Limit on their number.
    pub most: u32,
    /// The idle timeout of a flow.
    pub forget_after: Nanos,
    /// The ceiling of each flow.
    pub ceiling: Option<Ceiling>,
    /// The buffer reservation of all flows together: that of one flow, times the number of flows with a reservation.
    pub room: Room,
    /// A backlog of all of them together in which CoDel drops nothing.
    pub aqm_floor: Room,
    /// The queue of each flow.
    pub queue: Queue,
}

impl Flows {
    /// Returns how many of them have a buffer reservation at a time.
    pub fn roomy(&self) -> u32 {
        let roomy = self.room.divided_by(self.queue.room);
        roomy.min(self.most.saturating_add(1))
    }
}
