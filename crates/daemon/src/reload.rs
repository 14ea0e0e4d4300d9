//! Another configuration while frames pass.
//!
//! A rejected configuration changes nothing. An accepted one is read, checked, compared with the running one and built
//! on a separate thread; the forwarding thread then switches to it in small steps (`order`). Unchanged parts are not
//! touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlane_config::{Backend, Grant, Interfaces, MtuOf, Site, SiteError};
use fairlane_io::interface;

use crate::error::{Error, Result, unfit};
use fairlane_dataplane::device::xdp::Needs;
use fairlane_dataplane::plan::{Next, Running};

const MTU: MtuOf<'static> = &|name| interface::mtu(name).ok();

/// Reads the file of a site whose interfaces are on this machine, as far as they exist. Of a file that is not regular,
/// such as a pipe, it waits for the end.
///
/// # Errors
///
/// The file cannot be read, or is not valid.
pub fn read(path: &Path) -> std::result::Result<Site, SiteError> {
    Site::read_for(path, MTU)
}

/// The same for a regular file, for callers that must not block.
pub(crate) fn read_regular(path: &Path) -> std::result::Result<Site, SiteError> {
    Site::read_again(path, MTU, &[])
}

/// Returns the MTUs of this machine's interfaces. An absent interface keeps the MTU it had when `running` was read, so
/// that another change does not alter packet lengths meanwhile.
///
/// For a configuration that replaces that one.
pub fn mtu_beside(running: &Site) -> impl Fn(&str) -> Option<u32> {
    move |name| MTU(name).or_else(|| running.mtu_of(name))
}

/// The source of another configuration.
#[derive(Clone, Debug)]
pub enum Source {
    /// A regular file.
    File(PathBuf),
    /// Made or read elsewhere. One made with other grants than required is read again.
    Site(Box<Site>),
    /// The text of a file.
    Text(String),
    /// Any of these, with these grants instead of the running ones.
    Granting(Box<Source>, Vec<Arc<Grant>>),
    /// Any of these, even if it discards changes that are not in the file.
    Discarding(Box<Source>),
}

impl Source {
    /// Returns the file, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            Source::File(path) => Some(path.clone()),
            Source::Granting(source, _) | Source::Discarding(source) => source.path(),
            Source::Site(_) | Source::Text(_) => None,
        }
    }

    /// Whether it may discard changes that are not in the file.
    pub(crate) fn discards(&self) -> bool {
        match self {
            Source::Discarding(_) => true,
            Source::Granting(source, _) => source.discards(),
            Source::File(_) | Source::Site(_) | Source::Text(_) => false,
        }
    }

    /// Reads the site, to replace `running`, with these grants.
    ///
    /// # Errors
    ///
    /// It cannot be read, is not valid, or would break a grant.
    pub fn site(self, running: &Site, grants: &[Arc<Grant>]) -> Result<Site> {
        const NAME: &str = "configuration";
        let mtu = mtu_beside(running);
        match self {
            Source::File(path) => Ok(Site::read_again(&path, &mtu, grants)?),
            Source::Site(site) if has_these(&site.grants, grants) => Ok(*site),
            Source::Site(site) => Ok(Site::parse_beside(&site.text, NAME, &mtu, grants)?),
            Source::Text(text) => Ok(Site::parse_beside(&text, NAME, &mtu, grants)?),
            Source::Granting(source, grants) => source.site(running, &grants),
            Source::Discarding(source) => source.site(running, grants),
        }
    }
}

/// Whether these grants are those.
fn has_these(these: &[Arc<Grant>], those: &[Arc<Grant>]) -> bool {
    let mut pairs = these.iter().zip(those);
    these.len() == those.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
}

/// The configuration to compare with.
pub(crate) struct Former {
    pub(crate) site: Arc<Site>,
    /// Its interfaces after the change.
    pub(crate) interfaces: Option<Interfaces>,
    /// The needs for which the devices were opened.
    pub(crate) needs: Needs,
    pub(crate) links: Vec<Running>,
}

/// A site that was accepted, and its links; none in a dry run.
pub(crate) struct Prepared {
    pub(crate) site: Arc<Site>,
    pub(crate) links: Vec<Next>,
}

impl Former {
    /// Reads a configuration and, unless it is a dry run, builds its links. Their queues take far more memory than the
    /// text: tens of kilobytes for each class of flows.
    pub(crate) fn prepare(&self, source: Source, dry: bool) -> Result<Prepared> {
        let path = source.path();
        let site = source.site(&self.site, &self.site.grants)?;
        self.accept(&site).map_err(|error| match (error, &path) {
            (Error::Unfit(sentence), Some(path)) => {
                Error::Unfit(format!("{}: {sentence}", path.display()))
            }
            (error, _) => error,
        })?;
        let built = if dry { &[] } else { &*site.links };
        let links = built.iter().filter_map(|link| {
            let running = self.links.iter().find(|other| other.link.to == link.to)?;
            Some(running.becomes(Arc::clone(link)))
        });
        Ok(Prepared {
            links: links.collect(),
            site: Arc::new(site),
        })
    }

    /// Returns an error if a site cannot be applied without a restart.
    fn accept(&self, site: &Site) -> Result<()> {
        let before = &*self.site;
        if site.interfaces != self.interfaces
            || site.attach != before.attach
            || site.control != before.control
            || site.workers != before.workers
        {
            return unfit(
                "[interfaces], [attach], [control] and [workers] cannot change without a restart",
            );
        }
        let shared = matches!(&site.interfaces, Some(named) if named.backend == Backend::Xdp);
        if shared && !self.needs.cover(Needs::of(site)) {
            return unfit(
                "more or longer packets than fit into the memory that xdp was started with need a \
                 restart",
            );
        }
        let ends = |site: &Site| {
            let mut ends: Vec<_> = site.links.iter().map(|link| link.to.name()).collect();
            ends.sort_unstable();
            ends
        };
        if ends(site) != ends(&self.site) {
            return unfit("a link can neither come nor go without a restart");
        }
        for link in &site.links {
            let before = self.site.links.iter().find(|before| before.to == link.to);
            if before.is_some_and(|before| before.overhead != link.overhead) {
                return unfit(format!(
                    "the overhead of link {} cannot change without a restart",
                    link.name
                ));
            }
        }
        Ok(())
    }
}
