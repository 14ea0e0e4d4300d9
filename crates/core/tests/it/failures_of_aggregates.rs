//! Failures of QFQ+, where flows are served in aggregates, that do not occur here, whatever the algorithm below.

use std::num::NonZeroU32;

use crate::support::{FRACTION, Random, check, config, drain, length, next, scheduler};
use fairlane_core::sched::{
    AUTOMATIC_MEMBERS, Algorithm, Drr, Gfq, Plus, Qfq, SKps, Wf2q, Wf2qPlus, automatic_members,
};
use fairlane_core::scheduler::{EntityId, Holds, MaybeEntity, Removal, Violation};
use fairlane_core::{
    AnyScheduler, ChangeError, Charge, FlowId, PacketScheduler, Scheduler, SchedulerLimits, Share,
    VirtualTime, Weight, with_algorithm,
};

/// One service of an aggregate, in bytes.
#[derive(Clone, Copy, Debug)]
struct Service {
    aggregate: usize,
    budget: u32,
    charged: u32,
}

/// An algorithm that checks the statements of SCHED+ about an aggregate: it is charged for the link's work for it, and
/// for no more than the budget that it was granted.
#[derive(Clone, Debug)]
struct Audited<A> {
    algorithm: A,
    /// Of each aggregate.
    budgets: Vec<u32>,
    /// Work since the last service ended.
    work: u32,
    services: Vec<Service>,
}

impl<A> Audited<A> {
    fn new(algorithm: A) -> Self {
        Audited {
            algorithm,
            budgets: Vec::new(),
            work: 0,
            services: Vec::new(),
        }
    }
}

impl<A: Scheduler> Scheduler for Audited<A> {
    type Entity = A::Entity;
    const NAME: &'static str = A::NAME;

