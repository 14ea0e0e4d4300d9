//! The class and filter of a packet, with the filter's text.

use fairlane_config::{Classified, DescribedPacket, ParsePacketError, Site};
use serde::Serialize;

use crate::document::{Document, FilterText};

/// The class of a packet in a link.
#[derive(Clone, Debug, Serialize)]
pub struct PacketClass {
    /// Link, class, and the number of the filter.
    #[serde(flatten)]
    pub to: Classified,
    /// The conditions of that filter; none in the default class, and of a filter of a grant.
    #[serde(rename = "match")]
    pub matches: Option<String>,
}

/// Returns the class of a packet in each link of a site. O(filters), and the text is read.
///
/// # Errors
///
/// The text describes no packet.
pub fn classify(site: &Site, packet: &str) -> Result<Vec<PacketClass>, ParsePacketError> {
    let packet: DescribedPacket = packet.parse()?;
    let filters = Document::new(&site.text).map(Document::filters);
    let filters = filters.unwrap_or_default();
    let all = site.classify(&packet).into_iter().map(|to| {
        let is = |filter: &&FilterText| filter.link == to.link && Some(filter.number) == to.filter;
        let found = filters.iter().find(is);
        PacketClass {
            matches: found.map(|filter| filter.matches.clone()),
            to,
        }
    });
    Ok(all.collect())
}
