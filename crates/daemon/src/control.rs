//! The control thread: requests through [`Handle`](crate::Handle), configuration changes, orders to the forwarding thread, counts and
//! reports. The forwarding thread never waits for the control thread.

mod change;
mod handover;
mod reporting;
pub(crate) mod state;
mod task;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use fairlane_core::Nanos;
use fairlane_dataplane::work::Counting;
use fairlane_runtime::bridge::Side;

use crate::error::{Error, Result};
use crate::hand_over::give::Stage;
use crate::handle::{Ended, Event};
use crate::notice::Notice;
use crate::order::Order;
use crate::report::Report;
use state::{Control, LastReload, PendingRequest};

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The state at the end.
    pub report: Arc<Report>,
    /// Why it ended before it was to end.
    pub result: Result<()>,
    /// Another process [took over](crate::Daemon::take_over), and forwards now.
    pub handed_over: bool,
}

impl Outcome {
    /// Creates the result of a run that has not begun.
    pub(crate) fn failed(error: Error) -> Outcome {
        Outcome {
            report: Arc::default(),
            result: Err(error),
            handed_over: false,
        }
    }
}

/// Longest time until an answer of the forwarding thread is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// The same at first: most orders are soon done.
const FIRST_LOOK: Duration = Duration::from_micros(50);

/// The same without a pending request.
const IDLE: Duration = Duration::from_millis(200);

/// Minimum interval between two reports, however much changes.
const CHANGED: Nanos = Nanos::from_millis(100);

/// The part of the time that reporting may take under frequent changes, which wait meanwhile.
const REPORT_SHARE: u64 = 10;

/// Number of times that memory is given back after a configuration was read: the former configuration is freed later.
const TIDYINGS: u32 = 3;

impl Control {
    /// Starts the run. Returns the start time.
    pub(crate) fn start(&mut self) -> Nanos {
        self.state.littered = TIDYINGS;
        self.state.start = self.clock.now();
        self.state.told = self.state.start;
        self.state.last_reload = LastReload::succeeded();
        // The first caller gets an answer soon.
        self.state.changed = true;
        self.look_at_network();
        self.state.start
    }

    /// Runs until the forwarding thread has ended, or has failed to end in time; then closes everything.
    pub(crate) fn run(
        mut self,
        events: &Receiver<Event>,
        mut report: impl FnMut(&Arc<Report>),
    ) -> Outcome {
        let mut ended = self.follow(events, &mut report);
        if let Some(ended) = &mut ended {
            for side in Side::BOTH {
                // From here on the devices report losses exactly, to the frame.
                ended.bridge.device_mut(side).quiesce(&mut Vec::new());
            }
            let mut counting = self.counting();
            while !counting.step(&mut ended.bridge) {}
            self.tell(counting);
        }
        let handed_over = matches!(self.state.stage, Stage::HandedOver);
        if let Some(ended) = ended.as_mut().filter(|_| handed_over) {
            for side in Side::BOTH {
                ended.bridge.device_mut(side).set_owned(false);
            }
        }
        // No process attaches from here on; then the interfaces are released.
        drop(self.attach);
        Outcome {
            report: self.state.report,
            handed_over,
            // Keep the results up to then.
            result: ended.map_or(Ok(()), |ended| ended.result.map_err(Error::from)),
        }
    }

