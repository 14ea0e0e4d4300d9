//! Events of a running site, in addition to its reports.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairlane_runtime::attach::Refusals;
use tracing::field::display;
use tracing::{info, warn};

use crate::error::Error;
use fairlane_dataplane::event::Event;

/// An event. Displayed, it is one line. The same events are emitted through `tracing` for logs, with interface, error
/// and so on as fields.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Something is allowed and hardly meant.
    Warning(String),
    /// The kernel forwards packets past the site from now on: the message says which, and what to change.
    Bypassed(String),
    /// It no longer does.
    BypassEnded(String),
    /// An interface has another MTU.
    MtuChanged {
        /// Its name.
        interface: String,
        /// The MTU, in bytes.
        mtu: u32,
        /// The one before.
        former: u32,
        /// Length in bytes of the longest frame of the link that leaves by it, if any: that does not change.
        longest: Option<u32>,
    },
    /// An interface was deleted. Packets for it are dropped until an interface of that name appears.
    Gone(String),
    /// An interface that was deleted is there again, and used.
    Back(String),
    /// An interface has reappeared and cannot be used; it is tried again.
    Unusable {
        /// Its name.
        interface: String,
        /// Why.
        error: Error,
    },
    /// An interface was detached on request. Packets for it are dropped until another is attached.
    Detached(String),
    /// An interface was attached, as was asked for.
    Attached(String),
    /// Early drop is not possible at an interface. Reported once.
    NoEarlyDrop {
        /// Its name.
        interface: String,
        /// The system's error.
        reason: io::Error,
    },
    /// Many frames of a link are of a protocol that no filter looks into. Logged once a link.
    Opaque {
        /// The link's name.
        link: Arc<str>,
        /// The most frequent protocol among them.
        protocol: Arc<str>,
        /// Their number among the recent frames.
        frames: u64,
        /// Recent frames that arrived at the classes of the link.
        offered: u64,
    },
    /// Processes were refused to attach: one notice a report, however many they are.
    NotAttached(Refusals),
    /// A configuration was applied.
    Reloaded {
        /// The file that it was read from, if it was.
        file: Option<PathBuf>,
        /// The classes with other guarantees or parameters, each as `link/class`: their number, and the names
        /// of the first ones.
        changed: (usize, Vec<String>),
        /// Changes that were not in the file, and were discarded.
        discarded: u64,
    },
    /// A configuration cannot be applied. The running one is kept.
    ReloadRefused(Error),
    /// Another process forwards from now on.
    HandedOver {
        /// Which.
        to: u32,
        /// The frames that waited.
        frames: u64,
    },
    /// This process has taken over from another.
    TookOver {
        /// Which.
        from: u32,
        /// Time between the last round of the other and the first of this one.
        stood: Duration,
    },
    /// Another process failed to take over: this one continues.
    NotHandedOver(u32),
}

