//! What the program asks of the machine that it runs on.

use std::path::Path;

use fairlane_config::{MtuOf, Site, SiteError};
use fairlane_io::interface;

const MTU_OF: MtuOf<'static> = &|name| interface::mtu(name).ok();

/// Reads the file of a site whose interfaces are this machine's, as far as they are there.
pub fn read_site(path: &Path) -> Result<Site, SiteError> {
    Site::read_for(path, MTU_OF)
}

/// Reads such a file again while frames pass.
pub fn read_site_again(path: &Path) -> Result<Site, SiteError> {
    Site::read_again(path, MTU_OF)
}
