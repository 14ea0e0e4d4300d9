//! The delay that the path through the daemon adds to that of the algorithms, as far as it is known before the daemon
//! runs: the terms of PSPAT's Eq. 1. `docs/internals/pipeline.md` derives them.

use crate::counts::{arbiters, counts, transmit_counts};
use crate::device::opener::{properties, short_queue};
use crate::device::xdp::TX_RING;
use crate::transmitting;
use crate::workers::{HELD, WorkerOptions, arrival_rounds};
use fairlane_config::link_report::PipelineTerms;
use fairlane_config::{Interfaces, Link, Near, Role, Site};
use fairlane_core::{Nanos, Rate};
use fairlane_io::{Budget, interface};
use fairlane_runtime::ArbiterConfig;
use fairlane_runtime::bridge::Side;

/// Within how many rounds an eligible packet is with the device, or with a transmit worker: the round in which it
/// became eligible, and the one that releases and transmits it.
const DEPARTURE_ROUNDS: usize = 2;

/// A site's interfaces and workers, by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Receive workers by side.
    workers: [usize; 2],
    /// Number of arbiter threads.
    arbiters: usize,
    /// Transmit workers by side.
    transmitting: [usize; 2],
    /// Bytes that a device may ever have in flight.
    budgets: [u64; 2],
    /// The maximum of these for a frame.
    longest_costs: [u64; 2],
    /// The largest number of frames whose overhead it does not count.
    bare_frames: [u64; 2],
    /// The speed of each interface, if it is configured or its driver knows it.
    speeds: [Option<Rate>; 2],
    /// The longest permitted round.
    longest_round: Nanos,
}

impl Pipeline {
    /// Creates the pipeline of a site with these interfaces, and these workers at each.
    pub fn new(
        site: &Site,
        interfaces: &Interfaces,
        workers: &[Option<WorkerOptions>; 2],
    ) -> Pipeline {
        let workers = workers.each_ref().map(Option::as_ref);
        let receiving = workers.map(|workers| Some(workers?.count));
        let transmitting = workers.map(|workers| Some(workers?.transmit.as_ref()?.count));
        let transmitting = transmitting.map(Option::unwrap_or_default);
        Pipeline::of(site, interfaces, receiving, transmitting)
    }

    /// Returns the longest permitted round.
    pub fn longest_round(&self) -> Nanos {
        self.longest_round
    }

    /// Whether each link has its own arbiter thread.
    pub fn has_arbiter_a_link(&self) -> bool {
        self.arbiters > 1
    }

    fn of(
        site: &Site,
        interfaces: &Interfaces,
        workers: [Option<usize>; 2],
        transmitting: [usize; 2],
    ) -> Pipeline {
        let backend = properties(interfaces.backend);
        let bytes = backend.budget.as_bytes();
        let names = [Role::Inside, Role::Outside].map(|role| interfaces.named(role));
        Pipeline {
            workers: workers.map(Option::unwrap_or_default),
            arbiters: arbiters(site, workers, transmitting),
            transmitting,
            bare_frames: transmitting.map(|workers| match backend.costs_overhead {
                true => 0,
                // Each worker has its own ring.
                false => {
                    let rings = workers.max(1) * TX_RING as usize;
                    (rings + workers * transmitting::HELD) as u64
                }
            }),
            speeds: names.map(|name| interfaces.speed.or_else(|| speed_of(name?))),
            longest_costs: names.map(|name| backend.longest_cost(name.unwrap_or(""))),
            longest_round: interfaces.longest_round,
            budgets: match interfaces.near {
                Near::Inside(_) => [bytes, bytes],
                // A tap device sends at once, and without an interface nothing is sent.
                Near::Tap(_) | Near::Nothing => [0, bytes],
            },
        }
    }

