//! The claims of the protocol, in simulated time: with cores of different speeds, threads that are stopped at any
//! access, and adversarial traffic.
#![cfg(not(loom))]

use fairlane_core::bounds::{Service, Wfi, Work};
use fairlane_core::{Length, Rate};
use fairlane_shards::Config;
use fairlane_shards::simulation::{Candidate, Core, Member, Report, Scenario, Setup, Source};
use fairlane_testkit::long_tests;
use fairlane_testkit::tape::{Attack, Tape};
use proptest::prelude::*;

/// The longest packet of a simulation.
const LONGEST: u32 = 1500;

/// More shards, less simulated time: the run time is about the same.
fn run(scenario: Scenario, shards: u32, candidate: Candidate) -> (Setup, Report) {
    let all = if long_tests() { 24_000_000 } else { 8_000_000 };
    let setup = scenario.setup(shards, candidate, all / u64::from(shards), 1);
    let report = setup.run().unwrap();
    (setup, report)
}

fn weights(setup: &Setup) -> Vec<u32> {
    setup.members.iter().map(|member| member.weight).collect()
}

/// As the link's work in bytes.
fn work(setup: &Setup, nanoseconds: u64) -> f64 {
    setup.config.rate as f64 * nanoseconds as f64 / 8e9
}

/// Checks the bounds that hold for any behaviour of the threads. Returns the largest ratio to one.
fn assert_bounds(setup: &Setup, report: &Report) -> f64 {
    let Config {
        batch,
        ahead: queue,
        ..
    } = setup.config;
    let weights = weights(setup);
    let whole = weights.iter().copied().map(u64::from).sum();
    let least = *weights.iter().min().unwrap();
    let apart = setup.config.apart(least, whole);
    assert!(report.apart <= apart, "{} of {apart} apart", report.apart);
    // The rest of each shard's batch, or its excess, adds to Q and a batch.
    let (shards, batch, longest) = (weights.len() as u64, u64::from(batch), u64::from(LONGEST));
    let most = queue + batch + shards * (batch + longest);
    assert!(report.queue <= most, "{} of {most} queued", report.queue);
    let apart = report.apart as f64 / apart as f64;
    apart.max(report.queue as f64 / most as f64)
}

/// While no thread stops and none is left out, each is a server of its share of the rate, with the bounds of core's
/// `Service`. Returns the largest ratio to one of these bounds.
fn assert_service(setup: &Setup, report: &Report) -> f64 {
    let left_out: u64 = report.left_out.iter().sum();
    if left_out > 0
        || setup
            .members
            .iter()
            .any(|member| member.core.stops_one_in > 0)
    {
        return 0.0;
    }
    let mut largest: f64 = 0.0;
    let weights = weights(setup);
    let whole: f64 = weights.iter().copied().map(f64::from).sum();
    let (config, longest) = (setup.config, Length::new(LONGEST).unwrap());
    // Bytes assigned and not carried at the start, and the total idle time of the wire.
    let promised = config.ahead + u64::from(config.batch);
    let core = setup.members.iter().map(|member| member.core.access).max();
    // From an arrival until it has entered a shard does not count.
    let coming = 12 * core.unwrap();
    let missed = work(setup, report.idle + coming).ceil() as u64;
    let lag = promised + missed;
    let link = Service::of_link(Rate::from_bps(config.rate).unwrap(), longest);
    let link = link.behind(0, lag).unwrap();
    for (shard, (&weight, &behind)) in weights.iter().zip(&report.behind).enumerate() {
        let share = f64::from(weight) / whole;
        let service = config.b_wfi(&weights, shard);
        let wfi = Wfi {
            strict: true,
            service: Work::new(service).unwrap(),
            delay: Work::new(service / share).unwrap(),
            latency: Work::new(service / share).unwrap(),
            turn: Work::ZERO,
        };
        // Bytes taken are not yet sent: a batch at the end, a packet's excess at the start.
        let taken = f64::from(config.batch + LONGEST);
        let most = link.child(share, wfi).lag().bytes() + taken;
        assert!(behind <= most, "shard {shard}: {behind} of {most} behind");
        largest = largest.max(behind / most);
    }
    largest
}

