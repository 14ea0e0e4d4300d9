//! What the meters say of QFQ, DRR and FIFO on skewed sets of flows.

use crate::support::{length, rate};
use fairlane_core::bounds::{self, Aggregate, Round, Slot, Terms, Transmit};
use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowConfig, FlowId, SchedulerLimits};
use fairlane_sim::{
    FlowPlan, LagMeter, Lengths, Picos, Server, Simulation, Traffic, TransmitQueue, Wfi, WfiMeter,
    Work, scenario,
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

/// How long the link takes for so many bytes, rounded up.
fn time_of(bytes: u128) -> Picos {
    Picos((bytes * 8_000_000_000_000).div_ceil(BPS.into()))
}

/// sigma in bytes of the whole link, times the weight over the sum that is phi sigma: the
/// power of two from L / weight up, for each unit of weight, which is Eq. 4.
fn slot(weight: u32) -> u128 {
    // In 2^-40, as an inverse weight is rounded up there.
    (u128::from(L) * (1u128 << 40).div_ceil(weight.into())).next_power_of_two()
}

/// 3 sigma + 2 L of the report's Theorems 1 and 2 in bytes, for all packets as long.
fn report(config: &FlowConfig, sum: u128) -> u128 {
    3 * ((slot(config.weight.get()) * sum) >> 40) + 2 * u128::from(L)
}

#[test]
fn qfq_keeps_the_bounds_of_its_report_on_skewed_sets() {
    for set in [
        scenario::highw(100, length(L)),
        scenario::half(101, length(L)),
        scenario::equal(50, length(L)),
    ] {
        for heavy in [Traffic::Greedy(3), Traffic::Poisson(rate(BPS / 5))] {
            let sum: u128 = set.iter().map(|c| u128::from(c.weight.get())).sum();
            let flows = measure(Qfq::new(), &set, &heavy, TransmitQueue::NONE, 3000);
            for wfi in flows {
                let bound = report(&wfi.config, sum);
                assert!(wfi.t_wfi <= time_of(bound), "{wfi:?}: {bound} bytes");
                let service = Work::from_bits(bound * 8 * u128::from(wfi.config.weight.get()));
                assert!(
                    wfi.b_wfi_backlogged.0 * sum <= service.0,
                    "{wfi:?}: {bound} bytes"
                );
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
        let time = |wfi: bounds::Wfi| time_of(wfi.delay.bytes() as u128);
        let [of_qfq, of_s_kps_plus] = [
            bounds::qfq(&terms, Slot::Actual),
            bounds::s_kps_plus(&Aggregate::new(terms, 1, 8).unwrap(), Slot::Loose),
        ];
        let round = Round::of(set.iter().map(|c| (c.weight, c.max_length))).unwrap();
        let of_drr = bounds::drr(&round, set[0].weight, own, Transmit::Direct).unwrap();
        // Half of the heavy flow's share, so that it is often newly backlogged: a packet
        // that comes after its turn waits for a round of all others.
        let poisson = Traffic::Poisson(rate(BPS / 8));
        let none = TransmitQueue::NONE;
        let qfq = measure(Qfq::new(), &set, &poisson, none, packets)[0].t_wfi;
        let drr = measure(Drr::new(), &set, &poisson, none, packets)[0].t_wfi;
        let fifo = measure(Fifo::new(), &set, &poisson, none, packets)[0].t_wfi;
        assert!(qfq <= time(of_qfq) && time(of_qfq) < drr, "{qfq} {drr}");
        assert!(drr <= time(of_drr) && time(of_drr) < fifo, "{drr} {fifo}");
        // The loosest of the other bounds.
        assert!(time(of_s_kps_plus) < drr, "{drr}");
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
    let sum: u128 = set.iter().map(|c| u128::from(c.weight.get())).sum();
    let q = 50 * u128::from(L);
    assert!(long <= time_of(report(&set[0], sum) + q), "{long}");
    // And it does delay.
    assert!(long > none + time_of(q / 2), "{none} {long}");
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
