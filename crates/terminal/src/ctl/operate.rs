//! Operations on a running site other than changes of its configuration.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use fairlane_control::{Document, Method, encoded};
use serde_json::{Value as Json, json};

use super::{Change, Site, of_link};
use crate::output;

/// Maximum number of queries, and the pause between them, while the state may not show the last operation yet.
const LOOKS: u32 = 5;
const SOON: Duration = Duration::from_millis(100);

/// An interface.
#[derive(Clone, Debug, Args)]
pub(super) struct Interface {
    /// The interface: its name, or its role in the site file (outside, inside)
    interface: String,
}

/// An interface, and the one that it replaces.
#[derive(Clone, Debug, Args)]
pub(super) struct Attach {
    /// The interface to attach
    interface: String,
    /// The interface to replace: its name, or its role (outside, inside) [default: the detached
    /// one]
    #[arg(long = "as", value_name = "PLACE")]
    place: Option<String>,
    #[command(flatten)]
    change: Change,
}

/// The backlog to drop.
#[derive(Clone, Debug, Args)]
pub(super) struct Flush {
    /// A link, or a class as CLASS or LINK/CLASS
    #[arg(value_name = "LINK|CLASS")]
    what: String,
}

impl Interface {
    /// Turns shaping of its egress on or off.
    pub(super) fn shape(&self, site: &Site, enabled: bool) -> Result<()> {
        let path = format!("/v1/interfaces/{}/shaping", encoded(&self.interface));
        let body = json!({ "enabled": enabled }).to_string();
        let done = site.client.json(Method::PUT, &path, body)?;
        match (site.json, enabled) {
            (true, _) => output::json(&done),
            (false, true) => output::line(format_args!(
                "traffic leaving by {} is shaped",
                self.interface
            )),
            (false, false) => output::line(format_args!(
                "traffic leaving by {} passes unshaped; fairlane ctl enable {0} shapes it again",
                self.interface
            )),
        }
    }
}

impl Interface {
    /// Detaches the interface.
    pub(super) fn detach(&self, site: &Site) -> Result<()> {
        let path = format!("/v1/interfaces/{}/detach", encoded(&self.interface));
        let done = site.client.json(Method::POST, &path, "")?;
        match site.json {
            true => output::json(&done),
            false => output::line(format_args!(
                "{} detached; fairlane ctl attach uses it again, or attaches another interface",
                self.interface
            )),
        }
    }
}

impl Attach {
    /// Attaches the interface and prints the effects.
    pub(super) fn run(&self, site: &Site) -> Result<()> {
        let place = match &self.place {
            Some(place) => place.clone(),
            None => self.only_place(site)?,
        };
        let path = format!("/v1/interfaces/{}/attach", encoded(&place));
        let body = json!({ "interface": self.interface }).to_string();
        site.ask_to_change(Method::POST, &path, body, &self.change)
    }

    /// Returns the place of the interface with this name, or else that of the only detached interface.
    fn only_place(&self, site: &Site) -> Result<String> {
        for _ in 0..LOOKS {
            let told = site.client.json(Method::GET, "/v1/interfaces", "")?;
            let all = told.as_array().map_or(&[][..], Vec::as_slice);
            let name = |it: &Json| it["name"].as_str().unwrap_or_default().to_owned();
            let detached = || all.iter().filter(|it| it["attached"] == false);
            match (detached().next(), detached().count()) {
                _ if all.iter().any(|it| name(it) == self.interface) => {
                    return Ok(self.interface.clone());
                }
                (Some(only), 1) => return Ok(name(only)),
                (Some(_), _) => break,
                // A detachment may not be in the published state yet.
                (None, _) => thread::sleep(SOON),
            }
        }
        bail!(
            "missing --as: \"{}\" can replace \"outside\" or \"inside\"",
            self.interface
        )
    }
}

impl Flush {
    /// Drops the backlog and prints its size.
    pub(super) fn run(&self, site: &Site) -> Result<()> {
        let text = site.client.ask(Method::GET, "/v1/config", "")?;
        let links = Document::new(&String::from_utf8_lossy(&text))?.links();
        // A class with the name of a link must be given with its link.
        let path = match links.contains(&self.what) {
            true => of_link(&self.what),
            false => site.of_class(&self.what)?,
        };
        let dropped = site
            .client
            .json(Method::POST, &format!("{path}/flush"), "")?;
        match site.json {
            true => output::json(&dropped),
            false => output::line(format_args!(
                "dropped {} packets, {} bytes",
                dropped["packets"], dropped["bytes"]
            )),
        }
    }
}