#[test]
fn the_bounds_hold_in_every_scenario_with_2_to_64_shards() {
    for scenario in Scenario::ALL {
        for shards in [2, 3, 8, 64] {
            let (setup, report) = run(scenario, shards, Candidate::LinkClock);
            assert_bounds(&setup, &report);
            assert_service(&setup, &report);
        }
    }
}

#[test]
fn the_wire_does_not_idle_beside_a_slow_core_nor_by_one_shard_alone() {
    use Scenario::{Greedy, OneShard, SlowCore, TooSlowCore, Weights};
    for scenario in [Greedy, Weights, OneShard, SlowCore, TooSlowCore] {
        for shards in [2, 8, 64] {
            let (_, report) = run(scenario, shards, Candidate::LinkClock);
            if scenario == TooSlowCore {
                assert!(report.used > 0.99, "{shards}: {}", report.used);
                continue;
            }
            // Until the first batch is decided and sent: a slow core may take this long.
            let idle = report.idle;
            assert!(idle <= 5_000, "{scenario}, {shards}: {idle} ns");
            assert!(report.left_out.iter().all(|&times| times == 0));
        }
    }
}

#[test]
fn what_a_shard_leaves_is_used_within_50_us_and_by_exchange_within_an_interval() {
    let every = 200_000;
    for shards in [2, 5] {
        let (_, clock) = run(Scenario::Leaves, shards, Candidate::LinkClock);
        assert!(clock.reuse <= 50_000, "{} ns", clock.reuse);
        let (_, exchange) = run(Scenario::Leaves, shards, Candidate::Exchange { every });
        assert!(exchange.reuse > 50_000, "{} ns", exchange.reuse);
        assert!(exchange.used < clock.used - 0.01);
    }
}

#[test]
fn a_stopped_thread_costs_the_others_little_and_an_exchange_its_share() {
    for shards in [2, 4] {
        let (_, clock) = run(Scenario::Stops, shards, Candidate::LinkClock);
        let stops = clock.left_out[0];
        assert!(stops > 0, "never left out");
        // The queue lasts longer than the patience: the idle time is a few looks.
        assert!(
            clock.idle <= 5_000 * (stops + 1),
            "{} ns, {stops} stops",
            clock.idle
        );
    }
    let every = 200_000;
    let (_, exchange) = run(Scenario::Stops, 2, Candidate::Exchange { every });
    assert!(exchange.idle > 100_000, "{} ns", exchange.idle);
}

#[test]
fn equal_weights_get_equal_service_and_weights_theirs() {
    for scenario in [Scenario::Greedy, Scenario::Weights, Scenario::SlowCore] {
        let (setup, report) = run(scenario, 8, Candidate::LinkClock);
        let weights = weights(&setup);
        let whole: f64 = weights.iter().copied().map(f64::from).sum();
        let sent: u64 = report.sent.iter().sum();
        let apart = report.apart as f64 + f64::from(setup.config.batch + LONGEST) * whole;
        for (&sent_one, &weight) in report.sent.iter().zip(&weights) {
            let share = f64::from(weight) / whole;
            let error = (sent_one as f64 / share - sent as f64).abs();
            assert!(error <= apart, "{scenario}: {error} of {apart} bytes");
        }
    }
}

/// The long form: the aggregate over one second.
#[test]
fn over_one_second_the_aggregate_is_within_a_ten_thousandth() {
    if !long_tests() {
        return;
    }
    let setup = Scenario::Weights.setup(3, Candidate::LinkClock, 1_000_000_000, 7);
    let report = setup.run().unwrap();
    let sent = report.sent.iter().sum::<u64>() as f64;
    let link = work(&setup, 1_000_000_000);
    assert!((sent / link - 1.0).abs() <= 1e-4, "{}", sent / link);
}

