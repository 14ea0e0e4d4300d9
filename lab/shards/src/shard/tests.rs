use super::*;
use crate::words::{Config, divide_from};
use crate::{ConfigError, divide};
use proptest::prelude::*;

/// A byte per nanosecond, and room for all batches of a test.
const CONFIG: Config = Config {
    rate: 8_000_000_000,
    batch: 10,
    ahead: 1_000_000,
    catch_up: 0,
    lead: 40,
    patience: 100,
};

fn shards<const N: usize>(config: Config, weights: [u32; N]) -> [Shard; N] {
    divide(config, &weights).unwrap().try_into().unwrap()
}

/// Takes a batch and sends it.
fn take(shard: &mut Shard, now: u64) -> Result<Batch, Wait> {
    let taken = shard.try_take(now, 1_000_000);
    shard.sent(taken.map_or(0, |batch| batch.bytes));
    taken
}

/// Takes batches until one is denied, up to `most`.
fn take_all(shard: &mut Shard, now: u64, most: u64) -> u64 {
    (0..most)
        .take_while(|_| take(shard, now).is_ok())
        .count()
        .try_into()
        .unwrap()
}

#[test]
fn the_lead_and_a_batch_over_the_share_are_reached() {
    let [mut first, mut second] = shards(CONFIG, [1, 1]);
    assert!(take(&mut second, 0).is_ok());
    assert_eq!(second.position(), Some(20));
    // From 0 to 20 next to it, to 60 within the lead, and one batch from there.
    assert_eq!(take_all(&mut first, 0, 99), 4);
    assert_eq!(first.position(), Some(80));
    assert_eq!(take(&mut first, 0), Err(Wait::Others));
    assert_eq!(80 - 20, CONFIG.apart(1, 2) - 1);
    assert_eq!(second.lowest(), 20);
    // Once the other is idle, no shard is waited for.
    second.idle();
    assert_eq!(take_all(&mut first, 0, 99), 99);
}

#[test]
fn who_was_served_alone_waits_for_no_more_than_the_lead_and_a_batch() {
    let [mut first, mut second] = shards(CONFIG, [1, 1]);
    assert_eq!(take_all(&mut first, 0, 1000), 1000);
    first.idle();
    // No shard counts when the second enters. It starts at the floor, not at 0: otherwise the first would have to wait
    // for a thousand batches.
    assert_eq!(take_all(&mut second, 0, 1), 1);
    assert!((1..=4).contains(&take_all(&mut first, 0, 99)));
    second.idle();
    // Nor has the second gained by its absence: it continues at its position.
    let before = second.time;
    assert_eq!(take_all(&mut second, 0, 1), 1);
    assert_eq!(second.position(), Some(before + 20));
}

#[test]
fn going_idle_and_coming_back_at_once_gains_nothing() {
    let [mut steady, mut nervous] = shards(CONFIG, [1, 1]);
    let mut taken = [0, 0];
    for _ in 0..1000 {
        taken[0] += take_all(&mut steady, 0, 1);
        taken[1] += take_all(&mut nervous, 0, 3);
        nervous.idle();
        taken[1] += take_all(&mut nervous, 0, 3);
    }
    assert!(taken[1] <= taken[0] + 4, "{taken:?}");
}

#[test]
fn who_stands_still_is_left_out_once_the_link_runs_short_for_as_long_as_the_patience() {
    let config = Config {
        ahead: 50,
        patience: 20,
        ..CONFIG
    };
    let [mut runs, mut stops] = shards(config, [1, 1]);
    assert!(take(&mut stops, 0).is_ok());
    // Four batches to the lead: 50 bytes, of which 20 are left at 30. The link runs short for 20 by 50, just when
    // it would idle.
    assert_eq!(take_all(&mut runs, 0, 99), 4);
    for now in [1, 29, 30, 49] {
        assert_eq!(take(&mut runs, now), Err(Wait::Others));
    }
    assert!(take(&mut runs, 50).is_ok());
    assert_eq!(stops.position(), None);
    assert_eq!(take_all(&mut runs, 1_000, 2), 2);
    // Its thread is back: it enters with one look, at the floor.
    assert!(take(&mut stops, 2_000).is_ok());
    assert_eq!(stops.left_out(), 1);
    let gap = ahead(runs.time, stops.time).unsigned_abs();
    assert!(gap <= config.apart(1, 2), "{gap}");
}

