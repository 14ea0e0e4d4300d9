//! Requests to a running site, from any thread.

use std::fmt;
use std::io;
use std::mem;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairlane_config::Site;
use fairlane_core::Count;

use crate::error::{Error, Result};
use crate::flows::{Hear, TopFlows};
use crate::hand_over::give::{SiteState, Transferring};
use crate::reload::{Prepared, Source};
use fairlane_dataplane::bridge::SiteBridge;
use fairlane_dataplane::device::Opened;
use fairlane_dataplane::rounds::RoundCount;
use fairlane_dataplane::stop::Stop;

/// Events that the control thread waits for.
pub(crate) enum Event {
    /// A request to apply another configuration.
    Change(Request),
    /// It was read.
    Prepared(Box<Result<Prepared>>),
    /// The site's file was written.
    Wrote,
    /// A request for the flows that send most.
    Flows(Hear),
    /// Another task.
    Do(Asking),
    /// The interface that a new configuration names was opened, or could not be.
    Opened(Result<Box<Opened>>),
    /// Another process is about to take over and asks for the interfaces and state.
    ExportState(SyncSender<Result<Box<SiteState>>>),
    /// The other process is ready to take over.
    HandOver(Box<Transferring>, SyncSender<Result<u64>>),
    /// The other process does not take over after all.
    Keep(u32),
    /// The forwarding thread has ended.
    Ended(Box<Ended>),
}

/// A requested configuration change.
pub(crate) struct Request {
    pub(crate) source: Source,
    /// The configuration that it was derived from, if that must still be running.
    pub(crate) base: Option<Arc<Site>>,
    /// Whether to check the change without applying it.
    pub(crate) dry: bool,
    /// The interface that is attached with it.
    pub(crate) attach: Option<Attaching>,
    /// Where the result is sent.
    pub(crate) answer: Option<SyncSender<Result<Arc<Site>>>>,
}

/// The result of the forwarding thread, and the bridge it leaves.
pub(crate) struct Ended {
    pub(crate) result: io::Result<()>,
    /// Holds the counts not yet collected, and the interfaces.
    pub(crate) bridge: SiteBridge,
}

/// A task.
pub(crate) enum Task {
    /// Turn shaping of an interface's egress on or off.
    Shape { interface: String, shaped: bool },
    /// Drop the backlog of a class and its descendants, or of the whole link.
    Flush { link: String, class: Option<String> },
    /// Detach an interface.
    Detach { interface: String },
}

/// An interface that is attached in the place of one that was detached.
#[derive(Clone, Debug)]
pub struct Attaching {
    /// That one: its name, or its role (`inside`, `outside`).
    pub place: String,
    /// The name of the one that is used from then on.
    pub interface: String,
}

/// Where the result of a task, with the packets it dropped, is sent.
pub(crate) type Waiting = SyncSender<Result<Count>>;

/// A task with its waiting caller.
pub(crate) struct Asking {
    pub(crate) task: Task,
    pub(crate) waiting: Waiting,
}

/// Stops or reconfigures a running site, from any thread.
#[derive(Clone)]
pub struct Handle {
    pub(crate) stop: Arc<Stop>,
    pub(crate) rounds: Arc<RoundCount>,
    pub(crate) events: Sender<Event>,
    site: Arc<Mutex<Arc<Site>>>,
    file: Arc<Mutex<FileText>>,
}

/// The last known text of a site's file.
struct FileText {
    text: Arc<str>,
    /// Changes of the running configuration that it does not have.
    unsaved: u64,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    pub(crate) fn new(site: Site, drain: Duration, events: Sender<Event>) -> Handle {
        Handle {
            stop: Arc::new(Stop::new(drain)),
            rounds: Arc::default(),
            events,
            file: Arc::new(Mutex::new(FileText {
                text: Arc::clone(&site.text),
                unsaved: 0,
            })),
            site: Arc::new(Mutex::new(Arc::new(site))),
        }
    }

    /// Ends the run: receives nothing more, and sends the backlog at link rate for at most [`Options::drain`](crate::Options::drain). The run
    /// ends at most ten seconds after that, even if a part of it does not respond. Returns at once.
    pub fn stop(&self) {
        self.stop.ask();
    }

    /// Ends the run without sending the backlog. Returns at once.
    pub fn stop_at_once(&self) {
        self.stop.ask_at_once();
    }

