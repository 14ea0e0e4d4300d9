//! Handover of a running site, as the control thread sees it.

use std::mem;
use std::sync::mpsc::SyncSender;

use fairlane_config::{Backend, Near};

use super::state::{Control, PendingRequest};
use crate::error::{Error, Result};
use crate::hand_over::give::{DeviceState, SiteState, Stage, Transferring};
use crate::notice::Notice;
use crate::order::Order;
use fairlane_dataplane::error::Context;
use fairlane_dataplane::plan::Plan;

impl Control {
    /// Returns an error while changes are suspended for a hand-over.
    pub(crate) fn is_fixed(&self) -> Result<()> {
        match self.state.stage {
            Stage::Nothing => Ok(()),
            _ => Err(Error::Conflict(
                "another process is taking over: ask again in a moment".to_owned(),
            )),
        }
    }

    /// Accepts a request to take over.
    pub(crate) fn give(&mut self, answer: SyncSender<Result<Box<SiteState>>>) {
        match self.may_hand_over() {
            Ok(()) => self.state.stage = Stage::Wanted(answer),
            // A caller that has stopped waiting needs no answer.
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    fn may_hand_over(&self) -> Result<()> {
        self.is_fixed()?;
        let site = self.handle.site();
        let why = match &site.interfaces {
            _ if self.is_guarded => {
                "cannot take over from a process that runs with --fail-open: its watchdog restarts it \
                 when it is killed"
            }
            Some(named) if named.backend == Backend::Xdp => {
                "the backend xdp cannot be handed over: no other process can have its queues while \
                 they are bound"
            }
            Some(named) if !matches!(named.near, Near::Inside(_)) => {
                "only a site between two interfaces can be handed over: a tap device goes with its \
                 process"
            }
            _ if site.attach.is_some() => {
                "a site that processes attach to ([attach]) cannot be handed over: their mailboxes go \
                 with its process"
            }
            _ if self.is_busy() => {
                return Err(Error::Conflict(
                    "the running configuration is being changed: try again in a moment".to_owned(),
                ));
            }
            _ => return Ok(()),
        };
        Err(Error::Conflict(why.to_owned()))
    }

    /// Sends the forwarding thread the order for the current stage. Returns whether there is one.
    pub(crate) fn order_of_stage(&mut self) -> bool {
        match mem::take(&mut self.state.stage) {
            Stage::Wanted(answer) => {
                self.state.stage = Stage::Given;
                self.state.pending = PendingRequest::ExportState(answer);
                self.order(Order::ExportState(Box::default()));
                true
            }
            Stage::Ready(handing, answer) => {
                self.state.stage = Stage::Given;
                self.state.pending = PendingRequest::HandOver(answer);
                self.order(Order::HandOver(handing));
                true
            }
            stage => {
                self.state.stage = stage;
                false
            }
        }
    }

    /// Handles the forwarding thread's report of the devices' state.
    pub(crate) fn device_state_reported(
        &mut self,
        give: DeviceState,
        answer: &SyncSender<Result<Box<SiteState>>>,
    ) {
        let told = match give {
            DeviceState {
                error: Some(error), ..
            } => Err(error)
                .doing("handing over the interfaces' sockets")
                .map_err(Error::from),
            DeviceState {
                devices: [Some(_), Some(_)],
                ..
            } => Ok(Box::new(SiteState {
                site: self.handle.site(),
                file: (self.handle.file_text(), self.handle.unsaved_changes()),
                give,
            })),
            _ => Err(Error::Conflict(
                "an interface is missing or detached: a handover needs both".to_owned(),
            )),
        };
        let refused = told.is_err();
        // A successor that has stopped waiting takes nothing over.
        if answer.send(told).is_err() || refused {
            self.state.stage = Stage::Nothing;
        }
    }

    /// Handles the successor's message that it is ready.
    pub(crate) fn hand_over(
        &mut self,
        handing: Box<Transferring>,
        answer: SyncSender<Result<u64>>,
    ) {
        self.state.stage = Stage::Ready(handing, answer);
    }

    /// Handles the result of the hand-over by the forwarding thread.
    pub(crate) fn handed_over(&mut self, handing: Transferring, answer: &SyncSender<Result<u64>>) {
        let told = match handing.result {
            Some(Ok(frames)) => {
                self.state.stage = Stage::HandedOver;
                self.notify(Notice::HandedOver {
                    to: handing.to,
                    frames,
                });
                Ok(frames)
            }
            Some(Err(error)) => {
                self.keep(handing.to);
                Err(error).doing("handing over").map_err(Error::from)
            }
            None => Err(Error::Ended),
        };
        // A caller that has stopped waiting needs no answer.
        let _ = answer.send(told);
    }

    /// The hand-over has failed: the running process keeps shaping. A process without a number has not even begun.
    pub(crate) fn keep(&mut self, other: u32) {
        self.state.stage = Stage::Nothing;
        // The successor has installed its own tables there.
        self.plans.iter().for_each(Plan::reinstall);
        if other > 0 {
            self.notify(Notice::NotHandedOver(other));
        }
    }
}
