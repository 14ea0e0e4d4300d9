//! The control thread's state: the links that run, requests in progress, and the reports so far.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlane_config::Site;
use fairlane_core::Nanos;
use fairlane_mailbox::{Consumer, Producer};
use fairlane_runtime::Clock;
use fairlane_runtime::attach::Attach;
use fairlane_runtime::bridge::Side;

use crate::bypass::NetworkWatch;
use crate::error::{Error, Result};
use crate::flows::Watch;
use crate::hand_over::give::{SiteState, Stage};
use crate::hand_over::take::TakenOver;
use crate::handle::{Asking, Handle, Request, Waiting};
use crate::notice::{Notice, Notify};
use crate::order::Order;
use crate::reload::Prepared;
use crate::report::{ConfigurationReport, Interface, Report};
use fairlane_dataplane::device::xdp::Needs;
use fairlane_dataplane::device::{Opened, ToKeeper};
use fairlane_dataplane::pipeline::Pipeline;
use fairlane_dataplane::plan::{Next, Plan};
use fairlane_dataplane::steps::Longest;
use fairlane_dataplane::work::Draining;

/// The last request to the forwarding thread.
#[derive(Default)]
pub(crate) enum PendingRequest {
    #[default]
    Nothing,
    Counts,
    /// For the flows' counts.
    Flows,
    /// Whether the classes that this link removes have drained.
    Drained(Box<Next>),
    /// To add the new classes of this link.
    Classes(Box<Next>),
    /// To change only the parameters that differ in this link.
    Parameters(Box<Next>),
    /// To run this plan.
    Plan(Box<Plan>),
    /// To carry out another task, with where its result is sent.
    Task(Waiting),
    /// To use the interface that was opened; its report as of then.
    Attach(Interface),
    /// The frames and state of the devices.
    ExportState(SyncSender<Result<Box<SiteState>>>),
    /// To hand over to another process.
    HandOver(SyncSender<Result<u64>>),
}

/// The control thread's own.
pub(crate) struct Control {
    pub(crate) clock: Clock,
    /// Interval between reports.
    pub(crate) interval: Nanos,
    pub(crate) handle: Handle,
    pub(crate) notify: Notify,
    pub(crate) attach: Option<Attach>,
    /// The longest times between two rounds that the forwarding thread spent on an order.
    pub(crate) longest: Arc<Longest>,
    /// The needs for which the devices were opened.
    pub(crate) needs: Needs,
    /// The kernel's ways past it, and its interfaces' MTUs.
    pub(crate) network: NetworkWatch,
    /// On the left and on the right.
    pub(crate) devices: [Interface; 2],
    /// The delay that the path between the interfaces adds to every class.
    pub(crate) pipeline: Pipeline,
    /// The keepers that open replacements for the devices, if permitted.
    pub(crate) keepers: [Option<ToKeeper>; 2],
    /// Which of them are detached.
    pub(crate) detached: [bool; 2],
    /// Another process watches over this one.
    pub(crate) is_guarded: bool,
    pub(crate) plans: Vec<Plan>,
    pub(crate) orders: Producer<Order>,
    pub(crate) answers: Consumer<Order>,
    pub(crate) state: State,
}

