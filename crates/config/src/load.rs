//! Texts and files that become sites, and grants that are admitted to them.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::diagnostic::{Report, SiteError};
use crate::grant::Grant;
use crate::grants::NotGranted;
use crate::site::{MtuOf, Site};
use crate::{draft, file, parse, read, text};

/// No MTU is known.
const UNKNOWN: MtuOf<'static> = &|_| None;

impl Site {
    /// Reads a file of at most [`MAX_FILE`](crate::MAX_FILE) bytes, without knowledge of the machine's interfaces.
    pub fn read(path: &Path) -> Result<Site, SiteError> {
        Site::read_for(path, UNKNOWN)
    }

    /// Reads a file the same way, for a machine with these interfaces.
    pub fn read_for(path: &Path, mtu: MtuOf<'_>) -> Result<Site, SiteError> {
        Site::parse_for(&text::read(path)?, &path.display().to_string(), mtu)
    }

    /// Reads a file again without blocking: only a regular file, because reading a pipe, for example, might never
    /// return. The given grants stay in force.
    pub fn read_again(
        path: &Path,
        mtu: MtuOf<'_>,
        grants: &[Arc<Grant>],
    ) -> Result<Site, SiteError> {
        let name = path.display().to_string();
        Site::parse_beside(&text::read_regular(path)?, &name, mtu, grants)
    }

    /// Parses `text`, which errors call `name`. O(n log n) in its classes and filters, plus the cost of
    /// [`Classifier::unreachable`](fairlane_classify::Classifier::unreachable).
    pub fn parse(text: &str, name: &str) -> Result<Site, SiteError> {
        Site::parse_for(text, name, UNKNOWN)
    }

    /// Parses `text` the same way, for a machine with these interfaces.
    pub fn parse_for(text: &str, name: &str, mtu: MtuOf<'_>) -> Result<Site, SiteError> {
        Site::parse_beside(text, name, mtu, &[])
    }

    /// Reads `text` the same way, keeping these grants. The text must also be valid without them, so that each grant
    /// can end.
    pub fn parse_beside(
        text: &str,
        name: &str,
        mtu: MtuOf<'_>,
        grants: &[Arc<Grant>],
    ) -> Result<Site, SiteError> {
        if grants.is_empty() {
            // If there is nothing to report, parse table by table: the complete set of tables takes too much memory.
            let mut site = match draft::sound(text, mtu) {
                Some(site) => site,
                None => Site::tables_of(text, name, mtu)?.0,
            };
            site.gather_names();
            return Ok(site);
        }
        let (site, mut tables) = Site::tables_of(text, name, mtu)?;
        let together = read::together(&mut tables.0, &site, &[], mtu, grants);
        let together = together.map_err(|broken| SiteError::Grants {
            file: name.to_owned(),
            broken,
        })?;
        Ok(Site {
            text: site.text,
            warnings: site.warnings,
            ..together
        })
    }

    /// Allocates the names of classes again after the other memory used for reading has been freed. Names allocated in
    /// between would keep their pages from being returned to the system.
    fn gather_names(&mut self) {
        for link in self.links.iter_mut().filter_map(Arc::get_mut) {
            // All are allocated before the first is freed, since the next one would take its place.
            let names: Vec<Arc<str>> = (link.classes.iter())
                .map(|class| Arc::from(&*class.name))
                .collect();
            for (at, name) in names.into_iter().enumerate() {
                link.classes.make_mut(at).name = name;
            }
        }
    }

    /// Parses a text and returns its contents together with its tables.
    pub(crate) fn tables_of(
        text: &str,
        name: &str,
        mtu: MtuOf<'_>,
    ) -> Result<(Site, Tables), SiteError> {
        let mut report = Report::new(name, text);
        let tables: Option<Tables> = parse::parse(text, &mut report);
        let site = (tables.as_ref()).and_then(|tables| read::site(&tables.0, mtu, &mut report));
        let warnings = report.finish()?;
        let (site, tables) = site
            .zip(tables)
            .expect("what is not a site has been reported");
        let site = Site {
            text: text.into(),
            warnings,
            ..site
        };
        Ok((site, tables))
    }

    /// Returns the site that these tables describe, without the warnings, or reports the errors.
    pub fn of(tables: &Tables, report: &mut Report) -> Option<Site> {
        read::site(&tables.0, UNKNOWN, report)
    }
}

/// The tables of a site's file as they were written, to be a part of another file.
///
/// ```
/// use fairlane_config::{Report, Site, Tables};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Experiment {
///     seconds: u32,
///     site: Tables,
/// }
///
/// let text = r#"
/// seconds = 5
///
/// [[site.link]]
/// name = "up"
/// to = "outside"
/// rate = "10mbit"
///
/// [[site.link.class]]
/// name = "all"
/// default = true
/// "#;
/// let experiment: Experiment = toml::from_str(text)?;
/// let mut report = Report::new("experiment.toml", text);
/// let site = Site::of(&experiment.site, &mut report);
/// report.finish()?;
/// assert_eq!(site.ok_or("no site")?.links[0].name, "up");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Tables(pub(crate) file::File);

impl Grant {
    /// Finds capacity for a grant in addition to others and a valid text. Returns it with the least reserved rate, in
    /// whole kilobits if that is more than the granted rate, that keeps its terms whatever siblings are added later,
    /// and breaks no other guarantee. The value of `reserved` on input is ignored.
    ///
    /// Reads the link's classes about ten times if it is granted, fifty times if it is refused: O(n) each, since a
    /// class's own settings are read once.
    ///
    /// # Errors
    ///
    /// The grant is refused, with the best alternatives.
    pub fn admit(
        self,
        text: &str,
        mtu: MtuOf<'_>,
        others: &[Arc<Grant>],
    ) -> Result<Grant, NotGranted> {
        let (site, mut tables) = Site::tables_of(text, "configuration", mtu)?;
        read::admit(&mut tables.0, &site, &[], mtu, others, self)
    }
}
