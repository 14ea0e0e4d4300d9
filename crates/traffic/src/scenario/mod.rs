//! A scenario: a site's link with sources, or a network with sources and destinations. Errors in one are reported as
//! for a site's file, with line and column.

mod link_run;
mod network;
mod network_run;
mod packet;
mod run;
mod sends;
mod source;
mod written;

pub use link_run::{LinkOutcome, Rates, SourceOutcome};
pub use network_run::{DelaysReport, FlowsReport, NetworkOutcome, WireReport};
pub use run::{Outcome, Run};

use std::path::{Path, PathBuf};

use fairlane_classify::DigestKey;
use fairlane_config::{At, Link, Report, Site, SiteError, Text, parse};
use fairlane_core::Nanos;

use crate::links::choose_link;
use sends::time;
use source::{Reader, Source};
use written::Place;

const MOST_SECONDS: f64 = 1e6;

const SECONDS: f64 = 10.0;
const SEED: u64 = 1;

/// A scenario that was found to be sound.
pub struct Scenario {
    pub(crate) plan: Plan,
    /// Time that is measured, in seconds.
    pub seconds: f64,
    /// Time before that.
    pub warm_up: Nanos,
    /// Of all that is random.
    pub seed: u64,
    /// As the site's file has them, and the scenario.
    pub warnings: Vec<String>,
}

/// The simulated system.
pub(crate) enum Plan {
    /// A site's link, and its sources.
    Link(Box<Link>, Vec<Source>),
    /// A network.
    Network(network::Plan),
}

/// Digests that are the same in every run.
fn digest_key(seed: u64) -> DigestKey {
    DigestKey([seed, !seed])
}

impl Scenario {
    /// Returns the simulated link, if it is one.
    pub fn link(&self) -> Option<&Link> {
        match &self.plan {
            Plan::Link(link, _) => Some(link),
            Plan::Network(_) => None,
        }
    }

    /// Reads a file; `asked` is the link to simulate instead of the scenario's.
    ///
    /// # Errors
    ///
    /// It cannot be read, or the scenario or its site is not sound: a sentence for each place.
    pub fn read(path: &Path, asked: Option<&str>) -> Result<Scenario, SiteError> {
        Scenario::parse(&fairlane_config::read_text(path)?, path, asked)
    }

    /// Parses `text` as the content of `path`; a relative path of a site's file starts at its folder.
    fn parse(text: &str, path: &Path, asked: Option<&str>) -> Result<Scenario, SiteError> {
        let name = path.display().to_string();
        let mut report = Report::new(&name, text);
        let mut scenario = None;
        if let Some(written) = parse::<written::Scenario>(text, &mut report) {
            let folder = path.parent().unwrap_or(Path::new(""));
            scenario = read(&written, folder, asked, &mut report)?;
        }
        let warnings = report.finish()?;
        let mut scenario = scenario.expect("errors have been reported");
        let own = warnings.iter().map(ToString::to_string);
        scenario.warnings.extend(own);
        Ok(scenario)
    }
}

/// Returns the site; `None` if that part of the scenario has errors. An error in a separate file refers to that file.
fn site(at: &At<Place>, folder: &Path, report: &mut Report) -> Result<Option<Site>, SiteError> {
    match at.value() {
        Place::Here(tables) => Ok(Site::of(tables, report)),
        Place::File(name) => {
            let path: PathBuf = folder.join(name);
            match Site::read(&path) {
                Err(SiteError::Unreadable { reason, .. }) => {
                    let path = path.display();
                    report.error(&at.span(), format!("site '{name}': {path}: {reason}"));
                    Ok(None)
                }
                read => read.map(Some),
            }
        }
    }
}

fn read(
    written: &written::Scenario,
    folder: &Path,
    asked: Option<&str>,
    report: &mut Report,
) -> Result<Option<Scenario>, SiteError> {
    let before = report.errors();
    let mut warnings = Vec::new();
    let plan = match &written.site {
        Some(at) => {
            let node = written.node.first().map(|node| node.name.span());
            let wire = written.wire.first().map(|wire| wire.from.span());
            if let Some(at) = node.or(wire) {
                let sentence = "a scenario is of a site's link or of a network, not of both";
                report.error(&at, sentence);
            }
            let Some(site) = site(at, folder, report)? else {
                return Ok(None);
            };
            warnings.extend(site.warnings.iter().map(ToString::to_string));
            let Some(link) = link(written, at, &site, asked, report) else {
                return Ok(None);
            };
            let sources = sources(written, link, &site, report);
            Some(Plan::Link(Box::new(link.clone()), sources))
        }
        None if written.node.is_empty() => {
            let sentence =
                "the key 'site' is missing: a site's file or tables, or [[node]]s of a network";
            report.error(&(0..0), sentence);
            return Ok(None);
        }
        None => {
            if let Some(at) = written
                .link
                .as_ref()
                .map(Text::span)
                .or(asked.map(|_| 0..0))
            {
                report.error(&at, "link: a network has wires, and all are simulated");
            }
            network::Plan::read(written, report).map(Plan::Network)
        }
    };
    let seconds = written.seconds.as_ref();
    if let Some(at) = seconds.filter(|at| !(*at.value() > 0.0 && *at.value() <= MOST_SECONDS)) {
        let sentence = format!("seconds {}: it is above 0 and at most 1e6", at.value());
        report.error(&at.span(), sentence);
    }
    let warm_up = time("warm-up", &written.warm_up, report);
    let seed = written.seed.as_ref();
    let seed = seed.and_then(|seed| seed.within("seed", 0..i64::MAX, report));
    if written.source.is_empty() {
        report.error(&(0..0), "no [[source]] (at least one is required)");
    }
    let plan = plan.filter(|_| report.errors() == before);
    Ok(plan.map(|plan| Scenario {
        plan,
        seconds: seconds.map_or(SECONDS, |at| *at.value()),
        warm_up: warm_up.unwrap_or(Nanos::ZERO),
        seed: seed.unwrap_or(SEED),
        warnings,
    }))
}

/// Returns the sources of a link; errors in them are reported.
fn sources(
    written: &written::Scenario,
    link: &Link,
    site: &Site,
    report: &mut Report,
) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut total = 0;
    for (number, at) in written.source.iter().enumerate() {
        let reader = Reader {
            source: at.value(),
            link,
            site,
        };
        if let Some(source) = reader.read(number, report) {
            source.sends.count_in(&mut total, at, report);
            sources.push(source);
        }
    }
    sources
}

/// Returns the requested link, else the scenario's, else the only one.
fn link<'a>(
    written: &written::Scenario,
    at: &At<Place>,
    site: &'a Site,
    asked: Option<&str>,
    report: &mut Report,
) -> Option<&'a Link> {
    let (name, place) = match (asked, &written.link) {
        (Some(name), _) => (Some(name), 0..0),
        (None, Some(text)) => (Some(text.value().as_str()), text.span()),
        (None, None) => (None, at.span()),
    };
    match choose_link(site, name) {
        Ok(link) => Some(link),
        Err(sentence) => {
            report.error(&place, sentence);
            None
        }
    }
}