/// Progress of requests and reports.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) pending: PendingRequest,
    /// When that was.
    pub(super) ordered: Nanos,
    /// The interval that the cost of the last report requires before the next.
    pub(super) report_interval: Nanos,
    /// The configuration that is being read or applied.
    pub(crate) request: Option<Asker>,
    /// Configurations to be read after it.
    pub(super) requests: VecDeque<Request>,
    /// The site that is being applied, and its links that are not applied yet.
    pub(super) next: Option<Arc<Site>>,
    pub(super) waiting: VecDeque<Next>,
    /// The first of these, while classes that it removes drain.
    pub(super) draining: Option<(Box<Draining>, Box<Next>)>,
    /// The change that waits for an interface to be opened, and that interface once it is open.
    pub(crate) prepared: Option<Prepared>,
    pub(crate) opened: Option<(Side, Box<Opened>)>,
    /// Tasks still to be carried out.
    pub(crate) tasks: VecDeque<Asking>,
    /// Progress of a hand-over to another process.
    pub(crate) stage: Stage,
    /// The process that this one took over from, until that is reported.
    pub(crate) took: Option<TakenOver>,
    pub(super) reloads: u32,
    /// By link, the protocol unknown to the filters that was last logged.
    pub(super) opaque_links: HashMap<Arc<str>, Arc<str>>,
    /// The last attempt to load the file.
    pub(super) last_reload: LastReload,
    pub(super) start: Nanos,
    /// Something was applied since the last report.
    pub(crate) changed: bool,
    /// When the last report was made.
    pub(super) told: Nanos,
    /// How often memory is still to be given back after a configuration was read, and when it last was.
    pub(super) littered: u32,
    pub(super) tidied: Nanos,
    pub(super) report: Arc<Report>,
    pub(super) flows: Watch,
}

/// Recipient of the result of a configuration change.
pub(crate) struct Asker {
    /// The file that the configuration is read from.
    pub(super) path: Option<PathBuf>,
    /// Whether changes that are not in that file may be discarded.
    pub(super) discards: bool,
    pub(super) dry: bool,
    /// On which side which interface is attached with it.
    pub(crate) attach: Option<(Side, String)>,
    pub(super) answer: Option<SyncSender<Result<Arc<Site>>>>,
}

/// The last attempt to load the site's file.
#[derive(Default)]
pub(super) struct LastReload {
    /// When one succeeded last, in seconds since 1970.
    succeeded: f64,
    /// Why the last one was refused; none where it succeeded.
    pub(super) error: Option<Arc<str>>,
}

impl LastReload {
    /// Creates the record of an attempt that succeeds now.
    pub(super) fn succeeded() -> LastReload {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        LastReload {
            succeeded: since.unwrap_or_default().as_secs_f64(),
            error: None,
        }
    }

    pub(super) fn report(&self, handle: &Handle) -> ConfigurationReport {
        ConfigurationReport {
            unsaved_changes: handle.unsaved_changes(),
            last_reload_successful: self.error.is_none(),
            last_reload_success_timestamp_seconds: self.succeeded,
            last_reload_error: self.error.clone(),
        }
    }
}

impl Control {
    /// Reports that a configuration cannot be applied.
    pub(crate) fn refuse(&mut self, asker: Asker, error: Error) {
        // A concurrent change is no fault of the file.
        if asker.path.is_some() && !asker.dry && !matches!(error, Error::Outdated) {
            self.state.last_reload.error = Some(error.to_string().into());
            self.state.changed = true;
        }
        match asker.answer {
            // A caller that has stopped waiting needs no answer.
            Some(answer) => drop(answer.send(Err(error))),
            None => self.notify(Notice::ReloadRefused(error)),
        }
    }

    pub(crate) fn notify(&self, notice: Notice) {
        (self.notify)(notice);
    }

    /// Whether a change is in progress or pending.
    pub(crate) fn is_busy(&self) -> bool {
        let State {
            pending,
            request,
            requests,
            tasks,
            ..
        } = &self.state;
        let is_idle = matches!(
            pending,
            PendingRequest::Nothing | PendingRequest::Counts | PendingRequest::Flows
        );
        !is_idle || request.is_some() || !requests.is_empty() || !tasks.is_empty()
    }

    pub(crate) fn plan_mut(&mut self, side: Side) -> Option<&mut Plan> {
        self.plans.iter_mut().find(|plan| plan.side == side)
    }

    pub(crate) fn order(&mut self, order: Order) {
        self.state.ordered = self.clock.now();
        // There is space for the one order at a time. If the forwarding thread has ended, the order does not matter.
        let _ = self.orders.push(order);
    }
}
