//! The meters' results for QFQ, DRR and FIFO on skewed sets of flows.

use crate::support::{length, rate};
use fairlane_core::bounds::{self, Aggregate, Round, Slot, Terms, Transmit};
use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowConfig, FlowId, SchedulerLimits};
use fairlane_sim::{
    FlowPlan, LagMeter, Lengths, Picos, Server, Simulation, Traffic, TransmitQueue, Wfi, WfiMeter,
    scenario,
};

const L: u32 = 1500;
const BPS: u64 = 1_000_000_000;

/// The heavy flow sends `heavy`, the others are greedy, until about `packets` are sent.
fn measure<A: Scheduler>(
    algorithm: A,
    set: &[FlowConfig],
    heavy: &Traffic,
    queue: TransmitQueue,
    packets: u128,
) -> Vec<Wfi> {
    let link = rate(BPS);
    let limits = SchedulerLimits::default();
    let server = Server::new(algorithm, limits, link, queue, WfiMeter::new(link));
    let mut simulation = Simulation::new(server, 5);
    for (n, &config) in set.iter().enumerate() {
        let traffic = if n == 0 {
            heavy.clone()
        } else {
            Traffic::Greedy(3)
        };
        let plan = FlowPlan::new(config, traffic, Lengths::Fixed(length(L)));
        simulation.add(plan).unwrap();
    }
    let server = simulation.run(time_of(packets * u128::from(L))).unwrap();
    server.observer().flows().map(|(_, wfi)| wfi).collect()
}

/// Returns the time that the link takes for `bytes` bytes, rounded up.
fn time_of(bytes: u128) -> Picos {
    Picos((bytes * 8_000_000_000_000).div_ceil(BPS.into()))
}

/// Returns the indexes of QFQ for one of these flows, with packets of one length and `queue` of
/// them queued behind the scheduler.
fn of_qfq(config: &FlowConfig, set: &[FlowConfig], queue: u32) -> bounds::Wfi {
    let sum = set.iter().map(|c| u64::from(c.weight.get())).sum();
    let own = config.max_length;
    let terms = Terms::new(config.weight, sum, own, own, Transmit::packets(queue, own)).unwrap();
    bounds::qfq_equal_packets(&terms, Slot::Actual)
}

/// Returns a T-WFI in time.
fn time(wfi: bounds::Wfi) -> Picos {
    time_of(wfi.delay.bytes() as u128)
}

#[test]
fn qfq_keeps_its_bounds_on_skewed_sets() {
    for set in [
        scenario::highw(100, length(L)),
        scenario::half(101, length(L)),
        scenario::equal(50, length(L)),
    ] {
        for heavy in [Traffic::Greedy(3), Traffic::Poisson(rate(BPS / 5))] {
            let flows = measure(Qfq::new(), &set, &heavy, TransmitQueue::NONE, 3000);
            for wfi in flows {
                let bound = of_qfq(&wfi.config, &set, 0);
                assert!(wfi.t_wfi <= time(bound), "{wfi:?}: {bound:?}");
                let service = wfi.b_wfi_backlogged.as_bytes_f64();
                assert!(service <= bound.service.bytes(), "{wfi:?}: {bound:?}");
                assert!(wfi.b_wfi <= wfi.b_wfi_backlogged && wfi.packets > 0);
            }
        }
    }
}

#[test]
fn on_a_skewed_set_drr_exceeds_the_bound_of_qfq_and_fifo_is_worst() {
    for (flows, packets) in [(100, 5000), (1000, 20_000)] {
        let set = scenario::highw(flows, length(L));
        let sum = set.iter().map(|c| u64::from(c.weight.get())).sum();
        let own = set[0].max_length;
        let terms = Terms::new(set[0].weight, sum, own, own, Transmit::Direct).unwrap();
        let [of_qfq, of_qfq_plus] = [
            bounds::qfq(&terms, Slot::Actual),
            bounds::qfq_plus(&Aggregate::new(terms, 1, 8).unwrap(), Slot::Loose),
        ];
        let round = Round::of(set.iter().map(|c| (c.weight, c.max_length))).unwrap();
        let of_drr = bounds::drr(&round, set[0].weight, own, Transmit::Direct).unwrap();
        // Half of the heavy flow's share, so that it is often newly backlogged: a packet that
        // arrives after its turn waits for a round of all others.
        let poisson = Traffic::Poisson(rate(BPS / 8));
        let none = TransmitQueue::NONE;
        let qfq = measure(Qfq::new(), &set, &poisson, none, packets)[0].t_wfi;
        let drr = measure(Drr::new(), &set, &poisson, none, packets)[0].t_wfi;
        let fifo = measure(Fifo::new(), &set, &poisson, none, packets)[0].t_wfi;
        assert!(qfq <= time(of_qfq) && time(of_qfq) < drr, "{qfq} {drr}");
        assert!(drr <= time(of_drr) && time(of_drr) < fifo, "{drr} {fifo}");
        // The loosest of the other bounds.
        assert!(time(of_qfq_plus) < drr, "{drr}");
        // It waits for one packet of each of the others with DRR, for three with FIFO.
        let others = u128::from(flows) * u128::from(L);
        assert!(10 * drr.0 >= 9 * time_of(others).0, "{drr}");
        assert!(10 * fifo.0 >= 28 * time_of(others).0, "{fifo}");
    }
}

#[test]
fn a_transmit_queue_delays_by_no_more_than_it_holds() {
    let set = scenario::highw(100, length(L));
    let poisson = Traffic::Poisson(rate(BPS / 8));
    let at = |queue| measure(Qfq::new(), &set, &poisson, queue, 5000)[0].t_wfi;
    let (none, long) = (at(TransmitQueue::NONE), at(TransmitQueue::Packets(50)));
    assert!(long <= time(of_qfq(&set[0], &set, 50)), "{long}");
    // And it does delay.
    assert!(long > none + time_of(25 * u128::from(L)), "{none} {long}");
}

#[test]
fn packets_of_a_flow_within_its_share_leave_soon_after_the_fluid_server_with_qfq() {
    let link = rate(BPS);
    let set = scenario::highw(100, length(L));
    let lag = |worst: &mut dyn FnMut(&LagMeter) -> Picos, fifo: bool| {
        let limits = SchedulerLimits::default();
        let meter = LagMeter::new(link);
        let plans = set.iter().enumerate().map(|(n, &config)| {
            let traffic = match n {
                0 => Traffic::Cbr(rate(BPS / 8)),
                _ => Traffic::Greedy(3),
            };
            FlowPlan::new(config, traffic, Lengths::Fixed(length(L)))
        });
        if fifo {
            let server = Server::new(Fifo::new(), limits, link, TransmitQueue::NONE, meter);
            let mut simulation = Simulation::new(server, 5);
            plans.for_each(|plan| assert!(simulation.add(plan).is_ok()));
            worst(simulation.run(time_of(3000 * 1500)).unwrap().observer())
        } else {
            let server = Server::new(Qfq::new(), limits, link, TransmitQueue::NONE, meter);
            let mut simulation = Simulation::new(server, 5);
            plans.for_each(|plan| assert!(simulation.add(plan).is_ok()));
            worst(simulation.run(time_of(3000 * 1500)).unwrap().observer())
        }
    };
    let mut first = |meter: &LagMeter| meter.worst(FlowId::new(0)).unwrap();
    let (qfq, fifo) = (lag(&mut first, false), lag(&mut first, true));
    assert!(
        qfq < time_of(10 * 1500) && fifo > time_of(250 * 1500),
        "{qfq} {fifo}"
    );
}
