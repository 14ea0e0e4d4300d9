//! Work in proportion to weights, for any demand.

use fairlane_tower::{Cost, FairSemaphore, Limits, Weight};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::simulation::{Asks, Record, Simulation, Source};

const PERMITS: u32 = 8;

fn source(asks: Asks, costs: (u32, u32), until: u64) -> Source {
    Source {
        asks,
        costs,
        actual: None,
        service: 1000.0,
        until,
    }
}

/// Returns the largest distance of two tenants' work by weight, over all charges from the moment when all were present,
/// relative to one request of each.
fn worst(admitted: &[Record], greedy: &[(u32, u32, u32)]) -> f64 {
    let mut work = vec![0.0; greedy.len()];
    let mut worst: f64 = 0.0;
    for record in admitted.iter().filter(|record| record.admitted > 0) {
        let Some(at) = greedy
            .iter()
            .position(|&(tenant, ..)| tenant == record.tenant)
        else {
            continue;
        };
        work[at] += f64::from(record.cost) / f64::from(greedy[at].1);
        for (other, &(_, weight, largest)) in greedy.iter().enumerate() {
            let one = f64::from(greedy[at].2) / f64::from(greedy[at].1)
                + f64::from(largest) / f64::from(weight);
            worst = worst.max((work[at] - work[other]).abs() / one);
        }
    }
    worst
}

/// Least and largest cost of a tenant.
type Costs = fn(&mut SmallRng) -> (u32, u32);

const SMALL: Costs = |random| {
    let least = random.random_range(1..1000);
    (least, least + random.random_range(0..1000))
};

/// Of any size, up to the largest cost.
const ANY: Costs = |random| {
    let largest = 1u32 << random.random_range(10..=31u32);
    (largest / random.random_range(1..=8), largest)
};

/// Adds tenants that always wait, with random weights and costs; returns each with its weight and largest cost.
fn greedy(
    simulation: &mut Simulation,
    random: &mut SmallRng,
    costs: Costs,
    until: u64,
) -> Vec<(u32, u32, u32)> {
    let mut greedy = Vec::new();
    for number in 0..random.random_range(2..8) {
        let costs = costs(random);
        let tenant = simulation.tenant(source(Asks::Always(PERMITS + 3), costs, until), number);
        let weight = random.random_range(1..20);
        let semaphore = &simulation.semaphore;
        semaphore.set_weight(tenant, Weight::new(weight).unwrap());
        greedy.push((tenant, weight, costs.1));
    }
    greedy
}

/// Checks that tenants that always wait, among others, are served by weight.
fn by_weight(seed: u64, costs: Costs, semaphore: FairSemaphore<u32>) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut simulation = Simulation::new(semaphore);
    let until = 300_000;
    let greedy = greedy(&mut simulation, &mut random, costs, until);
    for number in 0..random.random_range(0..20) {
        let asks = Asks::Every(random.random_range(200.0..20_000.0));
        let costs = (1, costs(&mut random).1);
        simulation.tenant(source(asks, costs, until), 100 + number);
    }
    simulation.run();
    // Until their demand ends.
    let asked: Vec<Record> = (simulation.admitted.iter().copied())
        .filter(|record| record.admitted < until)
        .collect();
    let worst = worst(&asked, &greedy);
    // So over any period, to within two.
    assert!(asked.len() > 1000 && worst <= 1.0, "seed {seed}: {worst}");
}

#[test]
fn backlogged_tenants_share_by_weight() {
    for seed in 0..15 {
        by_weight(seed, SMALL, FairSemaphore::new(Limits::permits(PERMITS)));
    }
}

#[test]
fn shares_are_as_exact_whatever_requests_cost_and_however_many_are_remembered() {
    for seed in 0..8 {
        let semaphore = FairSemaphore::new(Limits::permits(PERMITS));
        for tenant in 0..1000 * seed {
            let permit = semaphore.try_acquire(1000 + tenant as u32, Cost::MAX);
            assert!(permit.unwrap().is_some());
        }
        by_weight(2000 + seed, ANY, semaphore);
    }
}

#[test]
fn in_random_load_a_quiet_tenant_waits_for_at_most_two_requests_of_each_other() {
    let (mut waited, mut dearest) = (0, 0f64);
    for seed in 0..10 {
        let mut random = SmallRng::seed_from_u64(1000 + seed);
        let mut simulation = Simulation::new(FairSemaphore::new(Limits::permits(PERMITS)));
        let until = 1_000_000;
        let greedy = greedy(&mut simulation, &mut random, SMALL, until);
        // Rarely enough that all its earlier service is worked off.
        let quiet = source(Asks::Every(50_000.0), (1, 3000), until);
        let quiet = simulation.tenant(quiet, 77);
        let weight = random.random_range(1..20);
        (simulation.semaphore).set_weight(quiet, Weight::new(weight).unwrap());
        simulation.run();
        let admitted = &simulation.admitted;
        for (place, record) in admitted.iter().enumerate() {
            if record.tenant != quiet || record.admitted >= until {
                continue;
            }
            waited += 1;
            for &(tenant, of_other, largest) in &greedy {
                let meanwhile = admitted[..place].iter().rev();
                let meanwhile = meanwhile.take_while(|other| other.admitted > record.came);
                let of_tenant = meanwhile.filter(|other| other.tenant == tenant);
                let work: u32 = of_tenant.map(|other| other.cost).sum();
                let by_weight = f64::from(record.cost * of_other) / f64::from(weight);
                let requests = (f64::from(work) - by_weight) / f64::from(largest);
                dearest = dearest.max(requests);
                assert!(requests <= 2.0, "seed {seed}: {requests} before {record:?}");
            }
        }
    }
    assert!(waited > 100, "{waited} requests");
    println!("{dearest} requests of another at most, beyond its share, of {waited}");
}

