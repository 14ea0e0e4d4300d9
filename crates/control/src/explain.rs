//! Why packets of a class are queued, delayed or dropped: figures, causes and remedies.

use fairlane_config::class_report::{ClassReport, DelayReport};
use fairlane_config::{Link, figures};
use fairlane_daemon::{FlowReport, LinkReport};
use serde::Serialize;

/// The fraction of a rate from which it counts as used up.
const FULL: f64 = 0.95;
/// Maximum number of siblings, flows or filters in a sentence.
const NAMED: usize = 3;
/// The fraction of a class's arrivals from which a flow is heavy.
const HEAVY: f64 = 0.5;

/// The recent state of a class, explained.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Its link.
    pub link: String,
    /// Its name.
    pub class: String,
    /// Packets queued in it, or below it.
    pub queued_packets: u64,
    /// The recent rate of its arrivals.
    pub offered_bps: f64,
    /// The recent rate of its departures.
    pub sent_bps: f64,
    /// Its minimum rate while it is backlogged.
    pub guaranteed_bps: Option<u64>,
    /// Packets dropped recently.
    pub drops: u64,
    /// Recent delays; null if no packet was sent.
    pub delay_us: Option<DelayReport>,
    /// Its delay bound.
    pub bound_us: Option<f64>,
    /// Whether the bound applies: the class is within its guarantee. Null if it has no bound.
    pub bound_applies: Option<bool>,
    /// The flows that offered most; empty if the class has one queue for all senders.
    pub talkers: Vec<FlowReport>,
    /// The causes of its delays and drops, a sentence each.
    pub because: Vec<String>,
    /// Remedies, a sentence each.
    pub advice: Vec<String>,
}

fn rate(bps: f64) -> String {
    figures::rate(bps.round() as u64)
}

fn time(us: f64) -> String {
    figures::micros(us)
}

fn recent_bps(class: &ClassReport) -> f64 {
    class.recent.map_or(0.0, |recent| recent.sent_bps)
}

/// Explains the state of a class from recent counts, its top talkers, and the configuration of its link. O(classes +
/// filters).
pub(crate) fn explain(
    link: &LinkReport,
    class: &ClassReport,
    talkers: Vec<FlowReport>,
    configured: Option<&Link>,
    granted: usize,
) -> Explanation {
    let recent = class.recent.unwrap_or_default();
    let mut because = vec![rates(link, class)];
    because.push(delays(class));
    let drops = recent.drops.total();
    if drops > 0 {
        because.push(format!("Recently dropped: {drops} packets."));
    }
    because.extend(holds(link, class));
    because.extend(configured.and_then(|link| unmatched(link, class, granted)));
    because.extend(heaviest(&talkers));
    Explanation {
        link: link.name.to_string(),
        class: class.terms.name.to_string(),
        queued_packets: class.queued_packets,
        offered_bps: recent.offered_bps,
        sent_bps: recent.sent_bps,
        guaranteed_bps: class.terms.guaranteed_bps,
        drops,
        delay_us: recent.delay_us,
        bound_us: class.terms.bound_us(),
        bound_applies: recent.bound_applies,
        advice: advice(class, &talkers),
        talkers,
        because,
    }
}

/// Formats the rates: `voice: sending 4.13mbit (guarantee 3mbit), offered 12.7mbit. Also active: ..`
fn rates(link: &LinkReport, class: &ClassReport) -> String {
    let offered = class.recent.map_or(0.0, |recent| recent.offered_bps);
    format!(
        "{}: sending {}, offered {}. {}.",
        class.terms.name,
        with_guarantee(class),
        rate(offered),
        siblings(link, class)
    )
}

/// Formats a rate as `4.13mbit (guarantee 3mbit)`.
fn with_guarantee(class: &ClassReport) -> String {
    let guarantee = match class.terms.guaranteed_bps {
        Some(bps) => format!("guarantee {}", figures::rate(bps)),
        None => "no guarantee".to_owned(),
    };
    format!("{} ({guarantee})", rate(recent_bps(class)))
}

/// Lists the active siblings of a class, busiest first.
fn siblings(link: &LinkReport, class: &ClassReport) -> String {
    let siblings = link.classes.iter().filter(|other| {
        other.terms.parent == class.terms.parent && other.terms.name != class.terms.name
    });
    let mut busy: Vec<&ClassReport> = siblings.filter(|other| recent_bps(other) > 0.0).collect();
    busy.sort_by(|a, b| recent_bps(b).total_cmp(&recent_bps(a)));
    let names = busy.iter().take(NAMED);
    let names = names.map(|other| format!("{} {}", other.terms.name, with_guarantee(other)));
    let names = names.collect::<Vec<_>>().join(", ");
    match busy.len() {
        0 => "No other class is active".to_owned(),
        1..=NAMED => format!("Also active: {names}"),
        all => format!("Also active: {names} and {} more", all - NAMED),
    }
}

/// Formats recent delays, and whether the bound applies to them.
fn delays(class: &ClassReport) -> String {
    let recent = class.recent.unwrap_or_default();
    let delays = match recent.delay_us {
        Some(delay) => format!(
            "Recent delay: p99 {}, max {}",
            time(delay.p99),
            time(delay.max)
        ),
        None => "No packet left recently".to_owned(),
    };
    let bound = match (class.terms.bound_us(), recent.bound_applies) {
        (Some(us), Some(false)) => format!(
            "delay bound {}: does not apply now, since the class is above its guarantee",
            time(us)
        ),
        (Some(us), _) => format!("delay bound {}: applies", time(us)),
        (None, _) => match &class.terms.no_bound {
            Some(reason) => format!("no delay bound: {reason}"),
            None => "no delay bound".to_owned(),
        },
    };
    format!("{delays}; {bound}.")
}