#[test]
fn while_the_wire_is_busy_nobody_is_left_out() {
    let config = Config {
        patience: 0,
        ..CONFIG
    };
    let [mut runs, mut stops] = shards(config, [1, 1]);
    let mut promised = 0;
    assert!(take(&mut stops, 0).is_ok());
    for now in 0..50 {
        promised += 10 * take_all(&mut runs, now, 1);
    }
    assert_eq!(promised, 40);
    // Until 50 the link is busy with the five batches.
    assert_eq!(take(&mut runs, 49), Err(Wait::Others));
    assert!(stops.position().is_some());
}

#[test]
fn one_left_out_while_it_took_a_batch_has_taken_it_and_comes_in_anew() {
    let [mut runs, mut stops] = shards(
        Config {
            patience: 0,
            ..CONFIG
        },
        [1, 1],
    );
    assert!(take(&mut stops, 0).is_ok());
    // Up to its last access.
    while !matches!(stops.next, Next::Publish { .. }) {
        assert_eq!(stops.step(1_000, 100), None);
    }
    assert_eq!(take_all(&mut runs, 10_000, 200), 4);
    assert_eq!(take_all(&mut runs, 20_000, 200), 200);
    assert_eq!(stops.step(1_000, 100), Some(Ok(Batch { bytes: 10 })));
    assert_eq!((stops.position(), stops.credit()), (None, 10));
    stops.sent(10);
    assert!(take(&mut stops, 20_000).is_ok());
    assert!(ahead(stops.time, stops.lowest()) >= 0);
    assert_eq!(stops.left_out(), 1);
}

#[test]
fn a_shard_takes_no_more_than_it_has_to_send_and_makes_up_for_a_long_last_packet() {
    let [mut shard] = shards(CONFIG, [1]);
    assert_eq!(shard.try_take(0, 7), Ok(Batch { bytes: 7 }));
    shard.sent(7);
    assert_eq!(shard.try_take(0, 100), Ok(Batch { bytes: 10 }));
    shard.sent(14);
    assert_eq!(shard.credit(), -4);
    assert_eq!(shard.try_take(0, 5), Ok(Batch { bytes: 9 }));
    assert_eq!(shard.try_take(0, 3), Ok(Batch { bytes: 0 }));
    // The rest was dropped.
    assert_eq!(shard.promised(), 26);
    shard.idle();
    assert_eq!((shard.credit(), shard.promised()), (0, 21));
    assert_eq!(shard.try_take(0, u64::MAX), Ok(Batch { bytes: 10 }));
}

#[test]
fn what_is_given_back_is_others_and_its_shard_is_where_it_was() {
    let [mut gives, mut other] = shards(CONFIG, [3, 4]);
    assert_eq!(gives.try_take(0, 100), Ok(Batch { bytes: 10 }));
    gives.sent(3);
    gives.idle();
    assert_eq!(gives.promised(), 3);
    // 3 of 7 bytes over three sevenths.
    assert_eq!((gives.time, gives.rest), (7, 0));
    assert!(take(&mut other, 0).is_ok());
    assert_eq!(other.promised(), 13);
    // Whatever it withheld, it enters at the floor or above.
    for _ in 0..1000 {
        take_all(&mut other, 0, 1);
        assert_eq!(gives.try_take(0, 100).map(|batch| batch.bytes), Ok(10));
        assert!(ahead(gives.time, gives.lowest()) >= 0);
        gives.idle();
    }
}

#[test]
fn the_wire_says_when_it_has_room_and_idle_time_is_made_up_for_as_far_as_asked() {
    let config = Config {
        ahead: 15,
        catch_up: 20,
        ..CONFIG
    };
    let [mut shard] = shards(config, [1]);
    assert_eq!(take_all(&mut shard, 0, 99), 2);
    assert_eq!(take(&mut shard, 4), Err(Wait::Wire { until: 5 }));
    assert!(take(&mut shard, 5).is_ok());
    // Long after: 20 unused bytes, the queue, and a batch that begins before it is full.
    assert_eq!(take_all(&mut shard, 1_000, 99), 4);
    assert_eq!(shard.promised(), 1_020);
}