    fn add(&mut self, all: &mut [impl Holds<A::Entity>], id: EntityId, share: Share) {
        self.budgets
            .resize(self.budgets.len().max(id.index() + 1), 0);
        self.algorithm.add(all, id, share);
    }
    fn remove(&mut self, all: &mut [impl Holds<A::Entity>], id: EntityId) -> Removal {
        self.algorithm.remove(all, id)
    }
    fn change(&mut self, all: &mut [impl Holds<A::Entity>], id: EntityId, share: Share) {
        self.algorithm.change(all, id, share);
    }
    fn weight(&self, all: &[impl Holds<A::Entity>], id: EntityId) -> Weight {
        self.algorithm.weight(all, id)
    }
    fn is_active(&self, all: &[impl Holds<A::Entity>], id: EntityId) -> bool {
        self.algorithm.is_active(all, id)
    }
    fn backlogged(&mut self, all: &mut [impl Holds<A::Entity>], id: EntityId, head: Charge) {
        self.budgets[id.index()] = head.get();
        self.algorithm.backlogged(all, id, head);
    }
    fn arrived(&mut self, all: &mut [impl Holds<A::Entity>], id: EntityId, of: Charge) {
        self.algorithm.arrived(all, id, of);
    }
    fn select(&self, all: &[impl Holds<A::Entity>]) -> MaybeEntity {
        self.algorithm.select(all)
    }
    fn hold(&mut self, all: &mut [impl Holds<A::Entity>], id: EntityId) {
        self.algorithm.hold(all, id);
    }
    fn served(&mut self, work: Charge) {
        self.work += work.get();
        self.algorithm.served(work);
    }
    fn reschedule(
        &mut self,
        all: &mut [impl Holds<A::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let budget = self.budgets[id.index()];
        let worked = std::mem::take(&mut self.work);
        assert!(charged.get() <= budget, "{charged:?} of {budget} bytes");
        assert_eq!(charged.get(), worked, "V and F go by the same bytes");
        self.services.push(Service {
            aggregate: id.index(),
            budget,
            charged: charged.get(),
        });
        self.budgets[id.index()] = next.map_or(0, Charge::get);
        self.algorithm.reschedule(all, id, charged, next);
    }
    fn idle(&mut self, all: &mut [impl Holds<A::Entity>], id: EntityId) {
        assert_eq!(self.work, 0, "an idle one was not served");
        self.algorithm.idle(all, id);
    }
    fn invariants(&self, all: &[impl Holds<A::Entity>]) -> Result<(), Violation> {
        self.algorithm.invariants(all)
    }
}

type Audit<A, P> = PacketScheduler<Plus<Audited<A>>, P>;

fn members(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn in_aggregates<A: Scheduler, P>(algorithm: A, most: u32) -> Audit<A, P> {
    scheduler(Plus::over(Audited::new(algorithm), members(most)))
}

fn services<A: Scheduler, P>(link: &Audit<A, P>) -> &[Service] {
    &link.algorithm().algorithm().services
}

/// Runs a generic test on each algorithm that aggregates are put under.
macro_rules! for_every_plus {
    ($test:ident) => {
        $test(Drr::new());
        $test(Gfq::new());
        $test(Qfq::new());
        $test(SKps::new());
        $test(Wf2q::new());
        $test(Wf2qPlus::new());
    };
}

/// The same, with a way to look at virtual time.
macro_rules! for_every_plus_with_a_clock {
    ($test:ident) => {
        $test(Gfq::new(), Gfq::virtual_time);
        $test(Qfq::new(), Qfq::virtual_time);
        $test(SKps::new(), SKps::virtual_time);
        $test(Wf2qPlus::new(), Wf2qPlus::virtual_time);
    };
}

/// The initial backlog of each of them.
const PACKETS: u32 = 40;

/// Two aggregates of four flows of weight 1 each: numbers 0 to 3 with packets of 1000
/// bytes, 4 to 7 with packets of 1100. All are backlogged.
fn four_and_four<A: Scheduler>(algorithm: A) -> Audit<A, u32> {
    let mut link = in_aggregates(algorithm, 4);
    let flows = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| {
        let flow = link.add_flow(config(1, packet_of(number))).unwrap();
        (flow, length(packet_of(number)))
    });
    for packet in 0..PACKETS {
        for (flow, bytes) in flows {
            link.enqueue(flow, bytes, packet).unwrap();
        }
    }
    assert_eq!(link.algorithm().aggregates(), 2);
    link
}

fn packet_of(flow: u32) -> u32 {
    if flow < 4 { 1000 } else { 1100 }
}

/// A transmit queue of 2^32 - 1 packets, and the one on the wire, were none.
#[test]
fn a_transmit_queue_of_any_length_makes_one_to_eight_members() {
    for (queue, expected) in [(0, 1), (1, 2), (6, 7), (7, 8), (8, 8), (1000, 8)] {
        assert_eq!(automatic_members(queue), members(expected));
    }
    for queue in [1 << 31, u32::MAX - 1, u32::MAX] {
        assert_eq!(automatic_members(queue), AUTOMATIC_MEMBERS);
    }
    // Nor does any M of one's own overflow a budget or a weight.
    for most in [1, 8, 1 << 16, u32::MAX] {
        for (weight, longest) in [(1, 1), (1, 65_535), (1_000_000, 1), (1_000_000, 65_535)] {
            let mut link = in_aggregates(Qfq::new(), most);
            for _ in 0..100 {
                let flow = link.add_flow(config(weight, longest)).unwrap();
                link.enqueue(flow, length(longest), ()).unwrap();
                check(&link);
            }
            // Nor do together more than an entity can have: 8,000,000, and 2^20 bytes with
            // a packet to spare.
            let room = most
                .min(8_000_000 / weight)
                .min(((1 << 20) - 65_535) / longest);
            let aggregates = 100u32.div_ceil(room) as usize;
            assert_eq!(link.algorithm().aggregates(), aggregates);
            assert_eq!(drain(&mut link).len(), 100);
        }
    }
}

/// The rest of the aggregate had the budget of before, and V another weight than F.
#[test]
fn over_aggregates_of_one_qfq_and_s_kps_are_run_themselves() {
    let run = |algorithm: Algorithm| {
        let flat = with_algorithm!(algorithm, new => std::any::type_name_of_val(&new()));
        let any = AnyScheduler::<u32>::new(algorithm, SchedulerLimits::default());
        (flat, format!("{any:?}"))
    };
    for (plus, plain) in [
        (Algorithm::QfqPlus(members(1)), Algorithm::Qfq),
        (Algorithm::SKpsPlus(members(1)), Algorithm::SKps),
    ] {
        assert_eq!(run(plus), run(plain));
        assert_ne!(run(plus.with_members(members(2))), run(plain));
    }
    let others = Algorithm::GfqPlus(members(1));
    assert_ne!(run(others), run(Algorithm::Gfq));
}

#[test]
fn removing_a_flow_of_the_aggregate_in_service_adds_nothing_to_its_budget() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let before = four_and_four(algorithm);
        for (sent, gone) in (0..9).flat_map(|sent| [0, 2, 5].map(|gone| (sent, gone))) {
            let mut link = before.clone();
            for _ in 0..sent {
                next(&mut link);
            }
            let services_before = services(&link).len();
            link.remove_flow(FlowId::new(gone), |_| ()).unwrap();
            check(&link);
            let mut served = [0; 2];
            for step in 0..100 {
                let packet = next(&mut link);
                assert_ne!(packet.owner.number(), gone);
                if step >= 20 {
                    served[usize::from(packet.owner.number() >= 4)] += packet.len.get();
                }
                check(&link);
            }
            let smaller = usize::from(gone >= 4);
            let full = [4000, 4400];
            let mut places = [0; 2];
            for service in &services(&link)[services_before..] {
                let of = service.aggregate;
                let missing = if of == smaller { packet_of(gone) } else { 0 };
                assert_eq!(service.charged, service.budget, "{}", A::NAME);
                // Its present place remains, and perhaps the next one, if its turn had not come before the change.
                let least = full[of] - missing;
                let at_first = places[of] < 2 && service.budget == full[of];
                assert!(
                    service.budget == least || at_first,
                    "{}: {service:?}",
                    A::NAME
                );
                places[of] += 1;
            }
            // Three against four, to a few budgets.
            let weights = [0, 1].map(|of| 4 - u32::from(of == smaller));
            let apart = (served[0] * weights[1]).abs_diff(served[1] * weights[0]);
            assert!(
                apart <= 4 * 3 * 4400,
                "{}: {served:?} without {gone}",
                A::NAME
            );
        }
    }
    for_every_plus!(test);
}

