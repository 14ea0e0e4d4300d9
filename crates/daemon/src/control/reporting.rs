//! Reports of the control thread: counts and findings of the forwarding thread, and the network's state.

use std::sync::Arc;

use fairlane_core::Nanos;
use fairlane_dataplane::passing::FINDINGS;
use fairlane_dataplane::work::Counting;
use fairlane_runtime::attach::Attach;
use fairlane_runtime::bridge::Side;

use super::state::Control;
use crate::notice::Notice;
use crate::report::{
    ForwardingReport, InterfaceReport, LinkReport, OpenReport, PipelineReport, Report,
};

/// Least time between two times that memory is given back.
const TIDIED: Nanos = Nanos::from_millis(5_000);

impl Control {
    /// Looks at the kernel's network: returns its ways past the site; none while an interface is detached.
    pub(super) fn look_at_network(&mut self) -> Vec<Arc<str>> {
        let interfaces = self.interfaces_with(&None);
        let Some(interfaces) = interfaces.filter(|_| self.detached == [false; 2]) else {
            return Vec::new();
        };
        let longest = Side::BOTH.map(|side| {
            let plan = self.plans.iter().find(|plan| plan.side == side)?;
            Some(plan.link.longest.get() - plan.link.overhead)
        });
        self.network.look(interfaces, longest, &self.notify)
    }

    /// Counts the passive TCP observations of both directions.
    pub(super) fn count_findings(&mut self) {
        let mut all = Vec::new();
        for findings in self
            .plans
            .iter_mut()
            .filter_map(|plan| plan.findings.as_mut())
        {
            all.extend(std::iter::from_fn(|| findings.pop()).take(FINDINGS));
        }
        for plan in &mut self.plans {
            plan.found(&all);
        }
        self.state.flows.found(&all);
    }

    /// Gives free memory back: reading or comparing a configuration takes several times the memory that is kept of it.
    /// Limited in frequency, and only after something was read.
    pub(super) fn tidy_up(&mut self) {
        let state = &mut self.state;
        if state.littered > 0 && state.told.since(state.tidied) >= TIDIED {
            state.littered -= 1;
            state.tidied = state.told;
            fairlane_io::give_back_unused();
        }
    }

    /// Makes a report of the counts.
    pub(super) fn tell(&mut self, mut counting: Counting) {
        self.count_findings();
        let now = self.clock.now();
        let times = [self.state.start, self.state.told].map(|then| now.since(then).0 as f64 / 1e9);
        self.state.told = now;
        self.state.changed = false;
        // One notice a report, however many were refused.
        let refusals = self.attach.as_ref().and_then(Attach::take_refusals);
        if let Some(refusals) = refusals {
            self.notify(Notice::NotAttached(refusals));
        }
        let forwarding_pauses = self.longest.tell();
        let mut report = Report {
            seconds: times[0],
            recent_seconds: times[1],
            attached: (self.attach.as_ref()).map_or(0, |attach| attach.attached().len()),
            reloads: self.state.reloads,
            bypasses: self.look_at_network(),
            configuration: self.state.last_reload.report(&self.handle),
            forwarding_pause_max_us: forwarding_pauses
                .iter()
                .map(|step| step.us)
                .fold(0.0, f64::max),
            forwarding_pauses,
            forwarding: ForwardingReport::of(counting.thread),
            interfaces: Side::BOTH
                .map(|side| {
                    let before = self.state.report.interfaces.get(side as usize);
                    let count = &counting.devices[side as usize];
                    InterfaceReport {
                        attached: !self.detached[side as usize],
                        ..InterfaceReport::new(&self.devices[side as usize], count, before)
                    }
                })
                .into(),
            ..Report::default()
        };
        for side in Side::BOTH {
            let to = Arc::clone(&self.devices[side as usize].name);
            let count = &counting.devices[side as usize];
            let pipeline = self.pipeline;
            let arrived = counting.devices[side.other() as usize].waits;
            let waits = [arrived, count.transmit_waits];
            let Some(plan) = self.plan_mut(side) else {
                report.open.push(OpenReport {
                    to,
                    frames: count.lane.received.frames,
                    bytes: count.lane.received.bytes,
                });
                continue;
            };
            let from = &mut report.interfaces[side.other() as usize];
            let lost = from.recent_lost;
            let terms = pipeline.terms(&plan.link);
            plan.allow(terms.rounds());
            let pipeline = PipelineReport::new(terms, counting.thread, waits, count.most_in_flight);
            let counted = std::mem::take(&mut counting.links[side as usize]);
            let link = LinkReport::new(plan, counted, count, to, times, lost, pipeline);
            let early = link.early_drops() + plan.early_of_gone;
            let opaque_counts = plan.opaque.counts;
            let told = &mut self.state.opaque_links;
            let opaque = link.opaque_protocol.as_ref();
            if let Some(protocol) = opaque.filter(|&it| told.get(&link.name) != Some(it)) {
                told.insert(Arc::clone(&link.name), Arc::clone(protocol));
                (self.notify)(Notice::Opaque {
                    link: Arc::clone(&link.name),
                    protocol: Arc::clone(protocol),
                    frames: opaque_counts.opaque,
                    offered: opaque_counts.offered,
                });
            }
            from.recent_early_drops = early.saturating_sub(from.early_drops);
            from.early_drops = early;
            report.links.push(link);
        }
        self.state.report = Arc::new(report);
    }
}
