//! Shares by weight: over a long run, next to flows that come and go, after other flows were idle, and within the
//! algorithm's guarantees.

use fairlane_core::bounds::Guarantees;
use fairlane_core::sched::Algorithm;
use fairlane_core::{FlowId, PacketScheduler, Scheduler};
use proptest::prelude::*;

use crate::broken::{Sentence, demand};
use crate::flows::{Backlogged, Offer, Wfi};
use crate::numbers::{config, length, scheduler};

/// Flows by weight and maximum packet length, some permanent and some that come and go.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    /// Number of flows at the end of the list that come and go.
    fleeting: usize,
    flows: Vec<(u32, u32)>,
    /// True if packet lengths vary.
    mixed: bool,
}

impl Flows {
    fn offers(&self) -> Vec<Offer> {
        let offer = match self.mixed {
            true => Offer::mixed,
            false => Offer::of,
        };
        let all = self.flows.iter();
        all.map(|&(weight, longest)| offer(weight, longest))
            .collect()
    }

    fn stays(&self, flow: usize) -> bool {
        flow < self.flows.len() - self.fleeting
    }

    /// Returns a flow's share of the link's work, in bytes.
    fn part(&self, flow: usize, work: u64) -> f64 {
        let weight = |&(weight, _): &(u32, u32)| f64::from(weight);
        let sum: f64 = self.flows.iter().map(weight).sum();
        work as f64 * weight(&self.flows[flow]) / sum
    }

    /// Returns the maximum deviation of a flow from its share, in bytes, wherever the flows are in a round: its part of
    /// a round in which each flow sends at least one maximum-size packet, and one such packet.
    fn turn(&self, flow: usize) -> f64 {
        let unit = |&(weight, longest): &(u32, u32)| f64::from(longest) / f64::from(weight);
        let unit = self.flows.iter().map(unit).fold(0.0, f64::max);
        let (weight, longest) = self.flows[flow];
        2.0 * (f64::from(weight) * unit + f64::from(longest))
    }
}

/// Returns two to eight flows of different weights, or of equal ones.
pub(crate) fn flows(by_weight: bool) -> impl Strategy<Value = Flows> {
    let weight = if by_weight { 1..=16u32 } else { 1..=1u32 };
    let longest = prop_oneof![Just(1500u32), 64..=9000u32];
    // One flow of the least weight, and one of eight times that weight.
    let first = if by_weight { [1, 8] } else { [1, 1] };
    let others = prop::collection::vec((weight, longest.clone()), 0..6);
    ([longest.clone(), longest], others).prop_map(move |(ends, others)| {
        let mut flows: Vec<(u32, u32)> = first.into_iter().zip(ends).collect();
        flows.extend(others);
        if !by_weight {
            let first = flows[0];
            flows.fill(first);
        }
        Flows {
            fleeting: flows.len() / 2,
            flows,
            mixed: by_weight,
        }
    })
}

/// Checks that over a long run each flow gets its share, within 5% and its deviation in a round.
pub(crate) fn shares<A: Scheduler>(algorithm: A, flows: &Flows) -> Sentence {
    let wfi = measured(algorithm, flows, 4_000);
    for flow in 0..flows.flows.len() {
        let (fair, served) = (flows.part(flow, wfi.work()), wfi.served(flow) as f64);
        demand!(
            (served - fair).abs() <= 0.05 * fair + flows.turn(flow),
            "shares do not follow weights: flow {flow} of weight {} sent {served} bytes of {}, and its \
             share is {fair:.0}",
            flows.flows[flow].0,
            wfi.work()
        );
    }
    Ok(())
}

/// Returns the number of packets with which a flow is never idle, even in the fluid server that some algorithms
/// simulate for every packet.
fn depth<A: Scheduler>(weight: u32) -> u32 {
    if A::FOLLOWS_PACKETS { 8 * weight } else { 3 }
}

fn measured<A: Scheduler>(algorithm: A, flows: &Flows, packets: u32) -> Wfi {
    let mut wfi = Wfi::new(&flows.offers());
    let mut link = Backlogged::holding(algorithm, flows.offers(), |offer| depth::<A>(offer.weight));
    for _ in 0..packets {
        let (flow, bytes) = link.serve();
        wfi.serve(flow, bytes);
    }
    (0..flows.flows.len()).for_each(|flow| wfi.look(flow));
    wfi
}

