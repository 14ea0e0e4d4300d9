//! The options for the address of a running site, shared by all commands that send requests to one.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use fairlane_control::{Target, encoded};

/// Options of a command that asks a running site.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// The site's Unix socket
    #[arg(
        long,
        value_name = "PATH",
        global = true,
        env = "FAIRLANE_SOCKET",
        default_value = "/run/fairlane.sock"
    )]
    socket: PathBuf,
    /// Ask over HTTP instead
    #[arg(long, value_name = "ADDR:PORT", global = true)]
    http: Option<SocketAddr>,
    /// File with the token for --http
    #[arg(long, value_name = "FILE", global = true)]
    token: Option<PathBuf>,
}

impl Connection {
    /// Returns the address. Reads the token file, but opens no connection.
    pub(crate) fn target(&self) -> Result<Target> {
        let Some(address) = self.http else {
            return Ok(Target::Socket(self.socket.clone()));
        };
        let token = self.token.as_ref().map(|file| {
            let text = fs::read_to_string(file);
            text.with_context(|| format!("reading {}", file.display()))
        });
        let token = token.transpose()?;
        let line = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
        Ok(Target::Http(address, token.map(line)))
    }
}

/// Returns the path of a link.
pub(crate) fn of_link(link: &str) -> String {
    format!("/v1/links/{}", encoded(link))
}

/// Returns the path of a class.
pub(crate) fn of_class(link: &str, class: &str) -> String {
    format!("{}/classes/{}", of_link(link), encoded(class))
}
