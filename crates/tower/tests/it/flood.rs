//! A tenant with low load next to one with a thousand times its load.

use fairlane_tower::{FairSemaphore, Limits};

use crate::simulation::{Asks, Record, Simulation, Source};

const PERMITS: u32 = 32;
/// Mean time of service. The quiet tenant offers half a per cent of the server's capacity, the flooder five times the
/// capacity.
const SERVICE: f64 = 100_000.0;
const QUIET: f64 = SERVICE * 6.4;
const FLOOD: f64 = QUIET / 1000.0;
const REQUESTS: u64 = 400;

/// The 99th percentile.
fn p99(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() * 99 / 100]
}

/// Returns all admitted requests, including the quiet tenant's.
fn run(flooded: bool, permits_per_tenant: u16) -> Vec<Record> {
    let limits = Limits {
        permits_per_tenant,
        waiting_per_tenant: 1000,
        ..Limits::permits(PERMITS)
    };
    let mut simulation = Simulation::new(FairSemaphore::new(limits));
    let source = |every| Source {
        asks: Asks::Every(every),
        costs: (100, 100),
        actual: None,
        service: SERVICE,
        until: QUIET as u64 * REQUESTS,
    };
    let quiet = simulation.tenant(source(QUIET), 1);
    assert_eq!(quiet, 0);
    if flooded {
        simulation.tenant(source(FLOOD), 2);
    }
    simulation.run();
    if flooded {
        let asked = simulation.refused + simulation.admitted.len() as u64;
        assert!(asked > 900 * REQUESTS, "{asked} requests were a flood");
    }
    simulation.admitted
}

/// Returns the waiting times of the quiet tenant's requests, and the times until they were done.
fn quiet(admitted: &[Record]) -> (Vec<u64>, Vec<u64>) {
    let of_quiet = admitted.iter().filter(|record| record.tenant == 0);
    of_quiet
        .map(|record| (record.admitted - record.came, record.done - record.came))
        .unzip()
}

#[test]
fn quiet_tenant_latency_is_unaffected_by_a_flood() {
    let (waits_alone, alone) = quiet(&run(false, u16::MAX));
    assert_eq!(p99(waits_alone), 0);
    let flooded = run(true, u16::MAX);
    let (waits, beside) = quiet(&flooded);
    assert!(beside.len() > 300);
    let (alone, beside) = (p99(alone), p99(beside));
    println!(
        "done after {alone} alone, {beside} beside a flood, of which waits {}",
        p99(waits)
    );
    assert!(beside as f64 <= 1.2 * alone as f64, "{beside} and {alone}");
    // In steps: a quiet tenant's request waits for at most one of the flood's.
    for (place, record) in flooded.iter().enumerate().filter(|(_, r)| r.tenant == 0) {
        let meanwhile = flooded[..place].iter().rev();
        let meanwhile = meanwhile.take_while(|other| other.admitted > record.came);
        let before = meanwhile.filter(|other| other.tenant == 1).count();
        assert!(before <= 1, "{before} before {record:?}");
    }
}

#[test]
fn quiet_tenant_does_not_wait_when_permits_are_limited_per_tenant() {
    let (waits, _) = quiet(&run(true, PERMITS as u16 - 4));
    assert!(waits.len() > 300);
    assert_eq!(p99(waits), 0);
}