#[test]
fn shares_are_exact_whatever_the_division_leaves() {
    let config = Config {
        lead: 0,
        patience: u64::MAX,
        ..CONFIG
    };
    let mut shards = shards(config, [3, 7, 11]);
    let mut taken = [0_u64; 3];
    for round in 0..100_000 {
        for (shard, taken) in shards.iter_mut().zip(&mut taken) {
            *taken += take_all(shard, 10 * round, 1);
        }
    }
    // 21 parts; a batch each that may be in transit, and the lead's rounding.
    let all: u64 = taken.iter().sum();
    for (taken, weight) in taken.iter().zip([3, 7, 11]) {
        assert!((taken * 21).abs_diff(all * weight) <= 21 * 7, "{weight}");
    }
}

#[test]
fn a_shard_with_half_of_its_classes_active_has_half_of_its_weight() {
    let [mut half, mut whole] = shards(CONFIG, [4, 4]);
    half.set_weight(2);
    let mut taken = [0, 0];
    for _ in 0..3000 {
        taken[0] += take_all(&mut half, 0, 1);
        taken[1] += take_all(&mut whole, 0, 1);
    }
    assert!(taken[1].abs_diff(2 * taken[0]) <= 10, "{taken:?}");
}

#[test]
fn a_shard_that_is_gone_holds_nobody_up() {
    let [first, mut second] = shards(CONFIG, [1, 1]);
    let mut first = first;
    assert!(take(&mut first, 0).is_ok());
    drop(first);
    assert_eq!(take_all(&mut second, 0, 99), 99);
}

#[test]
fn who_was_away_while_the_circle_went_round_starts_within_reach_of_the_floor() {
    for start in [0, POSITION - 7] {
        let mut shards = divide_from(CONFIG, &[1, 1], start).unwrap();
        let [away, runs] = &mut shards[..] else {
            unreachable!()
        };
        assert_eq!(take_all(runs, 0, 5), 5);
        for passed in [POSITION / 4, POSITION / 2, POSITION - 3, 50] {
            // As if it had been served meanwhile.
            runs.idle();
            runs.time = further(runs.time, passed);
            runs.words.floor.0.store(runs.time, Ordering::Relaxed);
            assert!(take(runs, 0).is_ok());
            take_all(away, 0, 1);
            let gap = ahead(runs.time, away.time).unsigned_abs();
            assert!(gap <= runs.words.reach() + 20, "{gap}");
            away.idle();
        }
    }
}

#[test]
fn what_is_out_of_range_is_refused_with_one_sentence() {
    let refused = |config: Config, weights: &[u32]| divide(config, weights).unwrap_err();
    for rate in [0, 1_000_000_000_001] {
        let error = refused(Config { rate, ..CONFIG }, &[1]);
        let told = format!("a link of {rate} bit/s: rates are 1 to 1000000000000 bit/s");
        assert_eq!(error.to_string(), told);
    }
    let error = refused(Config { batch: 0, ..CONFIG }, &[1]);
    assert_eq!(error, ConfigError::Batch);
    assert!(error.to_string().starts_with("a batch of 0 bytes: "));
    for weights in [&[][..], &[1, 0]] {
        assert_eq!(refused(CONFIG, weights), ConfigError::Weights);
    }
    let config = Config {
        lead: u64::MAX,
        ..CONFIG
    };
    assert_eq!(refused(config, &[1]), ConfigError::Lead(u64::MAX));
    let whole = 1 << 27;
    let config = Config {
        batch: 1 << 11,
        lead: 1,
        ..CONFIG
    };
    let error = refused(config, &[whole]);
    assert_eq!(error, ConfigError::Lead((1 << 38) + 1));
    assert!(
        error
            .to_string()
            .ends_with(": together at most 274877906944")
    );
}

