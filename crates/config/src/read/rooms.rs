//! Buffer reservations (`room`) of each class and flow, so that guarantees hold in a full link.
//!
//! Unless the file sets it, a reservation is as large as the guarantee needs for a burst of [`granted`] bytes. The
//! default limits of queues and of the link follow from it, so that small files stay small.

use std::collections::HashSet;
use std::sync::Arc;

use fairlane_core::bounds::Service;
use fairlane_core::room::Room;
use fairlane_core::{Length, Limits, Rate, SchedulerLimits};

use super::queue::{self, MOST};
use crate::diagnostic::Report;
use crate::file;
use crate::guarantee::{Guarantee, NoGuarantee};
use crate::reservation::{held, kept_for};
use crate::site::{Class, ClassKind, Link, Queue};
use crate::units::Size;
use crate::written::At;

/// Shared packets and bytes, in addition to the reservations, unless the file sets a limit.
const SHARED_PACKETS: u32 = 10_000;
const SHARED_BYTES: u64 = 16 << 20;
/// The longest burst that is granted by default.
const LONGEST_BURST: u64 = 64 << 10;
/// Flows of a class that have a buffer reservation by default.
const ROOMY: u32 = 64;

/// Returns the burst that a guarantee covers by default: 10 ms at its rate, at least two packets, at most 64 kB.
fn granted(bps: u64, longest: Length) -> u64 {
    let least = 2 * u64::from(longest.get());
    (bps / 800).min(LONGEST_BURST).max(least)
}

/// A link whose classes get buffer reservations.
pub(super) struct Rooms<'a> {
    pub shortest: Length,
    /// The tables of the classes that are in the file.
    pub places: &'a [&'a file::Class],
}

