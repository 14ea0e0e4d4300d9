use super::*;

fn metered() -> (Arc<Meter>, Recorder) {
    let meter = Arc::new(Meter::default());
    (Arc::clone(&meter), Recorder::new(meter))
}

fn contract(bps: u64, burst: u64, bound: Nanos, is_of_flows: bool) -> Contract {
    Contract {
        bps,
        burst,
        bound,
        backlog: 3_000_000,
        is_of_flows,
    }
}

/// 8 Mbit/s is a byte a microsecond; a burst of 3,000 bytes, a bound of 5 ms.
#[test]
fn only_late_packets_within_the_contract_are_violations() {
    let (meter, mut recorder) = metered();
    let judge = |bytes, us| meter.judge(0, bytes, Nanos::from_micros(us));
    assert_eq!(judge(1_500, 0), Verdict::UNJUDGED);
    let bound = Nanos::from_millis(5);
    meter.set_contract(Some(contract(8_000_000, 3_000, bound, false)));
    let within = judge(1_500, 1_000);
    assert_eq!((judge(1_500, 1_000), judge(1, 1_001)), (within, within));
    assert!(!within.is_late(bound) && within.is_late(bound + Nanos::from_micros(3)));
    // 1,500 bytes too many, for which the clock is 1.5 ms ahead.
    assert_eq!(judge(1_500, 1_001), Verdict::NONCONFORMING);
    assert_eq!(judge(100, 2_400), Verdict::NONCONFORMING);
    assert_eq!(judge(100, 2_800), within);
    for (verdict, delay) in [
        (within, 4),
        (within, 6),
        (Verdict::NONCONFORMING, 6),
        (Verdict::UNJUDGED, 60),
    ] {
        recorder.record_judged(Nanos::from_millis(delay), verdict);
    }
    assert_eq!((meter.violations(), meter.nonconforming()), (1, 1));
}

#[test]
fn a_flood_is_forgotten_when_its_backlog_has_left() {
    let (meter, _) = metered();
    meter.set_contract(Some(contract(
        8_000_000,
        1_500,
        Nanos::from_millis(5),
        false,
    )));
    for us in 0..100_000 {
        meter.judge(0, 1_500, Nanos::from_micros(us));
    }
    // A full queue takes three seconds: until then its packets delay those that conform.
    let at = |ms| meter.judge(0, 60, Nanos::from_millis(ms));
    assert_eq!(at(3_000), Verdict::NONCONFORMING);
    assert_ne!(at(3_300), Verdict::NONCONFORMING);
}

#[test]
fn each_flow_has_a_clock_of_its_own() {
    let (meter, _) = metered();
    meter.set_contract(Some(contract(
        8_000_000,
        1_500,
        Nanos::from_millis(5),
        true,
    )));
    let judge = |flow| meter.judge(flow, 1_500, Nanos::from_millis(1));
    let within = judge(1);
    assert_eq!([judge(2), judge(3)], [within; 2]);
    assert_eq!(judge(1), Verdict::NONCONFORMING);
    // 128 clocks: these two are judged together.
    assert_eq!(judge(2 + 128), Verdict::NONCONFORMING);
}

/// A class that sends at its rate, to the last bit, is within its contract for an hour.
#[test]
fn a_rate_is_kept_to_at_any_scale() {
    for (bps, bytes) in [
        (1_000, 1_500),
        (2_000_000, 200),
        (1_000_000_000_000, 65_535),
    ] {
        let (meter, _) = metered();
        meter.set_contract(Some(contract(bps, 2 * bytes, Nanos::from_secs(100), false)));
        let span = duration(bytes, bps).0 + 1;
        let packets = (Nanos::from_secs(3_600).0 / span).min(20_000);
        let judge = |number: u64| meter.judge(0, bytes, Nanos(number * span));
        assert!(
            (0..packets).all(|number| judge(number) != Verdict::NONCONFORMING),
            "{bps}"
        );
        // At twice the rate it conforms only briefly.
        let judge = |number: u64| meter.judge(0, bytes, Nanos((packets + number / 2) * span));
        assert!(
            (0..10).any(|number| judge(number) == Verdict::NONCONFORMING),
            "{bps}"
        );
    }
}

#[test]
fn every_delay_is_in_a_bucket_less_than_two_hundredths_wide() {
    let mut last = 0;
    for step in 0..2_000_u64 {
        let delay = Nanos((1.012_f64.powf(step as f64) * 1_000.0) as u64);
        let bucket = bucket_of(delay);
        assert!(bucket >= last && bucket < BUCKETS, "{delay:?}");
        last = bucket;
        if bucket == BUCKETS - 1 {
            assert!(delay.0 > 100_000_000_000, "{delay:?}");
            break;
        }
        let longest = longest_in(bucket);
        let wide = (longest - delay.0) as f64;
        assert!(longest >= delay.0, "{delay:?} {longest}");
        assert!(
            wide <= 1_100.0_f64.max(delay.0 as f64 / 63.0),
            "{delay:?} {longest}"
        );
        assert_eq!(bucket_of(Nanos(longest)), bucket);
        assert_eq!(bucket_of(Nanos(longest + 1)), bucket + 1);
    }
}