/// A lower maximum, with packets above it queued, made a budget that wrapped.
#[test]
fn a_maximum_below_a_queued_packet_is_refused_and_the_budget_stays() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let mut link = four_and_four(algorithm);
        for sent in 0..9 {
            let mut untouched = link.clone();
            for flow in (0..8).map(FlowId::new) {
                for max in [1, 999] {
                    let max = length(max);
                    let queued = length(packet_of(flow.number()));
                    let refused = link.change_flow(flow, config(1, max.get()));
                    assert_eq!(
                        refused,
                        Err(ChangeError::LongerPacketQueued { queued, max })
                    );
                }
            }
            check(&link);
            let mut changed = link.clone();
            assert_eq!(drain(&mut changed), drain(&mut untouched), "after {sent}");
            let left = services(&untouched).iter().map(|service| service.budget);
            assert!(
                services(&changed)
                    .iter()
                    .map(|service| service.budget)
                    .eq(left)
            );
            next(&mut link);
        }
    }
    for_every_plus!(test);
}

/// Longer packets than the budget was made for were taken out of it, below zero.
#[test]
fn a_maximum_may_change_while_its_aggregate_is_in_service() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let before = four_and_four(algorithm);
        for (sent, flow) in (0..9).flat_map(|sent| [0, 2, 5].map(|flow| (sent, flow))) {
            let mut link = before.clone();
            for _ in 0..sent {
                next(&mut link);
            }
            let flow = FlowId::new(flow);
            link.change_flow(flow, config(1, 65_535)).unwrap();
            // Its first packet may now be a long one.
            link.flush_flow(flow, |_| ()).unwrap();
            let mut packets = link.len() as usize;
            for packet in 0..3 {
                link.enqueue(flow, length(65_535), PACKETS + packet)
                    .unwrap();
                packets += 1;
                check(&link);
            }
            for _ in 0..sent {
                next(&mut link);
                packets -= 1;
                check(&link);
            }
            packets -= link.flow_stats(flow).unwrap().queued.packets as usize;
            link.flush_flow(flow, |_| ()).unwrap();
            link.change_flow(flow, config(1, 10)).unwrap();
            for packet in 0..3 {
                link.enqueue(flow, length(10), packet).unwrap();
                packets += 1;
                next(&mut link);
                packets -= 1;
                check(&link);
            }
            assert_eq!(drain(&mut link).len(), packets);
            check(&link);
            let granted = services(&link).iter().map(|service| service.budget);
            assert!(granted.max() <= Some(65_535), "{}", A::NAME);
        }
    }
    for_every_plus!(test);
}

