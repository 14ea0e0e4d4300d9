//! Reading the configuration again while frames pass.
//!
//! A file that is refused changes nothing. One that is accepted is read, checked, compared with
//! the running one and made on a thread of its own; the forwarding thread then goes over to it
//! in small steps (`order`). What did not change is not touched.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fairlane_config::{Backend, Site};

use super::device::Needs;
use super::needs;
use super::plan::{Next, Running};
use crate::machine::read_site_again;

/// What a file is compared with.
#[derive(Clone)]
pub struct Former {
    pub path: PathBuf,
    pub site: Site,
    /// What the devices were opened for.
    pub needs: Needs,
    pub links: Vec<Running>,
}

/// A site that was accepted, and its links.
pub struct Prepared {
    pub site: Site,
    pub links: Vec<Next>,
}

impl Former {
    /// Reads the file and makes what its links need.
    pub fn prepare(&self) -> Result<Prepared> {
        let site = self.accept(&self.path)?;
        let links = site.links.iter().filter_map(|link| {
            let running = self
                .links
                .iter()
                .find(|running| running.link.to == link.to)?;
            Some(running.becomes(link.clone()))
        });
        Ok(Prepared {
            links: links.collect(),
            site,
        })
    }

    /// The site that the file describes, if it can take over without a restart.
    fn accept(&self, path: &Path) -> Result<Site> {
        let site = read_site_again(path)?;
        let file = path.display();
        if site.interfaces != self.site.interfaces || site.attach != self.site.attach {
            bail!("{file}: [interfaces] and [attach] cannot change without a restart");
        }
        let shared = matches!(&site.interfaces, Some(named) if named.backend == Backend::Xdp);
        if shared && !self.needs.cover(needs(&site)) {
            bail!(
                "{file}: more or longer packets than fit into the memory that xdp was started \
                 with need a restart"
            );
        }
        let ends = |site: &Site| {
            let mut ends: Vec<_> = site.links.iter().map(|link| link.to.name()).collect();
            ends.sort_unstable();
            ends
        };
        if ends(&site) != ends(&self.site) {
            bail!("{file}: a link can neither come nor go without a restart");
        }
        for link in &site.links {
            let before = self.site.links.iter().find(|before| before.to == link.to);
            if before.is_some_and(|before| before.overhead != link.overhead) {
                bail!(
                    "{file}: the overhead of link {} cannot change without a restart",
                    link.name
                );
            }
        }
        Ok(site)
    }
}
