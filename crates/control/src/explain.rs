//! Why packets of a class wait, in words.

use fairlane_config::class_report::ClassReport;
use fairlane_core::Rate;
use fairlane_site::LinkReport;
use serde::Serialize;

/// The part of a rate from which on it counts as used up.
const FULL: f64 = 0.95;
/// Siblings that are named at most.
const NAMED: usize = 3;

/// What is known of a class that has something to send.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Its link.
    pub link: String,
    /// Its name.
    pub class: String,
    /// Packets that wait in it, or below it.
    pub queued_packets: u64,
    /// Why, from what holds it most closely to what does so from afar; one sentence each.
    pub because: Vec<String>,
}

/// A rate as people write it.
fn rate(bps: f64) -> String {
    let whole = Rate::from_bps(bps.round() as u64);
    whole.map_or_else(|| format!("{bps:.0}bit"), |rate| rate.to_string())
}

fn recent_bps(class: &ClassReport) -> f64 {
    class.recent.map_or(0.0, |recent| recent.sent_bps)
}

/// By what was counted of late. O(classes).
pub(crate) fn explain(link: &LinkReport, class: &ClassReport) -> Explanation {
    let mut because = Vec::new();
    let mut at = Some(class);
    while let Some(class) = at {
        because.extend(ceiling(class));
        let parent = class.terms.parent.as_deref();
        at = parent.and_then(|parent| named(link, parent));
    }
    if link.recent_bps >= FULL * link.rate_bps as f64 {
        because.push(format!(
            "the link '{}' is full: it carries {} of {}",
            link.name,
            rate(link.recent_bps),
            rate(link.rate_bps as f64)
        ));
        let mut at = Some(class);
        while let Some(class) = at {
            because.push(beside(link, class));
            let parent = class.terms.parent.as_deref();
            at = parent.and_then(|parent| named(link, parent));
        }
    }
    if class.queued_packets == 0 {
        because.insert(
            0,
            format!("nothing waits in class '{}' now", class.terms.name),
        );
    } else if because.is_empty() {
        because.push(
            "neither a ceiling nor the link is used up: what waits is on its way, and leaves at \
             the pace of the link"
                .to_owned(),
        );
    }
    Explanation {
        link: link.name.to_string(),
        class: class.terms.name.to_string(),
        queued_packets: class.queued_packets,
        because,
    }
}

fn named<'a>(link: &'a LinkReport, name: &str) -> Option<&'a ClassReport> {
    let mut classes = link.classes.iter();
    classes.find(|class| &*class.terms.name == name)
}

/// Whether its ceiling held it lately.
fn ceiling(class: &ClassReport) -> Option<String> {
    let recent = class.recent?;
    let own = class
        .terms
        .ceil_bps
        .map(|bps| format!("of class '{}', {}", class.terms.name, rate(bps as f64)));
    let each = class.terms.each.as_ref().and_then(|each| each.ceil_bps);
    let each = each.map(|bps| {
        format!(
            "of each flow of class '{}', {}",
            class.terms.name,
            rate(bps as f64)
        )
    });
    let ceilings: Vec<String> = own.into_iter().chain(each).collect();
    (recent.throttled > 0 && !ceilings.is_empty()).then(|| {
        format!(
            "the ceiling {}, held packets back {} times lately; the class sends {}",
            ceilings.join(", or "),
            recent.throttled,
            rate(recent.sent_bps)
        )
    })
}

/// What a class has beside its siblings.
fn beside(link: &LinkReport, class: &ClassReport) -> String {
    let siblings = link.classes.iter().filter(|other| {
        other.terms.parent == class.terms.parent && other.terms.name != class.terms.name
    });
    let mut busy: Vec<&ClassReport> = siblings.filter(|other| recent_bps(other) > 0.0).collect();
    busy.sort_by(|a, b| recent_bps(b).total_cmp(&recent_bps(a)));
    let names = busy.iter().take(NAMED).map(|other| {
        let guaranteed = other.terms.guaranteed_bps.map_or(String::new(), |bps| {
            format!(" (guaranteed {})", rate(bps as f64))
        });
        format!(
            "'{}' {}{guaranteed}",
            other.terms.name,
            rate(recent_bps(other))
        )
    });
    let names = names.collect::<Vec<_>>();
    let others = match (names.is_empty(), busy.len().saturating_sub(NAMED)) {
        (true, _) => "nobody else sends".to_owned(),
        (false, 0) => format!("beside it send {}", names.join(", ")),
        (false, more) => format!("beside it send {} and {more} more", names.join(", ")),
    };
    let has = match class.terms.guaranteed_bps {
        Some(bps) => format!(
            "class '{}' sends {} of the {} that it is guaranteed",
            class.terms.name,
            rate(recent_bps(class)),
            rate(bps as f64)
        ),
        None => format!(
            "class '{}' sends {} and is guaranteed nothing",
            class.terms.name,
            rate(recent_bps(class))
        ),
    };
    format!("{has}; {others}")
}
