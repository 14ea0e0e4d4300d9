//! What the way through the daemon adds to the delays of the algorithms, as far as it can be said before it runs: the
//! terms of PSPAT's Eq. 1. `docs/internals/pipeline.md` derives them.

use fairlane_config::link_report::PipelineTerms;
use fairlane_config::{Backend, Interfaces, Link, Near, Role, Site};
use fairlane_mailbox::most_waiting;
use fairlane_runtime::ArbiterConfig;
use fairlane_runtime::bridge::{BATCH, MOST_TAKEN_IN, Side};

use crate::device::{TX_RING, budget};
use crate::workers::{ClassifiedFrame, SLOTS, WorkerOptions, arbiters, counts};

/// Frames that a worker holds at most: a batch that is on its way, and a full mailbox.
pub(crate) const HELD: usize = BATCH + most_waiting::<ClassifiedFrame>(SLOTS);

/// In how many rounds the device has a packet that may leave: that in which it became so, and the one that releases it
/// and transmits at once.
const DEPARTURE_ROUNDS: usize = 2;

/// In how many rounds each frame is taken in that one of so many workers at an interface holds: that in which it came,
/// and then as many as it takes to empty what all of them may hold. In turns each has a batch in as many batches as
/// there are workers.
pub(crate) const fn arrival_rounds(workers: usize) -> usize {
    1 + (workers * HELD.div_ceil(BATCH)).div_ceil(MOST_TAKEN_IN / BATCH)
}

/// What a site's interfaces and workers are, by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pipeline {
    /// How many workers receive there.
    workers: [usize; 2],
    /// How many threads decide.
    arbiters: usize,
    /// Bytes that a device may have in flight.
    budgets: [u64; 2],
    /// Frames of these at most whose overhead it does not count.
    bare_frames: u64,
}

impl Pipeline {
    /// Of a site with these interfaces, and these workers at each.
    pub(crate) fn new(
        site: &Site,
        interfaces: &Interfaces,
        workers: &[Option<WorkerOptions>; 2],
    ) -> Pipeline {
        let counts = workers.each_ref().map(Option::as_ref);
        let counts = counts.map(|workers| Some(workers?.count));
        Pipeline::of(interfaces, counts, arbiters(site, counts))
    }

    /// Whether each link has an arbiter on a thread of its own.
    pub(crate) fn has_arbiter_a_link(&self) -> bool {
        self.arbiters > 1
    }

    fn of(interfaces: &Interfaces, workers: [Option<usize>; 2], arbiters: usize) -> Pipeline {
        let bytes = budget(interfaces.backend).as_bytes();
        Pipeline {
            workers: workers.map(Option::unwrap_or_default),
            arbiters,
            bare_frames: match interfaces.backend {
                // The kernel's memory for a frame is more than the frame with its overhead.
                Backend::Packet => 0,
                Backend::Xdp => TX_RING.into(),
            },
            budgets: match interfaces.near {
                Near::Inside(_) => [bytes, bytes],
                // A tap device sends at once, and nothing is sent to nobody.
                Near::Tap(_) | Near::Nothing => [0, bytes],
            },
        }
    }

    /// What it adds to the delays of this link.
    pub(crate) fn terms(&self, link: &Link) -> PipelineTerms {
        let side = match link.to {
            Role::Outside => Side::Right,
            Role::Inside | Role::Tap | Role::Attached => Side::Left,
        };
        let workers = self.workers[side.other() as usize];
        let released = ArbiterConfig::new(fairlane_runtime::Link::new(link.rate)).release_limit;
        let terms = PipelineTerms {
            receive_workers: workers,
            arbiters: self.arbiters,
            held_frames: workers * HELD,
            arrival_rounds: (workers > 0).then(|| arrival_rounds(workers)),
            departure_rounds: DEPARTURE_ROUNDS,
            released_packets: released,
            device_bytes: self.budgets[side as usize],
            ..PipelineTerms::default()
        };
        let beside = match terms.device_bytes {
            0 => 0,
            _ => self.bare_frames * u64::from(link.overhead),
        };
        terms.over(link.rate, link.longest.get(), beside)
    }
}

/// What the way through a daemon on this machine adds to the delays of a link of a site, if it has interfaces. The
/// number of workers that the file leaves to the machine is that of this one; at an interface that is not here, as many
/// as it has cores for beside the thread that forwards, 16 at most.
///
/// ```
/// use fairlane_config::Site;
///
/// let text = r#"
/// [interfaces]
/// inside = "lan0"
/// outside = "wan0"
///
/// [workers]
/// receive = 2
///
/// [[link]]
/// name = "up"
/// to = "outside"
/// rate = "100mbit"
///
/// [[link.class]]
/// name = "all"
/// default = true
/// "#;
/// let site = Site::parse(text, "site.toml")?;
/// let terms = fairlane_site::pipeline_terms(&site, &site.links[0]).ok_or("it has interfaces")?;
/// assert_eq!((terms.receive_workers, terms.arrival_rounds), (2, Some(4)));
/// assert_eq!(terms.device_bytes, 256 << 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pipeline_terms(site: &Site, link: &Link) -> Option<PipelineTerms> {
    let interfaces = site.interfaces.as_ref()?;
    let counts = counts(site, false);
    Some(Pipeline::of(interfaces, counts, arbiters(site, counts)).terms(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_that_a_device_does_not_count_is_in_the_transmit_queue() {
        for (backend, bare) in [("packet", 0), ("xdp", u64::from(TX_RING))] {
            for (overhead, near) in [
                (0, "inside = 'lan%d'"),
                (24, "inside = 'lan%d'"),
                (24, "tap = 'fair0'"),
            ] {
                let text = format!(
                    "[interfaces]\noutside = 'wan%d'\n{near}\nbackend = '{backend}'\n[[link]]\nname = 'up'\n\
                     to = 'outside'\nrate = '1gbit'\noverhead = {overhead}\n\
                     class = [{{ name = 'all', default = true }}]\n"
                );
                let site = Site::parse(&text, "site.toml").unwrap();
                let link = &site.links[0];
                let terms = pipeline_terms(&site, link).unwrap();
                let released = terms.released_packets as u64 * u64::from(link.longest.get());
                let counted = terms.device_bytes + released;
                assert_eq!(terms.transmit_bytes, counted + bare * overhead, "{text}");
            }
        }
    }
}
