//! `fairlane run CONFIG`: the frames that pass between two interfaces, in the classes of a site's
//! configuration.

mod text;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use fairlane_control::Service;
use fairlane_site::{Daemon, Handle, OnLoss, Outcome, Source};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::ending::Ending;
use super::log::Log;
use super::screen::Screen;
use super::{Options, ends, guard};
use crate::interrupt;
use crate::machine::read_site;

/// Runs the site that the file at `path` describes.
///
/// What is printed or logged may block: it is done on threads of its own, and the end does not wait
/// for it.
pub(super) fn run(path: &Path, options: &Options) -> Result<()> {
    // A HUP from here on has the file read again. Until the file is read, the other signals end the
    // program as they end any.
    let signals = Signals::new([SIGHUP]).context("setting up signals")?;
    let site = read_site(path)?;
    let log = Log::open().context("starting a thread")?;
    for signal in [SIGINT, SIGTERM] {
        (signals.add_signal(signal)).context("setting up Ctrl-C")?;
    }
    let shows = options.shows();
    let of_site = fairlane_site::Options {
        time: options.seconds.map(Duration::from_secs_f64),
        interval: shows.interval(),
        on_loss: match options.exit_on_loss {
            true => OnLoss::Fail,
            false => OnLoss::Wait,
        },
        early_drop: !options.no_early_drop,
    };
    let voice = log.voice();
    let daemon = Daemon::open(site, &of_site, move |notice| voice.say(notice));
    let mut daemon = daemon.map_err(|error| match error {
        fairlane_site::Error::Unfit(_) => Error::new(error).context(path.display().to_string()),
        _ => error.into(),
    })?;
    let service = match &daemon.site().control {
        Some(control) => Some(Service::start(
            control,
            daemon.handle(),
            Some(path.to_owned()),
        )?),
        None => None,
    };
    let ending = Arc::new(Ending::default());
    listen(signals, path, daemon.handle(), Arc::clone(&ending)).context("setting up Ctrl-C")?;
    let screen = Screen::open(
        introduction(path, &daemon, service.as_ref(), options),
        shows,
    );
    let screen = screen.context("starting a thread")?;
    if options.guarded {
        guard::ready(&mut daemon)?;
    }
    let Outcome { report, result } = daemon.run(|report| {
        if let Some(service) = &service {
            service.publish(report);
        }
        screen.show(report, report);
    });
    drop(service);
    let concluded = screen.conclude(report, |report| text::conclusion(report), &ending);
    log.close(&ending);
    let outcome = result.map_err(Error::from).and(concluded);
    if outcome.is_err() {
        ending.leave(2);
    }
    outcome
}

/// Signals stop the site, or have its file read again. One that comes when it is over shortens the
/// wait for who reads what is printed.
fn listen(signals: Signals, path: &Path, site: Handle, ending: Arc<Ending>) -> Result<()> {
    let path = path.to_owned();
    interrupt::listen(signals, move |signal| match signal {
        SIGHUP => site.reload(Source::File(path.clone())),
        _ => {
            ending.ask();
            site.stop();
        }
    })?;
    Ok(())
}

fn introduction(
    path: &Path,
    daemon: &Daemon,
    service: Option<&Service>,
    options: &Options,
) -> String {
    let [near, outside] = daemon.interfaces();
    let (by, outside_by) = (&near.backend, &outside.backend);
    let between = match &*near.name {
        "" => format!("by {} ({outside_by})", outside.name),
        name if by == outside_by => format!("between {name} and {} ({by})", outside.name),
        name => format!("between {name} ({by}) and {} ({outside_by})", outside.name),
    };
    let links = daemon.links().map(|link| {
        format!(
            "{} ({}, {} classes)",
            link.name,
            link.rate,
            link.classes.len()
        )
    });
    let attach = match &daemon.site().attach {
        Some(attach) => format!(" Processes attach at {}.", attach.socket.display()),
        None => String::new(),
    };
    let control = service.map_or(String::new(), |service| {
        format!(" Ask it with fairlane ctl: {service}.")
    });
    format!(
        "{}: frames {between}, in the links {}.{attach}{control}\n{}",
        path.display(),
        links.collect::<Vec<_>>().join(", "),
        ends(options)
    )
}