impl Notice {
    /// Logs the event through `tracing`, as a warning if it reports a problem.
    fn log(&self) {
        match self {
            Notice::Warning(_) => warn!(name: "warning", "{self}"),
            Notice::Bypassed(_) => warn!(name: "bypass", "{self}"),
            Notice::BypassEnded(_) => info!(name: "bypass ended", "{self}"),
            Notice::MtuChanged {
                interface,
                mtu,
                former,
                ..
            } => warn!(name: "mtu changed", interface, mtu, former, "{self}"),
            Notice::Gone(interface) => warn!(name: "gone", interface, "{self}"),
            Notice::Back(interface) => info!(name: "back", interface, "{self}"),
            Notice::Unusable { interface, error } => {
                warn!(name: "unusable", interface, %error, "{self}");
            }
            Notice::Detached(interface) => info!(name: "detached", interface, "{self}"),
            Notice::Attached(interface) => info!(name: "attached", interface, "{self}"),
            Notice::NoEarlyDrop { interface, reason } => {
                warn!(name: "no early drop", interface, error = %reason, "{self}");
            }
            Notice::Opaque {
                link,
                protocol,
                frames,
                offered,
            } => {
                let (link, protocol) = (&**link, &**protocol);
                warn!(name: "opaque protocol", link, protocol, frames, offered, "{self}");
            }
            Notice::NotAttached(_) => warn!(name: "not attached", "{self}"),
            Notice::Reloaded {
                file,
                changed,
                discarded,
            } => {
                let file = file.as_ref().map(|path| display(path.display()));
                let changed = changed.0;
                match discarded {
                    0 => info!(name: "reloaded", file, changed, "{self}"),
                    _ => warn!(name: "reloaded", file, changed, discarded, "{self}"),
                }
            }
            Notice::ReloadRefused(error) => warn!(name: "reload refused", %error, "{self}"),
            Notice::HandedOver { to, frames } => info!(name: "handed over", to, frames, "{self}"),
            Notice::TookOver { from, stood } => {
                let stood_us = stood.as_micros();
                info!(name: "took over", from, stood_us, "{self}");
            }
            Notice::NotHandedOver(to) => warn!(name: "not handed over", to, "{self}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Warning(text) | Notice::Bypassed(text) => write!(f, "warning: {text}"),
            Notice::BypassEnded(text) => write!(f, "no longer so: {text}"),
            Notice::MtuChanged {
                interface,
                mtu,
                former,
                longest,
            } => {
                write!(f, "{interface}: the MTU is {mtu} now, {former} before")?;
                match longest {
                    Some(longest) => write!(
                        f,
                        "; its link carries frames of up to {longest} bytes until the file is read again"
                    ),
                    None => Ok(()),
                }
            }
            Notice::Gone(name) => write!(
                f,
                "{name} is missing: its egress is dropped until it returns"
            ),
            Notice::Back(name) => write!(f, "{name} is back"),
            Notice::Detached(name) => write!(
                f,
                "{name} was detached: its egress is dropped until an interface is attached"
            ),
            Notice::Attached(name) => write!(f, "{name} was attached"),
            Notice::Unusable { interface, error } => {
                write!(f, "{interface} is back and cannot be used: {error}")
            }
            Notice::NoEarlyDrop { interface, reason } => {
                write!(f, "{interface}: no early drop under overload: {reason}")
            }
            Notice::Opaque {
                link,
                protocol,
                frames,
                offered,
            } => write!(
                f,
                "link {link}: filters cannot match {frames} of {offered} frames, of {protocol}: they share the class \
                 and flow of their MAC addresses and VLAN"
            ),
            Notice::NotAttached(refusals) => refusals.fmt(f),
            Notice::Reloaded {
                file,
                changed,
                discarded,
            } => reloaded(f, file.as_deref(), changed, *discarded),
            Notice::ReloadRefused(error) => {
                write!(f, "reload refused, running configuration kept: {error}")
            }
            Notice::HandedOver { to, frames } => {
                write!(
                    f,
                    "process {to} has taken over, with {frames} queued frames"
                )
            }
            Notice::TookOver { from, stood } => write!(
                f,
                "took over from process {from}: forwarding paused for {} us",
                stood.as_micros()
            ),
            Notice::NotHandedOver(to) => {
                write!(
                    f,
                    "process {to} has not taken over: this process keeps running"
                )
            }
        }
    }
}

/// Writes that a configuration was applied, which classes changed, and which packets were dropped.
fn reloaded(
    f: &mut fmt::Formatter<'_>,
    file: Option<&Path>,
    (count, names): &(usize, Vec<String>),
    discarded: u64,
) -> fmt::Result {
    match file {
        Some(path) => write!(f, "reloaded {}", path.display())?,
        None => f.write_str("applied another configuration")?,
    }
    match (count, count - names.len()) {
        (0, _) => f.write_str(": no class changed")?,
        (1, 0) => write!(f, ": 1 class changed ({})", names.join(", "))?,
        (count, 0) => write!(f, ": {count} classes changed ({})", names.join(", "))?,
        (count, more) => {
            let names = names.join(", ");
            write!(f, ": {count} classes changed ({names} and {more} more)")?;
        }
    }
    match discarded {
        0 => Ok(()),
        1 => f.write_str("; 1 change that was not in the file was discarded"),
        many => write!(
            f,
            "; {many} changes that were not in the file were discarded"
        ),
    }
}

impl From<Event> for Notice {
    fn from(event: Event) -> Notice {
        match event {
            Event::Warning(text) => Notice::Warning(text),
            Event::Lost(interface) => Notice::Gone(interface),
            Event::Restored(interface) => Notice::Back(interface),
            Event::Unusable { interface, error } => Notice::Unusable {
                interface,
                error: error.into(),
            },
            Event::NoEarlyDrop { interface, reason } => Notice::NoEarlyDrop { interface, reason },
        }
    }
}

/// Called for each event, on the thread where it happens: never the forwarding thread.
pub(crate) type Notify = Arc<dyn Fn(Notice) + Send + Sync>;

/// Logs each event before `hear` is called.
pub(crate) fn logged(hear: impl Fn(Notice) + Send + Sync + 'static) -> Notify {
    Arc::new(move |notice| {
        notice.log();
        hear(notice);
    })
}