impl Rooms<'_> {
    /// Gives each class the reservation that its guarantee needs, and a limit that it fits into if the file sets none.
    pub(super) fn settle(
        &self,
        classes: &mut [Class],
        guarantees: &[Guarantee],
        report: &mut Report,
    ) {
        let all = classes.len() as u64;
        for (at, (class, guarantee)) in classes.iter_mut().zip(guarantees).enumerate() {
            let written = self.places.get(at).copied();
            if written.is_none() && matches!(class.kind, ClassKind::Flows(_)) {
                // The implicit class of link-layer control already has its reservation.
                continue;
            }
            let bps = match (guarantee.rate, class.rate) {
                (Ok(bps), _) => bps,
                (Err(_), rate) => rate.map_or(0, Rate::bps),
            };
            let burst = written.and_then(|class| class.granted_burst);
            let longest = class.longest;
            let needed = self.needed((guarantee.service, bps), longest, burst, all);
            match &mut class.kind {
                ClassKind::Inner(_) => {}
                ClassKind::Leaf(queue) => {
                    let own = written.and_then(|class| class.room.as_deref());
                    self.keep((queue, longest), written, own, needed, report);
                    let service = guarantee.service;
                    self.look((&class.name, longest), queue.room, service, written, report);
                }
                ClassKind::Flows(flows) => {
                    let of_flows = written.and_then(|class| class.flows.as_ref());
                    let own = of_flows.and_then(|flows| flows.value().room.as_ref());
                    let each = guarantee.each.as_deref();
                    let service = each.map_or(guarantee.service, |each| each.service);
                    let bps = each.and_then(|each| each.rate.ok()).unwrap_or(0);
                    let one = self.needed((service, bps), longest, None, 1);
                    self.keep((&mut flows.queue, longest), written, own, one, report);
                    let named = (&*class.name, longest);
                    self.look(named, flows.queue.room, service, written, report);
                    let of = flows.most.saturating_add(1).min(ROOMY);
                    let one = flows.queue.room;
                    let by_default = Room {
                        packets: needed.packets.max(one.packets.saturating_mul(of)).min(MOST),
                        bytes: needed.bytes.max(one.bytes.saturating_mul(of)).min(MOST),
                    };
                    let own = written.and_then(|class| class.room.as_deref());
                    flows.room = written_room(own, by_default, longest, report);
                    flows.aqm_floor = needed;
                    fit(&mut flows.queue.limits, written, of_one_flow(flows.room));
                    self.look(named, held(flows), guarantee.service, written, report);
                }
            }
        }
    }

    /// Returns the reservation that a service needs, for a requested burst too. Without a service guarantee, the
    /// reservation is a courtesy: for a burst and, in CBQ, a packet of each class that may be served before.
    fn needed(
        &self,
        (service, bps): (Result<Service, NoGuarantee>, u64),
        longest: Length,
        asked: Option<u64>,
        classes: u64,
    ) -> Room {
        let burst = granted(bps, longest).max(asked.unwrap_or(0));
        let bytes = match service {
            Ok(service) => service.room(burst, self.shortest).bytes.into(),
            Err(NoGuarantee::Cbq) => burst + classes.min(100) * u64::from(longest.get()),
            Err(_) => burst,
        };
        // Round to whole kilobytes: the need of a class changes by a byte or two with any other class, and each class
        // with a changed reservation is changed in a running link.
        let bytes = bytes.next_multiple_of(1 << 10).min(MOST.into());
        Room {
            packets: (bytes / u64::from(self.shortest.get())) as u32,
            bytes: bytes as u32,
        }
    }

    /// Sets the reservation and the limits of a queue.
    fn keep(
        &self,
        (queue, longest): (&mut Queue, Length),
        class: Option<&file::Class>,
        own: Option<&At<file::Limit>>,
        needed: Room,
        report: &mut Report,
    ) {
        let room = written_room(own, needed, longest, report);
        fit(&mut queue.limits, class, room);
        let Limits { packets, bytes } = queue.limits;
        if let Some(own) = own
            && (room.packets > packets || room.bytes > bytes)
        {
            report.error(
                &own.span(),
                format!(
                    "room: {} is more than the limit of the queue, {}",
                    shown(room),
                    shown(Room { packets, bytes })
                ),
            );
        }
        queue.room = room.within(queue.limits);
    }

    /// Warns of a queue that is too small for the guarantee, even for long packets. Only `check` reports that it is too
    /// small for short ones: a limit of few packets may be intended.
    fn look(
        &self,
        (name, longest): (&str, Length),
        room: Room,
        service: Result<Service, NoGuarantee>,
        class: Option<&file::Class>,
        report: &mut Report,
    ) {
        let (Ok(service), Some(class)) = (service, class) else {
            return;
        };
        let least = u64::from(longest.get());
        if service
            .burst_within(room, longest)
            .is_some_and(|burst| burst >= least)
        {
            return;
        }
        let limit = class.limit.as_deref().map(At::span);
        let own = class.room.as_deref().map(At::span);
        let place = own.or(limit).unwrap_or_else(|| class.name.span());
        report.warning(
            &place,
            format!(
                "class '{name}' may lose packets though it keeps to its guarantee: it, or one of its \
                 flows, is sure of {}, and needs {}",
                shown(room),
                shown(service.room(least, longest)),
            ),
        );
    }
}

/// Returns a reservation as configured, with defaults for missing values.
fn written_room(
    written: Option<&At<file::Limit>>,
    by_default: Room,
    longest: Length,
    report: &mut Report,
) -> Room {
    let Some(written) = written.map(At::value) else {
        return by_default;
    };
    let packets = written.packets.as_ref();
    let packets = packets.and_then(|at| at.within("room packets", 1..i64::from(MOST) + 1, report));
    let bytes = written.bytes.as_ref();
    let bytes =
        bytes.and_then(|at| queue::at_least(at, "room bytes", longest, MOST.into(), report));
    Room {
        packets: packets.unwrap_or(by_default.packets),
        bytes: bytes.map_or(by_default.bytes, |bytes| bytes as u32),
    }
}

fn shown(room: Room) -> String {
    format!(
        "room for {} packets and {}",
        room.packets,
        Size(room.bytes.into())
    )
}

/// Raises a default limit to the reservation.
fn fit(limits: &mut Limits, class: Option<&file::Class>, room: Room) {
    let written = class.and_then(|class| class.limit.as_deref());
    let written = written.map(At::value);
    if written.is_none_or(|limit| limit.packets.is_none()) {
        limits.packets = limits.packets.max(room.packets);
    }
    if written.is_none() {
        limits.bytes = limits.bytes.max(room.bytes);
    }
}