/// When the first of others arrived in the middle of a service, V jumped, and moved on by
/// a sum of weights that was not there: the order was broken.
#[test]
fn virtual_time_goes_by_the_work_of_the_aggregate_in_service_whoever_joins() {
    fn test<A: Scheduler + Clone>(algorithm: A, now: fn(&A) -> VirtualTime) {
        for join_after in 1..8 {
            let mut link = in_aggregates(algorithm.clone(), 8);
            // Eight of weight 5 and one each of weights 1 to 7: a sum of 68.
            let equal = [(); 8].map(|()| link.add_flow(config(5, 1000)).unwrap());
            let others = [1, 2, 3, 4, 6, 7, 5].map(|of| link.add_flow(config(of, 1500)).unwrap());
            assert_eq!(link.algorithm().aggregates(), 8);
            let time = |link: &Audit<A, u32>| now(&link.algorithm().algorithm().algorithm);
            for packet in 0..30 {
                for flow in equal {
                    link.enqueue(flow, length(1000), packet).unwrap();
                }
            }
            // Alone, V jumps to each new start; so this begins a service.
            for _ in 0..16 {
                next(&mut link);
            }
            assert_eq!(services(&link).len(), 2);
            let start = time(&link);
            let mut work = 0u64;
            let mut serve = |link: &mut Audit<A, u32>| {
                let packet = next(link);
                work += u64::from(packet.len.get());
                check(link);
                (packet.owner, ((work << FRACTION) / 68) as i64)
            };
            for _ in 0..join_after {
                serve(&mut link);
            }
            // They come one by one, and those that are left with the last packet.
            let mut expected = 0;
            let mut others = others.into_iter();
            for left in (0..8 - join_after).rev() {
                let many = if left == 0 { 7 } else { 1 };
                for flow in others.by_ref().take(many) {
                    for packet in 0..20 {
                        link.enqueue(flow, length(1500), packet).unwrap();
                        check(&link);
                    }
                }
                let (served, at) = serve(&mut link);
                assert!(equal.contains(&served), "{}: it is in service", A::NAME);
                expected = at;
            }
            assert_eq!(services(&link).len(), 3, "{}: the budget is spent", A::NAME);
            assert_eq!(services(&link)[2].charged, 8000);
            let advanced = time(&link).distance_from(start);
            assert!((0..=1).contains(&(expected - advanced)), "{}", A::NAME);
        }
    }
    for_every_plus_with_a_clock!(test);
}

/// V advanced by the largest sum of weights there could be: jitter.
#[test]
fn virtual_time_advances_by_the_weights_of_all_members() {
    fn test<A: Scheduler>(algorithm: A, now: fn(&A) -> VirtualTime) {
        let mut link = in_aggregates(algorithm, 8);
        let busy = [(); 2].map(|()| link.add_flow(config(3, 1000)).unwrap());
        let other = link.add_flow(config(3, 500)).unwrap();
        let idle: Vec<FlowId> = (0..20)
            .map(|n| link.add_flow(config(1000 + n / 10, 1000)).unwrap())
            .collect();
        let mut sum = 9 + 10 * 1000 + 10 * 1001;
        let time = |link: &Audit<A, ()>| now(&link.algorithm().algorithm().algorithm);
        for gone in idle {
            for flow in busy {
                link.enqueue(flow, length(1000), ()).unwrap();
            }
            let start = time(&link);
            next(&mut link);
            // This is when V must be known.
            link.enqueue(other, length(500), ()).unwrap();
            let expected = (1000 << FRACTION) / sum;
            let advanced = time(&link).distance_from(start) as u64;
            // The clock counts the weight of an aggregate to 10^-5.
            let off = advanced.abs_diff(expected);
            assert!(
                off <= expected / 100_000 + 1,
                "{}: {advanced}, not {expected}",
                A::NAME
            );
            drain(&mut link);
            sum -= u64::from(link.weight(gone).unwrap().get());
            link.remove_flow(gone, |_| ()).unwrap();
            check(&link);
        }
    }
    for_every_plus_with_a_clock!(test);
}

