//! What a site guarantees, link by link: what `fairlane check --json` prints, for whoever asks for it.

use std::sync::Arc;

use serde::Serialize;

use crate::class_report::{ClassTerms, FlowTerms};
use crate::{Link, LongestBy, Site};

/// What a site guarantees.
#[derive(Clone, Debug, Serialize)]
pub struct SiteReport {
    /// By direction.
    pub links: Vec<LinkReport>,
    /// What is hardly meant, a sentence each.
    pub warnings: Vec<String>,
}

/// What a link guarantees. Rates are in bit/s, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// By where its packets leave.
    pub to: &'static str,
    /// Its rate.
    pub rate_bps: u64,
    /// Bytes that each packet takes beside its own.
    pub overhead: u32,
    /// The longest packet, with overhead.
    pub longest: u32,
    /// What a packet counts for at least where room is reckoned in packets.
    pub shortest: u32,
    /// The most packets that wait in the link.
    pub limit_packets: u32,
    /// The most bytes.
    pub limit_bytes: u64,
    /// What of the packets is kept for no class.
    pub shared_packets: u64,
    /// What of the bytes.
    pub shared_bytes: u64,
    /// What the longest packet follows from: `file`, `interface`, or `assumed`.
    pub longest_by: &'static str,
    /// The same in words, behind the length.
    #[serde(skip)]
    pub reason: String,
    /// The algorithm among the topmost classes.
    pub algorithm: String,
    /// How many filters there are.
    pub filters: usize,
    /// Its classes, in the order of the file.
    pub classes: Vec<ClassRow>,
}

/// A class; `flows` is what the terms call `each`.
#[derive(Clone, Debug, Serialize)]
pub struct ClassRow {
    /// What it is, and what it is promised.
    #[serde(flatten)]
    pub terms: Arc<ClassTerms>,
    /// Each flow of a class of flows.
    pub flows: Option<FlowTerms>,
}

impl SiteReport {
    /// Of all links. O(classes).
    pub fn new(site: &Site) -> SiteReport {
        SiteReport {
            links: site
                .links
                .iter()
                .map(|link| LinkReport::new(link))
                .collect(),
            warnings: site.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl LinkReport {
    fn new(link: &Link) -> LinkReport {
        let kept = link.kept();
        let row = |terms: Arc<ClassTerms>| ClassRow {
            flows: terms.each.as_deref().cloned(),
            terms,
        };
        LinkReport {
            name: link.name.clone(),
            to: link.to.name(),
            rate_bps: link.rate.bps(),
            overhead: link.overhead,
            longest: link.longest.get(),
            shortest: link.shortest().get(),
            limit_packets: link.limits.packets,
            limit_bytes: link.limits.bytes,
            shared_packets: u64::from(link.limits.packets) - kept.0,
            shared_bytes: link.limits.bytes - kept.1,
            longest_by: match link.longest_by {
                LongestBy::File => "file",
                LongestBy::Interface { .. } => "interface",
                LongestBy::Assumed => "assumed",
            },
            reason: match link.longest_by {
                LongestBy::File => String::new(),
                LongestBy::Interface { mtu } => format!(" (its MTU is {mtu})"),
                LongestBy::Assumed => " (an MTU of 1500 is assumed)".to_owned(),
            },
            algorithm: link.algorithm.to_string(),
            filters: link.rules.len(),
            classes: ClassTerms::of(link).iter().cloned().map(row).collect(),
        }
    }
}