/// Returns the limit of a flow that may use the whole reservation of its class. A power of two seldom changes with the
/// class; a change of limits visits all flows at once.
fn of_one_flow(room: Room) -> Room {
    let rounded = |count: u32| count.checked_next_power_of_two().unwrap_or(MOST).min(MOST);
    Room {
        packets: rounded(room.packets),
        bytes: rounded(room.bytes),
    }
}

/// Returns the largest reservation, in packets, of each class without a configured one for which all classes together
/// have at most `most`, and the number of classes with larger ones. `None` if the configured reservations exceed `most`
/// by themselves.
pub(super) fn fitting<'a>(
    links: impl Iterator<Item = (&'a file::Link, &'a Link)>,
    most: u64,
) -> Option<(u64, usize)> {
    let (mut fixed, mut open) = (0, Vec::new());
    for (written, link) in links {
        let is_open = |class: &&Arc<At<file::Class>>| {
            let room = class.value().room.as_deref().map(At::value);
            room.is_none_or(|room| room.packets.is_none())
        };
        let names = written.class.iter().filter(is_open);
        let names: HashSet<&str> = names
            .map(|class| class.value().name.value().as_str())
            .collect();
        for class in &link.classes {
            match kept_for(class).0 {
                packets if names.contains(&*class.name) => open.push(packets),
                packets => fixed += packets,
            }
        }
    }
    let fits = |room: &u64| {
        let sum = open.iter().map(|packets| packets.min(room)).sum::<u64>();
        fixed + sum <= most
    };
    // The sum grows with the reservation, so bisection finds the largest that fits.
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        match fits(&middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    let more = open.iter().filter(|&&packets| packets > low).count();
    (low > 0 && fits(&low)).then_some((low, more))
}

/// The configured limits of a link's backlog.
pub(super) struct Written {
    packets: Option<u32>,
    bytes: Option<u64>,
}

impl Written {
    /// Reads the configured limits, or reports the errors.
    pub(super) fn read(link: &file::Link, longest: Length, report: &mut Report) -> Option<Written> {
        let before = report.errors();
        let limit = link.limit.as_ref().map(At::value);
        let packets = limit.and_then(|limit| limit.packets.as_ref());
        let packets =
            packets.and_then(|at| at.within("limit packets", 1..i64::from(u32::MAX) + 1, report));
        let bytes = limit.and_then(|limit| limit.bytes.as_ref());
        let bytes =
            bytes.and_then(|at| queue::at_least(at, "limit bytes", longest, u64::MAX, report));
        (report.errors() == before).then_some(Written { packets, bytes })
    }

    /// Returns the limits, where missing ones are the reservations of the classes plus the shared part.
    pub(super) fn settle(
        self,
        link: &file::Link,
        (kept_packets, kept_bytes): (u64, u64),
        report: &mut Report,
    ) -> Option<SchedulerLimits> {
        let place = link.limit.as_ref().map_or(link.name.span(), At::span);
        let packets = match self.packets {
            Some(packets) => packets.into(),
            // A power of two seldom changes with a class, so a running link keeps its queues when the file is reloaded.
            None => (kept_packets + u64::from(SHARED_PACKETS)).next_power_of_two(),
        };
        let bytes = (self.bytes).unwrap_or((kept_bytes + SHARED_BYTES).next_power_of_two());
        if packets < kept_packets || bytes < kept_bytes || packets > u32::MAX.into() {
            report.error(
                &place,
                format!(
                    "limit: room for {kept_packets} packets and {} is kept for the classes of link \
                     '{}', so that they have what they are guaranteed: its limit is no less, and no \
                     more than {} packets; or classes and flows have less 'room'",
                    Size(kept_bytes),
                    link.name.value(),
                    u32::MAX
                ),
            );
            return None;
        }
        Some(SchedulerLimits {
            packets: packets as u32,
            bytes,
            per_flow: Limits::NONE,
        })
    }
}