/// The next operation of a thread or of the clock.
#[derive(Clone, Debug)]
enum Op {
    /// A number of accesses, and the backlog when a look begins.
    Steps(usize, u8, u64),
    /// Becomes idle, if it is between two looks.
    Idle(usize),
    Time(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..6_usize, 1..16_u8, 1..40_u64).prop_map(|(shard, steps, want)| Op::Steps(shard, steps, want)),
        2 => (0..6_usize).prop_map(Op::Idle),
        2 => (0..60_u64).prop_map(Op::Time),
    ]
}

/// All threads, stopped at any of their accesses while others continue.
struct Interleaved {
    shards: Vec<Shard>,
    weights: Vec<u32>,
    now: u64,
    /// The arguments of a look that has begun.
    looks: Vec<Option<(u64, u64)>>,
    lowest: u64,
    taken: u64,
}

impl Interleaved {
    fn new(config: Config, weights: Vec<u32>, start: u64) -> Self {
        let shards = divide_from(config, &weights, start).unwrap();
        Self {
            lowest: shards[0].lowest(),
            looks: vec![None; weights.len()],
            now: 0,
            taken: 0,
            shards,
            weights,
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Time(passed) => self.now += passed,
            Op::Idle(place) => {
                let place = place % self.shards.len();
                if self.looks[place].is_none() {
                    self.taken -= self.shards[place].credit().max(0) as u64;
                    self.shards[place].idle();
                    self.check();
                }
            }
            Op::Steps(place, steps, want) => {
                let place = place % self.shards.len();
                for _ in 0..steps {
                    self.step(place, want);
                    self.check();
                }
            }
        }
    }

    fn step(&mut self, place: usize, want: u64) {
        let (now, want) = *self.looks[place].get_or_insert((self.now, want));
        let shard = &mut self.shards[place];
        if let Some(outcome) = shard.step(now, want) {
            let bytes = outcome.map_or(0, |batch| batch.bytes);
            // Two thirds are sent; the rest is returned when it goes idle, or sent with the next batch.
            shard.sent(shard.credit().max(0) as u64 * 2 / 3);
            self.taken += bytes;
            self.looks[place] = None;
        }
    }

    /// Checks the theorems after each access.
    fn check(&mut self) {
        let words = &self.shards[0].words;
        let config = words.config;
        let floor = self.shards[0].lowest();
        assert!(ahead(floor, self.lowest) >= 0, "the floor fell");
        self.lowest = floor;
        let most = words.carried(self.now) + config.ahead + u64::from(config.batch);
        let promised = self.shards[0].promised();
        assert!(promised <= most, "{promised} of {most} bytes promised");
        let there = self.shards.iter().zip(&self.weights);
        let there: Vec<_> = there
            .filter_map(|(shard, &weight)| Some((shard.position()?, weight)))
            .collect();
        for &(position, weight) in &there {
            assert!(ahead(position, floor) >= 0, "the floor passed one");
            let apart = config.apart(weight, words.whole) as i64;
            for &(behind, _) in &there {
                let gap = ahead(position, behind);
                assert!(gap <= apart, "{gap} apart, {apart} at most");
            }
        }
    }
}

/// The time within which a look ends after it began.
const G: u64 = 100;

/// A thin shard, which has a few bytes at each look, next to one that always has more than a batch to send.
#[derive(Clone, Copy, Debug)]
struct Thin {
    bytes: u64,
    /// When it looks in each period, in nanoseconds.
    begins: u64,
    lasts: u64,
    /// The accesses that it makes at once.
    at_once: u8,
}

fn thin() -> impl Strategy<Value = Thin> {
    (1..320_u64, 0..G / 2, 0..G / 2, 0..12_u8).prop_map(|(bytes, begins, lasts, at_once)| Thin {
        bytes,
        begins,
        lasts,
        at_once,
    })
}