    fn follow(
        &mut self,
        events: &Receiver<Event>,
        report: &mut impl FnMut(&Arc<Report>),
    ) -> Option<Box<Ended>> {
        loop {
            let event = events.recv_timeout(self.patience());
            let ended = match event {
                Ok(Event::Change(request)) => {
                    self.queue(request);
                    None
                }
                Ok(Event::Prepared(prepared)) => {
                    self.state.littered = TIDYINGS;
                    self.prepared(*prepared);
                    None
                }
                Ok(Event::Wrote) => {
                    self.state.changed = true;
                    None
                }
                Ok(Event::Flows(hear)) => {
                    self.state.flows.hear(hear, self.clock.now());
                    None
                }
                Ok(Event::Do(asking)) => {
                    self.state.tasks.push_back(asking);
                    None
                }
                Ok(Event::Opened(opened)) => {
                    self.opened(opened);
                    None
                }
                Ok(Event::ExportState(answer)) => {
                    self.give(answer);
                    None
                }
                Ok(Event::HandOver(handing, answer)) => {
                    self.hand_over(handing, answer);
                    None
                }
                Ok(Event::Keep(other)) => {
                    self.keep(other);
                    None
                }
                Ok(Event::Ended(ended)) => Some(ended),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            self.answered(report);
            if let PendingRequest::Nothing = self.state.pending {
                // Independent of the report interval, since findings are queued in little space.
                self.count_findings();
            }
            if ended.is_some() {
                return ended;
            }
            match &self.handle.stop {
                stop if stop.is_overdue() => return None,
                stop if stop.is_asked() => continue,
                _ => self.ask(),
            }
            self.read_next();
        }
    }

    /// Returns the longest time to wait for an event.
    fn patience(&self) -> Duration {
        match self.state.pending {
            PendingRequest::Nothing => {
                let due = self.due().min(self.state.flows.due());
                match self.state.draining.is_some() {
                    true => LOOK,
                    false => Duration::from(due.since(self.clock.now())).clamp(LOOK, IDLE),
                }
            }
            _ => {
                let waited = self.clock.now().since(self.state.ordered);
                Duration::from(waited).clamp(FIRST_LOOK, LOOK)
            }
        }
    }

    /// Sends the forwarding thread the next request, if the last one is done.
    fn ask(&mut self) {
        if !matches!(self.state.pending, PendingRequest::Nothing) {
            return;
        }
        if let Some((draining, next)) = self.state.draining.take() {
            if self.clock.now().since(self.state.ordered) >= Nanos::from(LOOK) {
                return self.poll_draining(draining, next);
            }
            self.state.draining = Some((draining, next));
        } else if let Some(next) = self.state.waiting.pop_front() {
            return self.begin_change(next);
        }
        if self.order_of_stage() {
            return;
        }
        if let Some((side, opened)) = self.state.opened.take() {
            return self.attach_on(side, *opened);
        }
        let now = self.clock.now();
        if now >= self.due() {
            self.state.pending = PendingRequest::Counts;
            return self.order(Order::Count(Box::new(self.counting())));
        }
        if now >= self.state.flows.due() {
            self.state.pending = PendingRequest::Flows;
            let walking = self.state.flows.walk(&self.plans, now);
            return self.order(Order::Walk(Box::new(walking)));
        }
        self.begin_task();
    }

    /// Returns when the next report is due: soon after a change.
    fn due(&self) -> Nanos {
        let interval = match self.state.changed {
            true => self.interval.min(CHANGED.max(self.state.report_interval)),
            false => self.interval,
        };
        self.state.told + interval
    }

    fn counting(&self) -> Counting {
        Counting::of(Side::BOTH.map(|side| {
            let plan = self.plans.iter().find(|plan| plan.side == side);
            plan.map_or_else(Vec::new, |plan| plan.ids.clone())
        }))
    }

    /// Handles an order that the forwarding thread has completed.
    fn answered(&mut self, report: &mut impl FnMut(&Arc<Report>)) {
        while let Some(answer) = self.answers.pop() {
            match (
                answer,
                std::mem::replace(&mut self.state.pending, PendingRequest::Nothing),
            ) {
                (Order::Count(counting), _) => {
                    // It forwards.
                    if let Some(took) = self.state.took.take() {
                        self.notify(Notice::TookOver {
                            from: took.from,
                            stood: took.stood(),
                        });
                    }
                    let began = self.clock.now();
                    self.tell(*counting);
                    report(&self.state.report);
                    let took = self.clock.now().since(began);
                    self.state.report_interval = Nanos(took.0.saturating_mul(REPORT_SHARE));
                    self.tidy_up();
                }
                (Order::Walk(walking), _) => {
                    self.count_findings();
                    self.state.flows.walked(*walking, &self.plans);
                }
                (Order::Drain(draining), PendingRequest::Drained(next)) => {
                    self.drained(draining, next)
                }
                (Order::Add(adding), PendingRequest::Classes(next)) => self.added(*adding, *next),
                (Order::Take(taking), PendingRequest::Parameters(next)) => {
                    self.changed(taking.error.is_some(), *next);
                }
                (Order::Take(taking), PendingRequest::Plan(plan)) => self.taken(&taking, *plan),
                (Order::ExportState(give), PendingRequest::ExportState(answer)) => {
                    self.device_state_reported(*give, &answer)
                }
                (Order::HandOver(handing), PendingRequest::HandOver(answer)) => {
                    self.handed_over(*handing, &answer);
                }
                (order, PendingRequest::Task(waiting)) => self.task_done(order, waiting),
                (Order::Exchange(side, _), PendingRequest::Attach(interface)) => {
                    self.attached(side, interface);
                }
                // No other requests return here.
                _ => {}
            }
        }
    }
}