/// Checks that the B-WFI of each flow is within its bound while all flows are backlogged.
pub(crate) fn bounds<A: Scheduler>(make: A, flows: &Flows, guarantees: Algorithm) -> Sentence {
    let wfi = measured(make, flows, 2_000);
    let config = |&(weight, longest): &(u32, u32)| config(weight, longest);
    let configs: Vec<_> = flows.flows.iter().map(config).collect();
    let promised = Guarantees::new(guarantees, &configs, wfi.work());
    for (flow, config) in configs.iter().enumerate() {
        let Some(bound) = promised.of(config) else {
            continue;
        };
        let (behind, bound) = (wfi.service(flow), bound.service.bytes());
        demand!(
            behind <= bound,
            "the bound does not hold: flow {flow} of weight {} was {behind:.1} bytes behind its share, \
             and {bound:.1} are guaranteed",
            flows.flows[flow].0
        );
    }
    Ok(())
}

/// A link with these flows, initially empty.
struct Link<A: Scheduler> {
    link: PacketScheduler<A, ()>,
    served: Vec<u64>,
}

impl<A: Scheduler> Link<A> {
    fn new(algorithm: A, flows: &Flows) -> Result<Self, String> {
        let mut link = scheduler(algorithm);
        for &(weight, longest) in &flows.flows {
            let added = link.add_flow(config(weight, longest));
            added.map_err(|error| format!("a flow is refused: {error}"))?;
        }
        let served = vec![0; flows.flows.len()];
        Ok(Link { link, served })
    }

    fn packet(&mut self, flow: usize, longest: u32) -> Sentence {
        let accepted = (self.link).enqueue(FlowId::new(flow as u32), length(longest), ());
        accepted.map_err(|rejected| format!("a packet is rejected: {}", rejected.reason))
    }

    /// Serves a packet and enqueues another of the same flow and length.
    fn serve(&mut self) -> Sentence {
        let Some(packet) = self.link.dequeue() else {
            return Err("the link idles while packets wait".to_owned());
        };
        let flow = packet.owner.number() as usize;
        self.served[flow] += u64::from(packet.len.get());
        self.packet(flow, packet.len.get())
    }

    /// Serves `so_many` packets and checks that permanent flows get at least half of their share.
    fn nobody_starves(&mut self, flows: &Flows, so_many: usize, because: &str) -> Sentence {
        self.served.fill(0);
        for _ in 0..so_many {
            self.serve()?;
        }
        let work = self.served.iter().sum();
        for (flow, &served) in self.served.iter().enumerate() {
            let part = flows.part(flow, work);
            demand!(
                !flows.stays(flow) || served as f64 >= part / 2.0 - flows.turn(flow),
                "{because}: flow {flow} waited all the time, and sent {served} bytes of {work}; its share \
                 is {part:.0}"
            );
        }
        Ok(())
    }
}

/// Checks that backlogged flows do not starve next to flows that have one packet at a time.
pub(crate) fn newcomers<A: Scheduler>(algorithm: A, flows: &Flows) -> Sentence {
    let mut link = Link::new(algorithm, flows)?;
    for (flow, &(weight, longest)) in flows.flows.iter().enumerate() {
        let packets = if flows.stays(flow) {
            depth::<A>(weight)
        } else {
            1
        };
        (0..packets).try_for_each(|_| link.packet(flow, longest))?;
    }
    let because = "flows that become backlogged come before all others";
    link.nobody_starves(flows, 1_000, because)
}

/// Checks that backlogged flows do not starve when others return after a long idle time.
pub(crate) fn comes_back<A: Scheduler>(algorithm: A, flows: &Flows) -> Sentence {
    let mut link = Link::new(algorithm, flows)?;
    let fill = |link: &mut Link<A>, flow: usize| {
        let (weight, longest) = flows.flows[flow];
        (0..depth::<A>(weight)).try_for_each(|_| link.packet(flow, longest))
    };
    for (flow, &(_, longest)) in flows.flows.iter().enumerate() {
        // All flows have been backlogged before.
        link.packet(flow, longest)?;
    }
    for _ in 0..flows.flows.len() {
        link.link.dequeue();
    }
    let (stay, go): (Vec<_>, Vec<_>) = (0..flows.flows.len()).partition(|&flow| flows.stays(flow));
    for &flow in &stay {
        fill(&mut link, flow)?;
    }
    (0..1_000).try_for_each(|_| link.serve())?;
    for &flow in &go {
        fill(&mut link, flow)?;
    }
    let because = "a flow that was idle is served for the time it was idle, as where virtual time stands \
                   still";
    link.nobody_starves(flows, 700, because)
}
