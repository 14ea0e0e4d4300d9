//! `fairlane run CONFIG`: shapes the frames between two interfaces by the classes of a site file.

use std::io::{self, ErrorKind::PermissionDenied};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use fairlane_config::{Backend, Site};
use fairlane_control::{Inherited, Service};
use fairlane_daemon::{Daemon, Handle, HandoverExtra, Notice, OnLoss, Outcome, Running, Source};
use fairlane_service::privileges::{Left, Needs, give_up};
use fairlane_service::{Ending, Manager, Teller, Telling};
use fairlane_terminal::log::Log;
use fairlane_terminal::screen::Screen;
use fairlane_terminal::site_report;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::warn;

use super::{Options, ends, guard};
use crate::figures;
use crate::interrupt;
use crate::machine::read_site;
use crate::plain::plain;

/// Runs the site that the file at `path` describes.
///
/// Output and logging may block, so they have their own threads, and the end does not wait for them.
pub(super) fn run(path: &Path, options: &Options) -> Result<()> {
    // From here on, SIGHUP reloads the file. Until the file has been read, other signals have their default effect.
    let signals = Signals::new([SIGHUP]).context("setting up signals")?;
    let site = read_site(path)?;
    let Begun {
        site,
        running,
        inherited,
        manager,
    } = match options.take_over {
        true => Begun::by_another(site)?,
        false => Begun::here(site),
    };
    // Before a second thread is started.
    let Left {
        lost_files,
        complaint,
    } = match options.keep_privileges {
        true => Left::default(),
        false => give_up(needs(&site, options)).context("giving up privileges")?,
    };
    let log = Log::open(options.log).context("starting a thread")?;
    complaint.inspect(|complaint| warn!(name: "privileges", "warning: {complaint}"));
    for signal in [SIGINT, SIGTERM] {
        (signals.add_signal(signal)).context("setting up Ctrl-C")?;
    }
    let shows = options.shows();
    let teller = manager.as_ref().map(Manager::teller).unwrap_or_default();
    let heard = notify(teller.clone());
    let of_site = of_site(options);
    let daemon = match running {
        Some(running) => Daemon::take_over(running, site, &of_site, heard),
        None => Daemon::open(site, &of_site, heard),
    };
    let mut daemon = daemon.map_err(|error| explained(error, path, lost_files))?;
    let mut service = serve(path, &daemon, lost_files, inherited)?;
    daemon.hands_over(beside(service.as_ref(), manager.as_ref()));
    let ending = Arc::new(Ending::default());
    let listener = Listener {
        path: path.to_owned(),
        site: daemon.handle(),
        ending: Arc::clone(&ending),
        teller: teller.clone(),
    };
    listener.listen(signals).context("setting up Ctrl-C")?;
    let screen = Screen::open(
        introduction(path, &daemon, service.as_ref(), options),
        shows,
        site_report::SHOWN,
    );
    let screen = screen.context("starting a thread")?;
    if options.guarded {
        guard::ready(&mut daemon)?;
    }
    let (status, handle) = (status(path, &daemon), daemon.handle());
    let telling = manager.map(|manager| manager.serve(status, move || handle.rounds()));
    let telling = telling.transpose().context("starting a thread")?;
    let Outcome {
        report,
        result,
        handed_over,
    } = daemon.run(|report| {
        if let Some(service) = &mut service {
            service.publish(report);
        }
        screen.show(report, report);
    });
    if options.guarded && result.is_err() {
        // The guard starts another worker: the service keeps running, so the service manager gets no message.
        mem::forget(telling);
    } else if handed_over {
        leave(telling, service.as_mut());
    } else {
        teller.stopping();
    }
    drop(service);
    let concluded = screen.conclude(report, site_report::conclusion, &ending);
    log.close(&ending);
    let outcome = result.map_err(Error::from).and(concluded);
    if outcome.is_err() {
        ending.leave(2);
    }
    outcome
}

/// A site to start, with the state handed over by the process that runs it so far.
struct Begun {
    site: Site,
    running: Option<Running>,
    inherited: Inherited,
    manager: Option<Manager>,
}

impl Begun {
    fn here(site: Site) -> Begun {
        Begun {
            site,
            running: None,
            inherited: Inherited::default(),
            manager: Manager::of_this_process(),
        }
    }

    /// Takes over from the process that holds the interfaces of the site's file.
    fn by_another(site: Site) -> Result<Begun> {
        let interfaces = site.interfaces.context(
            "--take-over needs a running site between two interfaces: name inside and outside in \
             [interfaces]",
        )?;
        let mut running = Running::ask(&interfaces).context("--take-over")?;
        let mut beside = running.beside();
        let (manager, control) = beside.text.split_once('\n').unwrap_or_default();
        let manager = Manager::handed_over(manager);
        beside.text = control.to_owned();
        let inherited = Inherited::of(beside)?;
        Ok(Begun {
            site: running.site(&inherited.grants())?,
            running: Some(running),
            inherited,
            manager: manager.or_else(Manager::of_this_process),
        })
    }
}