/// Returns the idle time of the link in a thousand periods, after the first look of the backlogged shard, and the
/// number of times that a shard was left out.
fn idle_among(config: Config, thin: &[Thin], looks_at: u64) -> (u64, u64) {
    let mut shards = divide(config, &vec![1; thin.len() + 1]).unwrap();
    let mut events = Vec::new();
    for period in 0..1_000 {
        let from = period * G;
        events.push((from + looks_at, 0, u8::MAX));
        for (place, thin) in thin.iter().enumerate() {
            events.push((from + thin.begins, place + 1, thin.at_once));
            events.push((from + thin.begins + thin.lasts, place + 1, u8::MAX));
        }
    }
    events.sort_by_key(|&(time, ..)| time);
    let mut begun = vec![None; shards.len()];
    // The link has work until then.
    let (mut has_begun, mut busy_until, mut idle) = (false, 0_u64, 0);
    for (time, place, steps) in events {
        let want = if place == 0 {
            1 << 20
        } else {
            thin[place - 1].bytes
        };
        // A part of a look that has ended begins no other.
        if place > 0 && steps == u8::MAX && begun[place].is_none() {
            continue;
        }
        for _ in 0..steps {
            let began = *begun[place].get_or_insert(time);
            let Some(outcome) = shards[place].step(began, want) else {
                continue;
            };
            begun[place] = None;
            if let Ok(Batch { bytes: bytes @ 1.. }) = outcome {
                shards[place].sent(bytes);
                if has_begun {
                    idle += time.saturating_sub(busy_until);
                }
                has_begun |= place == 0;
                busy_until = busy_until.max(time) + bytes;
            }
            break;
        }
    }
    (idle, shards.iter().map(Shard::left_out).sum())
}

/// 3 R g, or a little more, is the batch and Q of Theorem 4.
const STEADY: Config = Config {
    rate: 8_000_000_000,
    batch: 3 * G as u32,
    ahead: 3 * G + 1,
    catch_up: 0,
    lead: 24 * G,
    patience: 1_000_000,
};

#[test]
fn a_thin_shard_does_not_hold_the_link_of_another_that_has_more_to_send() {
    // At each look of the backlogged shard, the other is in the middle of a look.
    for at_once in 0..12 {
        let thin = Thin {
            bytes: 4,
            begins: 10,
            lasts: 40,
            at_once,
        };
        let (idle, _) = idle_among(STEADY, &[thin], 30);
        assert_eq!(idle, 0, "{at_once} accesses before the look of the other");
    }
}

#[test]
fn no_shard_that_looks_in_time_is_left_out() {
    let config = Config {
        ahead: 10 * G,
        patience: 8 * G,
        ..STEADY
    };
    for at_once in 0..12 {
        let thin = Thin {
            bytes: 4,
            begins: 10,
            lasts: 40,
            at_once,
        };
        let (idle, left_out) = idle_among(config, &[thin, Thin { bytes: 200, ..thin }], 30);
        assert_eq!((idle, left_out), (0, 0), "{at_once}");
    }
}

fn cases() -> ProptestConfig {
    let cases = if fairlane_testkit::long_tests() {
        1_000
    } else {
        120
    };
    ProptestConfig {
        cases,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_order_of_accesses_breaks_the_bound(
        weights in prop::collection::vec(1..20_u32, 2..=6),
        lead in 0..300_u64,
        ahead in 0..200_u64,
        catch_up in 0..100_u64,
        patience in 0..200_u64,
        start in prop_oneof![Just(0), POSITION - 2_000..=POSITION],
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let config = Config { lead, ahead, catch_up, patience, ..CONFIG };
        let mut threads = Interleaved::new(config, weights, start);
        for op in &ops {
            threads.run(op);
        }
        prop_assert!(threads.taken <= threads.shards[0].promised());
    }

    #[test]
    fn the_link_does_not_idle_and_no_shard_is_left_out_whatever_the_order_of_looks(
        thin in prop::collection::vec(thin(), 1..7),
        looks_at in 0..G,
    ) {
        let config = Config { lead: 3 * G * (thin.len() as u64 + 1), ..STEADY };
        prop_assert_eq!(idle_among(config, &thin, looks_at).0, 0);
        let config = Config { ahead: 10 * G, patience: 8 * G, ..config };
        prop_assert_eq!(idle_among(config, &thin, looks_at), (0, 0));
    }
}