/// CVE-2025-21700: a class that was moved under another parent still had the one before.
#[test]
fn a_flow_that_moves_leaves_its_aggregate_and_joins_another_whole() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        let before = four_and_four(algorithm);
        for (sent, mover) in (0..9).flat_map(|sent| [0, 2, 5].map(|mover| (sent, mover))) {
            let mut link = before.clone();
            for _ in 0..sent {
                next(&mut link);
            }
            // The moved one is of a new kind; then all that it left are removed.
            let mover = FlowId::new(mover);
            link.change_flow(mover, config(2, 1100)).unwrap();
            while link.algorithm().aggregates() == 2 {
                next(&mut link);
                check(&link);
            }
            let former = if mover.number() < 4 { 0..4 } else { 4..8 };
            for flow in former.map(FlowId::new).filter(|&flow| flow != mover) {
                link.remove_flow(flow, |_| ()).unwrap();
                check(&link);
            }
            let left = link.flow_stats(mover).unwrap().queued.packets;
            let mut expected = PACKETS - left as u32..PACKETS;
            while !link.is_empty() {
                let packet = next(&mut link);
                if packet.owner == mover {
                    assert_eq!(Some(packet.payload), expected.next(), "{}", A::NAME);
                }
                check(&link);
            }
            assert!(expected.is_empty());
            assert_eq!(link.algorithm().aggregates(), 2);
        }
    }
    for_every_plus!(test);
}

/// Lists of classes were corrupt after a while.
#[test]
fn hundreds_of_flows_come_and_go_while_tens_move_between_full_aggregates() {
    fn test<A: Scheduler + Clone>(algorithm: A) {
        for most in [2, 8] {
            let mut random = Random(15);
            let mut link = in_aggregates(algorithm.clone(), most);
            let kind = |random: &mut Random| {
                config(random.pick(&[1, 2, 1000]), random.pick(&[1000, 1500]))
            };
            let flows: Vec<FlowId> = (0..200)
                .map(|_| link.add_flow(kind(&mut random)).unwrap())
                .collect();
            let mut waiting = 0;
            for step in 0..2000 {
                match random.below(10) {
                    0..4 => {
                        let bytes = length(1 + random.below(1000));
                        link.enqueue(random.pick(&flows), bytes, ()).unwrap();
                        waiting += 1;
                    }
                    4 => {
                        let flow = random.pick(&flows[..30]);
                        link.change_flow(flow, kind(&mut random)).unwrap();
                    }
                    5 => {
                        let flow = random.pick(&flows);
                        link.flush_flow(flow, |_| waiting -= 1).unwrap();
                    }
                    _ if waiting == 0 => {}
                    _ => {
                        next(&mut link);
                        waiting -= 1;
                    }
                }
                if step % 8 == 0 {
                    check(&link);
                }
            }
            assert_eq!(drain(&mut link).len(), waiting, "{}", A::NAME);
            check(&link);
        }
    }
    for_every_plus!(test);
}

/// A flow that is added or removed while an aggregate is in service does not change the virtual time of its earlier
/// packets.
#[test]
fn virtual_time_goes_by_the_weights_there_were_when_the_link_worked() {
    let mut link = scheduler(Plus::<Qfq>::default());
    let flows = [(); 16].map(|()| link.add_flow(config(1, 1000)).unwrap());
    for packet in 0..4 {
        for flow in flows {
            link.enqueue(flow, length(1000), packet).unwrap();
        }
    }
    let now = |link: &PacketScheduler<Plus<Qfq>, u32>| link.algorithm().algorithm().virtual_time();
    for _ in 0..8 {
        next(&mut link);
    }
    let start = now(&link);
    let serve = |link: &mut PacketScheduler<_, u32>, packets| {
        for _ in 0..packets {
            next(link);
            check(link);
        }
    };
    serve(&mut link, 3);
    let heavy = link.add_flow(config(1_000_000, 1000)).unwrap();
    serve(&mut link, 2);
    link.remove_flow(heavy, |_| {}).unwrap();
    serve(&mut link, 3);
    // Six packets at a sum of 16, and two at one of 1,000,016.
    let expected = (6000i64 << FRACTION) / 16 + (2000i64 << FRACTION) / 1_000_016;
    let off = now(&link).distance_from(start) - expected;
    assert!(off.abs() <= 3, "off by {off}");
}