    /// Returns the terms that it adds to the delays of this link.
    pub fn terms(&self, link: &Link) -> PipelineTerms {
        let side = match link.to {
            Role::Outside => Side::Right,
            Role::Inside | Role::Tap | Role::Attached => Side::Left,
        };
        let workers = self.workers[side.other() as usize];
        let transmitting = self.transmitting[side as usize];
        let released = ArbiterConfig::new(fairlane_runtime::Link::new(link.rate)).release_limit;
        let longest = u64::from(link.longest.get());
        let most = Budget::from_bytes(self.budgets[side as usize]);
        let most = most.shortened(short_queue(link.rate), self.longest_costs[side as usize]);
        let speed = self.speeds[side as usize];
        let terms = PipelineTerms {
            receive_workers: workers,
            arbiters: self.arbiters,
            held_frames: workers * HELD,
            arrival_rounds: (workers > 0).then(|| arrival_rounds(workers)),
            departure_rounds: DEPARTURE_ROUNDS,
            transmit_workers: transmitting,
            transmit_rounds: (transmitting > 0).then_some(transmitting::ROUNDS),
            released_packets: released,
            released_bytes: (released as u64 * longest).min(self.of_a_round(link.rate) + longest),
            device_bytes: most.as_bytes(),
            round_budget_ns: self.longest_round.0,
            speed_bps: speed.map(Rate::bps),
            ..PipelineTerms::default()
        };
        let beside = match terms.device_bytes {
            0 => 0,
            _ => self.bare_frames[side as usize] * u64::from(link.overhead),
        };
        terms.over(speed.unwrap_or(link.rate), beside)
    }

    /// Returns the bytes that a link of this rate carries in the longest permitted round, rounded up.
    fn of_a_round(&self, rate: Rate) -> u64 {
        let billionths = u128::from(rate.bps()) * u128::from(self.longest_round.0);
        u64::try_from(billionths.div_ceil(8_000_000_000)).unwrap_or(u64::MAX)
    }
}

/// Returns the speed of an interface as its driver reports it.
fn speed_of(name: &str) -> Option<Rate> {
    Rate::from_bps(interface::speed(name).ok()??)
}

/// Returns the terms that a daemon on this machine adds to the delays of a link of a site, or `None` if the site has no
/// interfaces. If the file leaves the number of workers to the machine, it is that of this machine; for an interface
/// that does not exist here, as many as there are cores next to the forwarding thread, at most 16.
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
/// let terms = fairlane_dataplane::pipeline_terms(&site, &site.links[0]).ok_or("it has interfaces")?;
/// assert_eq!((terms.receive_workers, terms.arrival_rounds), (2, Some(4)));
/// // A millisecond of the link.
/// assert_eq!(terms.device_bytes, 12_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pipeline_terms(site: &Site, link: &Link) -> Option<PipelineTerms> {
    let interfaces = site.interfaces.as_ref()?;
    let receiving = counts(site, false);
    let transmitting = transmit_counts(site, receiving);
    Some(Pipeline::of(site, interfaces, receiving, transmitting).terms(link))
}

#[cfg(test)]
mod tests {
    use fairlane_config::Backend;

    use super::*;

    #[test]
    fn frames_that_transmit_workers_have_are_of_the_budget_and_so_is_their_overhead() {
        let text = "[interfaces]\noutside = 'wan%d'\ninside = 'lan%d'\n[workers]\n[[link]]\nname = 'up'\n\
                    to = 'outside'\nrate = '1gbit'\noverhead = 24\n";
        let site = Site::parse(text, "site.toml").unwrap();
        let (link, interfaces) = (&site.links[0], site.interfaces.as_ref().unwrap());
        let terms = |interfaces: &Interfaces, workers| {
            Pipeline::of(&site, interfaces, [Some(1); 2], [9, workers]).terms(link)
        };
        let [without, one, two] = [0, 1, 2].map(|workers| terms(interfaces, workers));
        assert_eq!((one.transmit_workers, without.transmit_workers), (1, 0));
        // A mailbox of 256 places, returned four at a time, in batches of 64, and the round in which a frame arrived.
        let rounds = [&without, &one, &two].map(|terms| terms.transmit_rounds);
        assert_eq!(rounds, [None, Some(6), Some(6)]);
        assert_eq!(without.transmit_bytes, two.transmit_bytes);
        let xdp = Interfaces {
            backend: Backend::Xdp,
            ..interfaces.clone()
        };
        let [without, one, three] = [0, 1, 3].map(|workers| terms(&xdp, workers).transmit_bytes);
        assert_eq!(one - without, (64 + 260) * 24);
        // Each worker has its own ring.
        assert_eq!(three - one, 2 * (256 + 64 + 260) * 24);
    }

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
                let counted = terms.device_bytes + terms.released_bytes;
                assert_eq!(terms.transmit_bytes, counted + bare * overhead, "{text}");
            }
        }
    }
}