#[test]
fn delays_that_are_counted_one_by_one_are_those_of_a_meter() {
    let (meter, mut recorder) = metered();
    let (mut delays, mut others) = (Delays::default(), Delays::default());
    for us in [900, 7, 900, 12_000, 3, 7] {
        recorder.record(Nanos::from_micros(us));
        match us {
            900 => others.record(Nanos::from_micros(us)),
            _ => delays.record(Nanos::from_micros(us)),
        }
    }
    delays.extend(&others);
    let mut told = ReadTotals::default();
    assert_eq!(meter.read(&mut told), delays);
    assert_eq!(*told.delays, delays);
}

#[test]
fn counts_of_any_size_are_what_they_were_in_few_bytes() {
    let all = [
        (0, 1),
        (1, 127),
        (128, 128),
        (256, 1 << 14),
        (BUCKETS - 1, u64::MAX),
    ];
    let counts: Counts = all.into_iter().collect();
    assert!(counts.iter().eq(all));
    assert_eq!(counts.0.len(), 2 + 2 + 3 + 5 + 12);
    let empty = [(3, 0), (4, 2), (9, 0)];
    let counts: Counts = empty.into_iter().collect();
    assert!(counts.iter().eq([(4, 2)]));
    let sum = counts.plus([(1, 5), (4, 126), (7, 1)].into_iter());
    assert!(sum.iter().eq([(1, 5), (4, 128), (7, 1)]), "{sum:?}");
    assert!(Counts::default().iter().next().is_none());
}

#[test]
fn what_was_read_before_is_shared_until_more_comes() {
    for already in [0, 1_000] {
        let (meter, mut recorder) = metered();
        let mut told = ReadTotals::default();
        (0..already).for_each(|_| recorder.record(Nanos::from_micros(7)));
        assert_eq!(meter.read(&mut told).count(), already);
        let before = Arc::clone(&told.delays);
        assert_eq!(meter.read(&mut told).count(), 0);
        assert!(Arc::ptr_eq(&told.delays, &before));
        // In the bucket where others are.
        recorder.record(Nanos::from_micros(7));
        assert_eq!(meter.read(&mut told).count(), 1);
        assert_eq!(told.delays.count(), already + 1);
    }
}

#[test]
fn a_class_with_few_packets_has_no_counts_and_one_with_many_has_some_for_few_doublings() {
    let (meter, mut recorder) = metered();
    let mut told = ReadTotals::default();
    // Any delays, as long as they are read in time.
    for round in 0..100 {
        for more in 0..NOTED as u64 {
            recorder.record(Nanos::from_micros(round * 7_919 * (1 + more)));
        }
        assert_eq!(meter.read(&mut told).count(), NOTED as u64);
    }
    assert_eq!(meter.all_made().count(), 0);
    assert_eq!(told.delays.count(), 100 * NOTED as u64);
    for us in 1_100..2_000 {
        recorder.record(Nanos::from_micros(us));
    }
    assert_eq!(meter.all_made().count(), 1);
    assert_eq!(meter.read(&mut told).count(), 900);
    // Few delays are of another doubling.
    recorder.record(Nanos::from_micros(7));
    recorder.record(Nanos::MAX);
    assert_eq!(meter.all_made().count(), 1);
    assert_eq!(meter.read(&mut told).count(), 2);
    (0..100).for_each(|_| recorder.record(Nanos::MAX));
    let firsts: Vec<usize> = meter.all_made().map(|(first, _)| first).collect();
    assert!(firsts.len() == 2 && firsts.is_sorted());
    assert_eq!(meter.read(&mut told).count(), 100);
    assert_eq!(told.delays.count(), 100 * NOTED as u64 + 1_002);
}

#[test]
fn what_is_told_of_a_class_since_its_start_is_in_few_bytes_and_nothing_of_it_moves() {
    let (meter, mut recorder) = metered();
    let mut told = ReadTotals::default();
    let mut random: u64 = 1;
    let mut exact: Vec<u64> = Vec::new();
    for _ in 0..4_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Over all doublings.
        let delay = 1_000 << ((random >> 33) % 27);
        let delay = delay + (random >> 40) % delay;
        recorder.record(Nanos(delay));
        exact.push(delay);
        let before = Arc::clone(&told.delays);
        let recent = meter.read(&mut told);
        let (told_as, _) = recent.distinct().next().unwrap();
        assert!(told_as.0 >= delay && told_as.0 - delay <= 1_100.max(delay / 63));
        // No count decreases. To compare all of them each time takes seconds.
        for (bucket, count) in before.counts.iter().skip(exact.len() % 16).step_by(16) {
            let now = told
                .delays
                .counts
                .iter()
                .find(|&(other, _)| other == bucket);
            assert!(now.is_some_and(|(_, now)| now >= count));
        }
    }
    assert_eq!(told.delays.count(), 4_000);
    assert!(told.delays.counts.iter().count() <= FINE + BUCKETS / COARSE);
    assert!(told.delays.counts.0.len() < 2_000);
    assert!(told.counted == Counts::default());
    exact.sort_unstable();
    let close = |quantile: f64| {
        let told = told.delays.quantiles([quantile]).unwrap()[0].0 as f64;
        let exact = exact[(exact.len() as f64 * quantile) as usize - 1] as f64;
        assert!((0.999..1.07).contains(&(told / exact)), "{told} {exact}");
    };
    [0.3, 0.5, 0.9, 0.99].into_iter().for_each(close);
}