    /// Returns the number of rounds of the forwarding thread. It makes at least one every 20 ms: if the number does not
    /// change, the thread hangs or has ended.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds.get()
    }

    /// Replaces the running configuration, on a thread of its own; a [`Notice`](crate::Notice) reports the result. Changes
    /// that are not in the file are discarded, and the notice counts them. While one configuration is read,
    /// only the last of those that follow is queued.
    pub fn reload(&self, source: Source) {
        // Without a receiver the run has ended.
        let _ = self.events.send(Event::Change(Request {
            source: Source::Discarding(Box::new(source)),
            base: None,
            dry: false,
            attach: None,
            answer: None,
        }));
    }

    /// Returns the running site.
    #[must_use]
    pub fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the text of the file from which the site was last read or to which it was last [written](Handle::wrote).
    #[must_use]
    pub fn file_text(&self) -> Arc<str> {
        Arc::clone(&self.file().text)
    }

    /// Changes of the running configuration that are not in its file.
    #[must_use]
    pub fn unsaved_changes(&self) -> u64 {
        self.file().unsaved
    }

    /// Records that the file has this text from now on.
    pub fn wrote(&self, text: Arc<str>) {
        // Before the site is read, so that a change that runs from now on counts after this.
        let mut file = self.file();
        let unsaved = u64::from(*text != *self.site().text);
        *file = FileText { text, unsaved };
        drop(file);
        // The next state says so.
        let _ = self.events.send(Event::Wrote);
    }

    /// Records that the file has this text, which lacks the last `unsaved` changes.
    pub(crate) fn resume(&self, text: Arc<str>, unsaved: u64) {
        *self.file() = FileText { text, unsaved };
    }

    pub(crate) fn runs(&self, site: Arc<Site>) {
        let text = Arc::clone(&site.text);
        // In this order wherever both are locked.
        let mut file = self.file();
        let mut running = self.site.lock().unwrap_or_else(PoisonError::into_inner);
        let former = mem::replace(&mut *running, site);
        drop(running);
        file.unsaved = match *text == *file.text {
            true => 0,
            false => file.unsaved + u64::from(*text != *former.text),
        };
    }

    fn file(&self) -> MutexGuard<'_, FileText> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies another configuration and waits until it is in force. With `base`, fails unless the [running
    /// site](Handle::site) is still `base`, so that no caller overwrites a change it has not seen. Returns the site
    /// that then runs.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, or cannot be applied without a restart: the running one is kept. The running site
    /// is not `base`; or the run has ended.
    pub fn change(&self, source: Source, base: Option<Arc<Site>>) -> Result<Arc<Site>> {
        self.ask(source, base, false, None)
    }

    /// Checks whether a configuration [could be applied](Handle::change). Returns the site that would then run.
    ///
    /// # Errors
    ///
    /// As for [`change`](Handle::change). Nothing changes either way.
    pub fn consider(&self, source: Source) -> Result<Arc<Site>> {
        self.ask(source, None, true, None)
    }

    /// Calls `hear` with the flows that sent most recently, on the thread that [runs](crate::Daemon::run) the site; it must
    /// not block. The call comes at once if another was made within the last seconds, and else after the first second
    /// of counting. Flows are counted only on request. `hear` is dropped when the run has ended.
    pub fn top_flows(&self, hear: impl FnOnce(&Arc<TopFlows>) + Send + 'static) {
        let _ = self.events.send(Event::Flows(Box::new(hear)));
    }

    pub(crate) fn ask(
        &self,
        source: Source,
        base: Option<Arc<Site>>,
        dry: bool,
        attach: Option<Attaching>,
    ) -> Result<Arc<Site>> {
        let (answer, answered) = sync_channel(1);
        let request = Request {
            source,
            base,
            dry,
            attach,
            answer: Some(answer),
        };
        let asked = self.events.send(Event::Change(request));
        asked.map_err(|_| Error::Ended)?;
        answered.recv().unwrap_or(Err(Error::Ended))
    }

    /// Turns shaping of an interface's egress on, or off: frames then leave in order of arrival, as fast as the
    /// interface takes them. The interface is given by its name in the site or by its role (`inside`, `outside`,
    /// `tap`). The backlog at that moment leaves first; no frame is lost, or reordered within its flow. The setting
    /// survives configuration changes until it is changed again or the run ends. Returns once it is in force.
    ///
    /// # Errors
    ///
    /// There is no such interface, no link leads to it, or the run has ended.
    pub fn shape(&self, interface: &str, shaped: bool) -> Result<()> {
        let interface = interface.to_owned();
        self.have_done(Task::Shape { interface, shaped }).map(drop)
    }

    /// Drops the backlog of a class of a link and of its descendants, or of the whole link, and waits until that is
    /// done. Returns the dropped packets, with bytes as the link counts them; they are included in the classes' drops.
    /// Packets that arrive meanwhile are kept, and none of the link leaves until it is done: some 20 ms for 100,000
    /// packets.
    ///
    /// # Errors
    ///
    /// There is no such link or class, or the run has ended.
    pub fn flush(&self, link: &str, class: Option<&str>) -> Result<Count> {
        self.have_done(Task::Flush {
            link: link.to_owned(),
            class: class.map(ToOwned::to_owned),
        })
    }

    /// Detaches an interface, named as for [`shape`](Self::shape), and waits until other programs may use it. Its
    /// settings are restored. Packets for it are dropped and counted as `away` until an interface is
    /// [attached](Self::attach) again.
    ///
    /// # Errors
    ///
    /// There is no such interface, it is a tap device, which lasts as long as the run, it is detached already, or the
    /// run has ended.
    pub fn detach(&self, interface: &str) -> Result<()> {
        let interface = interface.to_owned();
        self.have_done(Task::Detach { interface }).map(drop)
    }

    /// Opens an interface to replace one that was [detached](Self::detach), and applies a configuration that names it
    /// there; `base` is the configuration that this was derived from, which must still be running. The interface is
    /// opened in the network namespace of the site. Waits until frames pass, and returns the site that then runs.
    ///
    /// # Errors
    ///
    /// No interface was detached there; the configuration cannot be applied; there is no such interface, another
    /// process holds it, or it lacks a required feature. The old one stays detached then.
    pub fn attach(
        &self,
        attaching: Attaching,
        source: Source,
        base: Arc<Site>,
    ) -> Result<Arc<Site>> {
        self.ask(source, Some(base), false, Some(attaching))
    }

    /// Checks whether a configuration [could be applied](Self::attach) with an interface, without opening it. Returns
    /// the site that would then run.
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach). Nothing changes either way.
    pub fn consider_attaching(&self, attaching: Attaching, source: Source) -> Result<Arc<Site>> {
        self.ask(source, None, true, Some(attaching))
    }

    fn have_done(&self, task: Task) -> Result<Count> {
        let (waiting, done) = sync_channel(1);
        let asked = self.events.send(Event::Do(Asking { task, waiting }));
        asked.map_err(|_| Error::Ended)?;
        done.recv().unwrap_or(Err(Error::Ended))
    }
}