#[test]
fn wrong_estimates_are_put_right() {
    let semaphore = FairSemaphore::new(Limits::permits(PERMITS));
    let mut simulation = Simulation::new(semaphore);
    let honest = source(Asks::Always(PERMITS + 3), (100, 100), 2_000_000);
    let mut wrong = source(Asks::Always(PERMITS + 3), (10, 10), 2_000_000);
    wrong.actual = Some(100);
    simulation.tenant(honest, 1);
    simulation.tenant(wrong, 2);
    simulation.run();
    let mut work = [0i64; 2];
    for record in &simulation.admitted {
        work[record.tenant as usize] += 100;
        // Requests in progress are not corrected yet.
        let most = i64::from(PERMITS + 1) * 90 + 2 * 100 + 100 * i64::from(PERMITS);
        assert!((work[0] - work[1]).abs() <= most, "{work:?} at {record:?}");
    }
    assert!(work[0] > 500_000, "{work:?}");
}

/// One tenant overestimates its requests a hundredfold while it is alone, and then estimates exactly.
#[test]
fn overestimating_tenant_gains_a_bounded_amount() {
    let (said, estimate, true_cost) = (1000, 400, 10);
    let semaphore = FairSemaphore::new(Limits {
        estimate: Cost::new(estimate).unwrap(),
        ..Limits::permits(PERMITS)
    });
    let mut alone = Simulation::new(semaphore.clone());
    let mut liar = source(Asks::Always(PERMITS + 3), (said, said), 100_000);
    liar.actual = Some(true_cost);
    alone.tenant(liar, 1);
    alone.run();
    let mut both = Simulation::new(semaphore);
    for seed in [1, 2] {
        let costs = (true_cost, true_cost);
        both.tenant(source(Asks::Always(PERMITS + 3), costs, 300_000), seed);
    }
    both.run();
    let (mut ahead, mut most) = (0i64, 0);
    for record in &both.admitted {
        ahead += match record.tenant {
            0 => i64::from(record.cost),
            _ => -i64::from(record.cost),
        };
        most = most.max(ahead);
    }
    let bound = i64::from((PERMITS + 1) * estimate) + 2 * 2 * i64::from(true_cost);
    println!("{most} of {bound} units ahead");
    assert!((bound / 2..=bound).contains(&most), "{most} of {bound}");
}

#[test]
fn a_weight_may_change_while_its_tenant_waits() {
    let semaphore = FairSemaphore::new(Limits::permits(1));
    let mut simulation = Simulation::new(semaphore.clone());
    for tenant in 0..2 {
        simulation.tenant(source(Asks::Always(4), (10, 10), 400_000), tenant);
    }
    semaphore.set_weight(1, Weight::new(3).unwrap());
    simulation.run();
    let (early, late) = simulation.admitted.split_at(simulation.admitted.len() / 2);
    for half in [early, late] {
        let heavy = half.iter().filter(|record| record.tenant == 1).count();
        let share = heavy as f64 / half.len() as f64;
        assert!((share - 0.75).abs() < 0.05, "{share}");
    }
}

/// Two tenants always wait for the only permit; the second is idle for a while.
#[test]
fn returning_tenant_has_no_credit_and_keeps_its_debt() {
    let mut simulation = Simulation::new(FairSemaphore::new(Limits::permits(1)));
    let always = |until| source(Asks::Always(3), (10, 10), until);
    simulation.tenant(always(900_000), 1);
    simulation.tenant(always(300_000), 2);
    simulation.run();
    // It returns, under the same key, after the others have continued for twice as long.
    let semaphore = simulation.semaphore.clone();
    let mut again = Simulation::new(semaphore);
    again.tenant(always(300_000), 3);
    again.tenant(always(300_000), 4);
    again.run();
    let first = again.admitted.iter().take(200);
    let of_second = first.filter(|record| record.tenant == 1).count();
    assert!((98..=102).contains(&of_second), "{of_second} of 200");
}

/// One sends expensive requests, one at a time, and has none waiting while it is served. The other one always waits.
#[test]
fn tenant_keeps_its_debt_when_it_leaves() {
    let mut simulation = Simulation::new(FairSemaphore::new(Limits::permits(1)));
    simulation.tenant(source(Asks::Always(3), (10, 10), 2_000_000), 1);
    simulation.tenant(source(Asks::Always(1), (1000, 1000), 2_000_000), 2);
    simulation.run();
    let mut work = [0i64; 2];
    for record in &simulation.admitted {
        work[record.tenant as usize] += i64::from(record.cost);
        assert!(work[1] <= work[0] + 2 * (1000 + 10), "{work:?}");
    }
    assert!(work[1] >= 5000, "{work:?}");
}