#[test]
fn a_window_has_what_came_in_it_and_the_whole_has_all() {
    // Few are noted, many are counted.
    for times in [1, 100] {
        let (meter, mut recorder) = metered();
        let mut told = ReadTotals::default();
        assert_eq!(meter.read(&mut told).quantiles([0.5]), None);
        for _ in 0..9 * times {
            recorder.record(Nanos::from_millis(10));
        }
        recorder.record(Nanos::from_millis(500));
        let first = meter.read(&mut told);
        assert_eq!(first, *told.delays);
        for _ in 0..10 * times {
            recorder.record(Nanos::from_millis(1));
        }
        let recent = meter.read(&mut told);
        let about = |delays: &Delays, quantile, millis: f64| {
            let found = delays.quantiles([quantile]).unwrap()[0].0 as f64 / 1e6;
            assert!((1.0..1.02).contains(&(found / millis)), "{found}");
        };
        about(&first, 0.9, 10.0);
        about(&told.delays, 1.0, 500.0);
        about(&recent, 1.0, 1.0);
        about(&recent, 0.5, 1.0);
        assert_eq!(told.delays.count(), 19 * times + 1);
        assert_eq!(meter.read(&mut told).quantiles([0.5]), None);
    }
}

#[test]
fn a_bucket_that_is_full_goes_on_from_the_beginning_and_nobody_notices() {
    let (meter, mut recorder) = metered();
    let mut told = ReadTotals::default();
    (0..=NOTED).for_each(|_| recorder.record(Nanos::from_millis(1)));
    meter.read(&mut told);
    let bucket = bucket_of(Nanos::from_millis(1));
    meter.parts(bucket / PARTS)[bucket % PARTS].store(u32::MAX, Ordering::Relaxed);
    meter.read(&mut told);
    let so_far = NOTED as u64 + u64::from(u32::MAX);
    assert_eq!(told.delays.count(), so_far);
    for more in 1..3 {
        recorder.record(Nanos::from_millis(1));
        assert_eq!(meter.read(&mut told).count(), 1);
        assert_eq!(told.delays.count(), so_far + more);
    }
}

#[test]
fn whoever_goes_on_counting_in_a_meter_forgets_nothing_and_shortens_nothing() {
    // Noted, and counted.
    for times in [1, 50] {
        let (meter, mut first) = metered();
        let mut told = ReadTotals::default();
        let record = |recorder: &mut Recorder, ms| {
            (0..times).for_each(|_| recorder.record(Nanos::from_millis(ms)));
        };
        record(&mut first, 7_000);
        record(&mut first, 3);
        let mut second = Recorder::new(Arc::clone(&meter));
        // Over three doublings and back, and beyond the longest delay that a recorder stores.
        for (ms, longest) in [
            (3, 7_000),
            (6, 7_000),
            (12, 7_000),
            (3, 7_000),
            (8_000, 8_000),
            (5_000, 8_000),
        ] {
            record(&mut second, ms);
            meter.read(&mut told);
            assert_eq!(
                told.delays.longest(),
                Nanos::from_millis(longest),
                "after {ms} ms"
            );
        }
        let counts: Vec<u64> = told.delays.distinct().map(|(_, count)| count).collect();
        assert_eq!(told.delays.count(), 8 * times);
        assert_eq!(counts, [3, 1, 1, 1, 1, 1].map(|alike| alike * times));
    }
}

#[test]
fn what_is_noted_on_one_thread_and_read_on_another_is_all_there_and_once() {
    let (meter, mut recorder) = metered();
    let mut told = ReadTotals::default();
    let all = 200_000;
    let writer = std::thread::spawn(move || {
        for number in 0..all {
            recorder.record(Nanos::from_micros(number % 40 * 2));
            if number % 16 == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut recent = 0;
    while !writer.is_finished() {
        recent += meter.read(&mut told).count();
    }
    recent += meter.read(&mut told).count();
    assert_eq!((recent, told.delays.count()), (all, all));
    let counts = told.delays.distinct().map(|(_, count)| count);
    assert!(
        counts.eq(std::iter::repeat_n(all / 40, 40)),
        "{:?}",
        told.delays
    );
}