#[test]
fn a_link_that_cannot_be_divided_so_is_refused() {
    let mut setup = Scenario::Greedy.setup(2, Candidate::LinkClock, 1000, 1);
    setup.config.batch = 0;
    assert!(setup.run().is_err());
}

fn member() -> impl Strategy<Value = Member> {
    let source = prop_oneof![
        3 => Just(Source::Always),
        1 => (0..200_000_u64, 1_000..200_000_u64, 1_000..200_000_u64)
            .prop_map(|(start, on, off)| Source::OnOff { start, on, off }),
        1 => (100..100_000_u64, 1_000..100_000_u64)
            .prop_map(|(bytes, gap)| Source::Bursts { bytes, gap }),
    ];
    let stops = prop_oneof![2 => Just((0, 0)), 1 => (50..2_000_u64, 1_000..300_000_u64)];
    (1..20_u32, 1..20_u64, stops, source).prop_map(|(weight, slower, stops, source)| {
        let core = Core {
            stops_one_in: stops.0,
            stops_for: stops.1,
            ..Core::default().slower(slower)
        };
        Member {
            weight,
            core,
            source,
        }
    })
}

/// Returns the largest ratio to a bound of two to five shards whose threads, traffic and link a tape chooses.
fn play(tape: &mut Tape) -> Result<f64, String> {
    let mut below = |count: u32| u64::from(tape.below(count));
    let config = Config {
        rate: 100_000_000_000,
        batch: 1_500 + below(20_000) as u32,
        ahead: below(200) * 1_000,
        catch_up: 0,
        lead: below(400) * 1_000,
        patience: below(50) * 1_000,
    };
    let members = (0..2 + below(4)).map(|_| {
        let source = match below(3) {
            0 => Source::Always,
            1 => Source::OnOff {
                start: below(50_000),
                on: 1 + below(50_000),
                off: 1 + below(50_000),
            },
            _ => Source::Bursts {
                bytes: 1 + below(100_000),
                gap: 1 + below(100_000),
            },
        };
        let (stops_one_in, stops_for) = match below(3) {
            0 => (50 + below(2_000), 1_000 + below(100_000)),
            _ => (0, 0),
        };
        let core = Core {
            stops_one_in,
            stops_for,
            ..Core::default().slower(1 + below(20))
        };
        Member {
            weight: 1 + below(20) as u32,
            core,
            source,
        }
    });
    let members = members.collect();
    let setup = Setup {
        config,
        members,
        candidate: Candidate::LinkClock,
        span: 100_000,
        seed: u64::from(tape.below(1 << 16)),
    };
    let report = setup.run().map_err(|error| format!("{error:?}"))?;
    Ok(assert_bounds(&setup, &report).max(assert_service(&setup, &report)))
}

/// `FAIRLANE_TRIES=10000` searches for worse tapes than the one in the file.
#[test]
fn no_tape_of_threads_and_traffic_breaks_the_bounds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attacks");
    let worst = Attack::new(folder, "shards").run(3, play);
    assert!(worst.is_ok(), "{worst:?}");
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: if long_tests() { 100 } else { 24 },
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_traffic_and_no_stop_breaks_the_bounds(
        members in prop::collection::vec(member(), 2..12),
        batch in 1_500..20_000_u32,
        ahead in 0..200_000_u64,
        lead in 0..400_000_u64,
        patience in 0..50_000_u64,
        seed: u64,
    ) {
        let rate = 100_000_000_000;
        let config = Config { rate, batch, ahead, catch_up: 0, lead, patience };
        let setup = Setup { config, members, candidate: Candidate::LinkClock, span: 1_000_000, seed };
        let report = setup.run().unwrap();
        assert_bounds(&setup, &report);
        assert_service(&setup, &report);
    }
}
