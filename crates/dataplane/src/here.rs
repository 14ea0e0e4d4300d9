//! Whether this machine can run a site, before anything is opened.

use fairlane_config::{Near, Site};
use fairlane_io::interface;
use fairlane_runtime::Clock;

use crate::counts::worker_options;
use crate::device::opener::check_memory;
use crate::device::xdp::Needs;
use crate::error::{Result, unfit};
use crate::interfaces::named;

/// Checks a site on a machine that has at least one of its interfaces, as opening it would: Ethernet
/// frames, queues, MTUs, memory for the backend, cores for workers. Returns the names of missing interfaces; `None` where
/// all of them are missing, since the file is for another machine.
///
/// # Errors
///
/// That of the run.
pub fn fits_here(site: &Site) -> Result<Option<Vec<String>>> {
    let Some(interfaces) = &site.interfaces else {
        return Ok(None);
    };
    let is_here = |name: &str| interface::mtu(name).is_ok();
    let (here, missing): (Vec<&String>, Vec<_>) = named(interfaces).partition(|name| is_here(name));
    if here.is_empty() {
        return Ok(None);
    }
    for name in here {
        interface::check_ethernet(name)?;
    }
    if let Near::Tap(tap) = &interfaces.near
        && is_here(tap)
        && !interface::is_tap(tap)?
    {
        return unfit(format!(
            "tap {tap:?}: an interface of another kind has that name: name a tap device, or one that is not there"
        ));
    }
    let workers = worker_options(site, Clock::start(), false)?;
    check_memory(interfaces, Needs::of(site), &workers)?;
    Ok(Some(missing.into_iter().cloned().collect()))
}
