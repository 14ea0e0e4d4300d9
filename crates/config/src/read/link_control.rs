//! The class of link-layer control: ARP, neighbour discovery and the like, on which all other traffic
//! depends.

use fairlane_classify::Per;
use fairlane_core::aqm::AqmConfig;
use fairlane_core::room::Room;
use fairlane_core::sched::{Algorithm, Sharing};
use fairlane_core::{Length, Limits, Nanos, Rate, Weight};

use super::family::Tree;
use super::queue::MOST;
use super::surroundings::Surroundings;
use crate::diagnostic::{Report, suggestion};
use crate::file;
use crate::site::{
    Backend, Ceiling, Class, ClassKind, Flows, LinkAlgorithm, Near, Queue, Role, SHORTEST_FRAME,
};

/// Name of the implicit class, unless the file has one of that name.
const NAME: &str = "link-control";
/// The word for a link without such a class.
const NONE: &str = "none";

/// Its guaranteed rate is this fraction of the link's, up to a maximum.
const PART: u64 = 100;
const MOST_RATE: u64 = 1_000_000;
/// Its level under `priority`.
const LEVEL: u32 = 255;
/// Bytes of its longest frame: enough for all neighbour traffic of daily operation. Longer frames are classified as any
/// others.
const LONGEST: u32 = 256;
/// Source addresses with a queue of their own, so that a flooding one delays only itself.
const MOST_FLOWS: u32 = 64;
/// Packets in each of these queues.
const PACKETS: u32 = 64;
/// The remedies if no such class is possible.
const NAMED: &str =
    "name a class with 'link-control', or write link-control = \"none\" where that is meant";
const FORGET: Nanos = Nanos::from_millis(10_000);
/// The packets per source for which a buffer is reserved, and the number of such sources.
const ROOM: u32 = 4;
const ROOMY: u32 = 32;

/// A link's table, as far as it affects the class of link-layer control.
pub(super) struct LinkControl<'a> {
    link: &'a file::Link,
    /// Whether it receives frames from neighbours.
    has_neighbours: bool,
    /// Whether it can have a reservation: the file has no limit that other reservations might fill.
    has_room: bool,
}