/// Returns the ceilings and the full link that hold packets back, from the class itself upwards.
fn holds(link: &LinkReport, class: &ClassReport) -> Vec<String> {
    let above = |class: &ClassReport| {
        let parent = class.terms.parent.as_deref()?;
        let mut classes = link.classes.iter();
        classes.find(|other| &*other.terms.name == parent)
    };
    let path: Vec<&ClassReport> =
        std::iter::successors(Some(class), |class| above(class)).collect();
    let mut holds: Vec<String> = path.iter().filter_map(|class| ceiling(class)).collect();
    if link.recent_bps >= FULL * link.rate_bps as f64 {
        holds.push(format!(
            "Link {} is full: {} of {}.",
            link.name,
            rate(link.recent_bps),
            figures::rate(link.rate_bps)
        ));
        holds.extend(path.iter().skip(1).map(|class| rates(link, class)));
    }
    match (class.queued_packets, holds.is_empty()) {
        (0, _) => holds.insert(0, format!("No packets are queued in {}.", class.terms.name)),
        (_, true) => holds.push(
            "No ceiling and no full link holds packets back: those in the queue are on their way."
                .to_owned(),
        ),
        _ => {}
    }
    holds
}

/// Returns a sentence on its ceilings, if they held packets back recently.
fn ceiling(class: &ClassReport) -> Option<String> {
    let recent = class.recent?;
    let name = &class.terms.name;
    let own = class.terms.ceil_bps;
    let own = own.map(|bps| format!("ceiling of {name} ({})", figures::rate(bps)));
    let each = class.terms.each.as_ref().and_then(|each| each.ceil_bps);
    let each = each.map(|bps| format!("ceiling of each flow of {name} ({})", figures::rate(bps)));
    let ceilings: Vec<String> = own.into_iter().chain(each).collect();
    (recent.overlimits > 0 && !ceilings.is_empty()).then(|| {
        format!(
            "The {} held packets back {} times recently.",
            ceilings.join(" or the "),
            recent.overlimits
        )
    })
}

/// Returns a sentence if no packet has matched a filter of the class. The first `granted` rules are those of grants.
fn unmatched(link: &Link, class: &ClassReport, granted: usize) -> Option<String> {
    if class.offered_packets > 0 || !class.terms.queues || class.terms.default {
        return None;
    }
    let place = (link.classes.iter()).position(|other| other.name == class.terms.name)?;
    if link.link_control == Some(place as u32) {
        return None;
    }
    let rules = link.rules.iter().enumerate();
    let own = rules.filter(|(_, rule)| rule.target as usize == place);
    let numbers: Vec<usize> = own.filter_map(|(at, _)| at.checked_sub(granted)).collect();
    let listed = numbers.iter().take(NAMED).map(usize::to_string);
    let listed = listed.collect::<Vec<_>>().join(", ");
    Some(match numbers.len() {
        0 => format!("No filter leads to {}.", class.terms.name),
        1 => format!(
            "No packet has matched filter {listed} of link {} since start.",
            link.name
        ),
        all => {
            let more = match all > NAMED {
                true => ", ..",
                false => "",
            };
            format!(
                "No packet has matched any of the {all} filters of {} since start ({listed}{more}).",
                class.terms.name
            )
        }
    })
}

/// Lists the flows that offered most.
fn heaviest(talkers: &[FlowReport]) -> Option<String> {
    let named = talkers.iter().take(NAMED).map(|talker| {
        let FlowReport {
            flow,
            offered_bps,
            bps,
            ..
        } = talker;
        format!(
            "{flow} offers {} (sends {})",
            rate(*offered_bps),
            rate(*bps)
        )
    });
    let named = named.collect::<Vec<_>>().join(", ");
    (!named.is_empty()).then(|| format!("Top talkers: {named}."))
}

/// Returns remedies for a class.
fn advice(class: &ClassReport, talkers: &[FlowReport]) -> Vec<String> {
    let recent = class.recent.unwrap_or_default();
    let name = &class.terms.name;
    let mut advice = Vec::new();
    if class.offered_packets == 0 && class.terms.queues {
        advice.push(
            "Find the class of a packet with: fairlane ctl classify '<a line of tcpdump -n>'"
                .to_owned(),
        );
        return advice;
    }
    let troubled = recent.bound_applies == Some(false) || recent.drops.total() > 0;
    let heavy = |talker: &&FlowReport| talker.offered_bps > HEAVY * recent.offered_bps;
    if let Some(talker) = talkers.first().filter(heavy).filter(|_| troubled) {
        advice.push(format!(
            "Limit {}: it offers {} of the {} of {name}.",
            talker.flow,
            rate(talker.offered_bps),
            rate(recent.offered_bps)
        ));
    }
    if troubled && class.terms.kind == "leaf" {
        advice.push(format!(
            "Give {name} per = \"source-ip\": each host gets its own queue, so a heavy sender delays only itself."
        ));
    }
    let above = |guaranteed: &u64| recent.offered_bps > *guaranteed as f64;
    if class.terms.guaranteed_bps.is_some_and(|it| above(&it)) {
        advice.push(format!(
            "Raise the rate of {name} to {} or more to guarantee all of its traffic.",
            rate(recent.offered_bps)
        ));
    }
    if let Some(bps) = class.terms.ceil_bps.filter(|_| recent.overlimits > 0) {
        advice.push(format!(
            "Raise the ceiling of {name} (now {}) to let it send more.",
            figures::rate(bps)
        ));
    }
    if advice.is_empty() {
        advice.push(format!(
            "{name} is within its guarantee here: look at other hops, or at packets that match no filter of {name} (fairlane ctl classify)."
        ));
    }
    advice
}
