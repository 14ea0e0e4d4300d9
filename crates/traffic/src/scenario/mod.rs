//! A scenario: a site's link and who sends through it. What is wrong with one is said as of a
//! site's file, with line and column.

mod packet;
mod run;
mod source;
mod written;

pub use run::{Outcome, Rates, Run, SourceOutcome};

use std::path::{Path, PathBuf};

use fairlane_classify::DigestKey;
use fairlane_config::{Link, Report, Site, SiteError, parse};
use fairlane_core::Nanos;

use crate::links::choose_link;
use source::{MOST_SOURCES, Reader, Source, time};
use written::Place;

const MOST_SECONDS: f64 = 1e6;

const SECONDS: f64 = 10.0;
const SEED: u64 = 1;

/// A scenario that was found to be sound.
pub struct Scenario {
    /// The link that is simulated.
    pub link: Link,
    /// Time that is measured, in seconds.
    pub seconds: f64,
    /// Time before that.
    pub warm_up: Nanos,
    /// Of all that is random.
    pub seed: u64,
    pub(crate) sources: Vec<Source>,
    /// As the site's file has them, and the scenario.
    pub warnings: Vec<String>,
}

/// Digests that are the same in every run.
fn digest_key(seed: u64) -> DigestKey {
    DigestKey([seed, !seed])
}

impl Scenario {
    /// Reads a file; `asked` is the link to simulate in place of the scenario's.
    ///
    /// # Errors
    ///
    /// It cannot be read, or the scenario or its site is not sound: a sentence for each place.
    pub fn read(path: &Path, asked: Option<&str>) -> Result<Scenario, SiteError> {
        Scenario::parse(&fairlane_config::read_text(path)?, path, asked)
    }

    /// Reads `text`, as if it were in `path`: a site's file is looked for beside it.
    fn parse(text: &str, path: &Path, asked: Option<&str>) -> Result<Scenario, SiteError> {
        let name = path.display().to_string();
        let mut report = Report::new(&name, text);
        let mut scenario = None;
        if let Some(written) = parse::<written::Scenario>(text, &mut report) {
            let folder = path.parent().unwrap_or(Path::new(""));
            let site = site(&written, folder, &mut report)?;
            scenario = site.and_then(|site| read(&written, site, asked, &mut report));
        }
        let warnings = report.finish()?;
        let mut scenario = scenario.expect("what is not a scenario has been reported");
        let own = warnings.iter().map(ToString::to_string);
        scenario.warnings.extend(own);
        Ok(scenario)
    }
}

/// The site; none where something is wrong with that part of the scenario. An error of a file
/// of its own is that file's.
fn site(
    written: &written::Scenario,
    folder: &Path,
    report: &mut Report,
) -> Result<Option<Site>, SiteError> {
    match written.site.value() {
        Place::Here(tables) => Ok(Site::of(tables, report)),
        Place::File(name) => {
            let path: PathBuf = folder.join(name);
            match Site::read(&path) {
                Err(SiteError::Unreadable { reason, .. }) => {
                    let at = written.site.span();
                    let path = path.display();
                    report.error(&at, format!("site '{name}': {path}: {reason}"));
                    Ok(None)
                }
                read => read.map(Some),
            }
        }
    }
}

fn read(
    written: &written::Scenario,
    site: Site,
    asked: Option<&str>,
    report: &mut Report,
) -> Option<Scenario> {
    let before = report.errors();
    let link = link(written, &site, asked, report)?;
    let seconds = written.seconds.as_ref();
    if let Some(at) = seconds.filter(|at| !(*at.value() > 0.0 && *at.value() <= MOST_SECONDS)) {
        let sentence = format!("seconds {}: it is above 0 and at most 1e6", at.value());
        report.error(&at.span(), sentence);
    }
    let warm_up = time("warm-up", &written.warm_up, report);
    let seed = written.seed.as_ref();
    let seed = seed.and_then(|seed| seed.within("seed", 0..i64::MAX, report));
    if written.source.is_empty() {
        report.error(&(0..0), "there is no [[source]]: somebody has to send");
    }
    let mut sources = Vec::new();
    let mut total = 0;
    for (number, at) in written.source.iter().enumerate() {
        let reader = Reader {
            source: at.value(),
            link,
            site: &site,
        };
        if let Some(source) = reader.read(number, report) {
            total += source.count as usize;
            if total > MOST_SOURCES && total - source.count as usize <= MOST_SOURCES {
                let sentence = format!("these make more than {MOST_SOURCES} sources");
                report.error(&at.span(), sentence);
            }
            sources.push(source);
        }
    }
    (report.errors() == before).then(|| Scenario {
        link: link.clone(),
        seconds: seconds.map_or(SECONDS, |at| *at.value()),
        warm_up: warm_up.unwrap_or(Nanos::ZERO),
        seed: seed.unwrap_or(SEED),
        sources,
        warnings: site.warnings.iter().map(ToString::to_string).collect(),
    })
}

/// The link that is asked for, else that which the scenario names, else the only one.
fn link<'a>(
    written: &written::Scenario,
    site: &'a Site,
    asked: Option<&str>,
    report: &mut Report,
) -> Option<&'a Link> {
    let (name, place) = match (asked, &written.link) {
        (Some(name), _) => (Some(name), 0..0),
        (None, Some(text)) => (Some(text.value().as_str()), text.span()),
        (None, None) => (None, written.site.span()),
    };
    match choose_link(site, name) {
        Ok(link) => Some(link),
        Err(sentence) => {
            report.error(&place, sentence);
            None
        }
    }
}