impl<'a> LinkControl<'a> {
    pub(super) fn read(link: &'a file::Link, to: Role, around: &Surroundings) -> LinkControl<'a> {
        let interfaces = around.interfaces.flatten();
        let is_by_xdp = interfaces.is_some_and(|one| one.backend == Backend::Xdp);
        LinkControl {
            link,
            has_neighbours: interfaces
                .is_some_and(|one| to != Role::Outside || one.near != Near::Nothing),
            has_room: link.limit.is_none() && !is_by_xdp,
        }
    }

    fn named(&self) -> &str {
        let name = self.link.link_control.as_ref();
        name.map_or(NAME, |name| name.value())
    }

    /// Returns the class of the file that has this role, by its index there.
    pub(super) fn find(&self, tree: &Tree, report: &mut Report) -> Option<usize> {
        let mut classes = tree.written.iter();
        let found = classes.position(|class| class.name.value() == self.named());
        let place = match &self.link.link_control {
            // Even if a class has that name.
            Some(name) if name.value() == NONE => return None,
            Some(name) => name.span(),
            None => tree.written[found?].name.span(),
        };
        match found {
            Some(at) if tree.has_children[at] => report.error(
                &place,
                format!(
                    "link-control '{0}': class '{0}' has children, and packets go to a class without",
                    self.named()
                ),
            ),
            None if self.named() != NAME => {
                let names = tree.written.iter().map(|class| class.name.value().as_str());
                let near = suggestion(self.named(), names);
                report.error(
                    &place,
                    format!(
                        "link-control '{}': no class of this link has that name (a class, or \"{NONE}\"){near}",
                        self.named()
                    ),
                );
            }
            _ => {}
        }
        found
    }

    /// Returns the implicit class, a sibling of the others without a parent: with a rate that these leave, or at the
    /// highest level with a ceiling. Returns `None` if the link cannot have one; warns if the reason is that all of the
    /// rate is guaranteed to the others.
    pub(super) fn made(
        &self,
        tree: &Tree,
        classes: &[Class],
        (rate, algorithm): (Rate, LinkAlgorithm),
        (longest, shortest): (Length, Length),
        report: &mut Report,
    ) -> Option<Class> {
        if !(self.has_neighbours && self.named() == NAME) {
            return None;
        }
        let algorithm = match algorithm {
            LinkAlgorithm::Tree(tree) if !tree.follows_packets() => tree,
            _ => {
                let reason = format!("algorithm '{algorithm}' has no class for flows");
                self.warn_of_none(&reason, NAMED, report);
                return None;
            }
        };
        let wanted = (rate.bps() / PART).min(MOST_RATE);
        if Rate::from_bps(wanted).is_none() {
            self.warn_of_none("its rate is below 100kbit", NAMED, report);
            return None;
        }
        let overhead = shortest.get().saturating_sub(SHORTEST_FRAME);
        let longest = Length::new(LONGEST + overhead)?.min(longest);
        let (own, ceiling) = match algorithm.sharing() {
            Sharing::Weights => (Some(self.left(tree, classes, rate, wanted, report)?), None),
            Sharing::Levels => {
                let ceiling = ceiling(wanted, longest)?;
                if !leaves_rates(classes, rate, ceiling.rate) {
                    self.warn_of_full(ceiling.rate, report);
                    return None;
                }
                (None, Some(ceiling))
            }
            Sharing::Offers(_) => return None,
        };
        Some(Class {
            name: NAME.into(),
            number: classes.len(),
            parent: None,
            rate: own,
            ceiling,
            longest,
            arrival_burst: longest.get(),
            weight: Weight::ONE,
            scale: 1,
            share: u32::from(own.is_none()),
            level: LEVEL,
            borrow: false,
            cbq_burst: 1,
            kind: ClassKind::Flows(Box::new(self.flows(longest))),
        })
    }

    /// Returns the rate that the file's classes leave, at most the wanted one. Grants have lower precedence.
    fn left(
        &self,
        tree: &Tree,
        classes: &[Class],
        rate: Rate,
        wanted: u64,
        report: &mut Report,
    ) -> Option<Rate> {
        let of_file = classes
            .iter()
            .filter(|class| class.parent.is_none() && !tree.written[class.number].granted);
        let taken: u64 = of_file.filter_map(|class| class.rate).map(Rate::bps).sum();
        let left = Rate::from_bps(rate.bps().saturating_sub(taken).min(wanted));
        let left = left.filter(|left| left.bps() >= wanted / 2);
        if let (None, Some(wanted)) = (left, Rate::from_bps(wanted)) {
            self.warn_of_full(wanted, report);
        }
        left
    }

    fn warn_of_full(&self, wanted: Rate, report: &mut Report) {
        let reason = "its classes are guaranteed all of its rate";
        let remedy = format!("leave {wanted} of the link, or name a class with 'link-control'");
        self.warn_of_none(reason, &remedy, report);
    }

    fn warn_of_none(&self, reason: &str, remedy: &str, report: &mut Report) {
        let name = self.link.name.value();
        report.warning(
            &self.link.name.span(),
            format!(
                "link '{name}': {reason}, so ARP, neighbour discovery and other link-layer control have no class of \
                 their own and may starve: {remedy}"
            ),
        );
    }

    fn flows(&self, longest: Length) -> Flows {
        let room = |packets: u32| match self.has_room {
            true => Room {
                packets,
                bytes: packets.saturating_mul(longest.get()).min(MOST),
            },
            false => Room::NONE,
        };
        Flows {
            per: Per::SourceIp,
            algorithm: Algorithm::Wf2qPlus,
            most: MOST_FLOWS,
            forget_after: FORGET,
            ceiling: None,
            room: room(ROOM * ROOMY),
            aqm_floor: Room::NONE,
            queue: Queue {
                limits: Limits {
                    packets: PACKETS,
                    bytes: MOST,
                },
                room: room(ROOM),
                aqm: AqmConfig::TailDrop,
            },
        }
    }
}

/// Returns whether each class of a link with priority levels keeps its guaranteed rate below one more class with this
/// ceiling. A class without a ceiling may take the whole link.
fn leaves_rates(classes: &[Class], link: Rate, ceiling: Rate) -> bool {
    let top = |class: &&Class| class.parent.is_none();
    classes.iter().filter(top).all(|class| {
        let above = classes.iter().filter(top);
        let above =
            above.filter(|other| other.number != class.number && other.level >= class.level);
        let taken = above.map(|other| other.ceiling.map_or(link, |ceiling| ceiling.rate).bps());
        let taken = taken.fold(ceiling.bps(), u64::saturating_add);
        class
            .rate
            .is_none_or(|rate| rate.bps().saturating_add(taken) <= link.bps())
    })
}

/// Returns a ceiling of this rate, if it can send a packet within a second.
fn ceiling(bps: u64, longest: Length) -> Option<Ceiling> {
    let rate = Rate::from_bps(bps.max(u64::from(longest.get()) * 8))?;
    let burst = rate.bps() / 800 + 2 * u64::from(longest.get());
    Some(Ceiling {
        rate,
        burst: burst as u32,
    })
}