/// Returns the state handed over in addition to the site: the service manager's socket, and the control sockets.
fn beside(
    service: Option<&Service>,
    manager: Option<&Manager>,
) -> impl Fn() -> io::Result<HandoverExtra> + Send + use<> {
    let service = service.map(Service::to_hand_over);
    let manager = manager.and_then(Manager::to_hand_over).unwrap_or_default();
    move || {
        let beside = service.as_ref().map(|service| service()).transpose()?;
        let HandoverExtra { text, files } = beside.unwrap_or_default();
        let text = format!("{manager}\n{text}");
        Ok(HandoverExtra { text, files })
    }
}

/// Leaves the sockets to the successor.
fn leave(telling: Option<Telling>, service: Option<&mut Service>) {
    if let Some(telling) = telling {
        telling.leave();
    }
    if let Some(service) = service {
        service.leave();
    }
}

/// Forwards notices to the service manager.
fn notify(teller: Teller) -> impl Fn(Notice) + Send + Sync {
    move |notice| match notice {
        Notice::Reloaded { .. } | Notice::ReloadRefused(_) => teller.reloaded(&notice),
        Notice::HandedOver { to, .. } => teller.handed_over(to),
        _ => {}
    }
}

/// Adds the place of an error.
fn explained(error: fairlane_daemon::Error, path: &Path, lost_files: bool) -> Error {
    match error {
        fairlane_daemon::Error::Unfit(_) => Error::new(error).context(path.display().to_string()),
        fairlane_daemon::Error::Attach(_) if lost_files => Error::new(error).context(OWN_FILES),
        _ => error.into(),
    }
}

/// Returns the site's options.
fn of_site(options: &Options) -> fairlane_daemon::Options {
    fairlane_daemon::Options {
        time: options.seconds.map(Duration::from_secs_f64),
        interval: options.shows().interval(),
        on_loss: match options.exit_on_loss {
            true => OnLoss::Fail,
            false => OnLoss::Wait,
        },
        early_drop: !options.no_early_drop,
        drain: options.drain,
        start_paused: options.guarded,
    }
}

/// A possible cause if a file or a folder cannot be used.
const OWN_FILES: &str =
    "beyond what its user may without capabilities (--keep-privileges keeps them)";

/// Returns the privileges that the run needs after the others are given up.
fn needs(site: &Site, options: &Options) -> Needs {
    let backend = site.interfaces.as_ref().map(|named| named.backend);
    let http = site.control.as_ref().and_then(|control| control.http);
    let shared_memory = backend == Some(Backend::Xdp);
    Needs {
        interfaces: true,
        programs: shared_memory || !options.no_early_drop,
        shared_memory,
        low_port: http.is_some_and(|http| (1..1_024).contains(&http.port())),
    }
}

/// Starts the control API, if the file configures it.
fn serve(
    path: &Path,
    daemon: &Daemon,
    lost_files: bool,
    inherited: Inherited,
) -> Result<Option<Service>> {
    let site = daemon.site();
    let Some(control) = &site.control else {
        return Ok(None);
    };
    let file = Some(path.to_owned());
    let service = Service::start(control, daemon.handle(), file, inherited);
    service
        .map(Some)
        .map_err(|error| match error.reason.kind() {
            PermissionDenied if lost_files => Error::new(error).context(OWN_FILES),
            _ => error.into(),
        })
}

/// The handler of signals.
struct Listener {
    path: PathBuf,
    site: Handle,
    ending: Arc<Ending>,
    teller: Teller,
}

impl Listener {
    /// Handles signals: the first stops the site, the second stops it at once, and SIGHUP reloads its file. A signal
    /// after the end shortens the wait for readers of the output.
    fn listen(self, signals: Signals) -> Result<()> {
        let mut is_told = false;
        interrupt::listen(signals, move |signal| match signal {
            SIGHUP => {
                self.teller.reloading();
                self.site.reload(Source::File(self.path.clone()));
            }
            _ if is_told => self.site.stop_at_once(),
            _ => {
                is_told = true;
                self.ending.ask();
                self.teller.stopping();
                self.site.stop();
            }
        })?;
        Ok(())
    }
}

/// Returns the status line for the service manager.
fn status(path: &Path, daemon: &Daemon) -> String {
    let names: Vec<_> = daemon.links().map(|link| &*link.name).collect();
    let classes: usize = daemon.links().map(|link| link.classes.len()).sum();
    format!(
        "{}: shapes the links {}, {classes} classes",
        path.display(),
        names.join(", ")
    )
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
            plain(&link.name),
            figures::rate(link.rate.bps()),
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
