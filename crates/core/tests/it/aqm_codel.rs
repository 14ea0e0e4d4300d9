//! CoDel follows RFC 8289, packet by packet.

use fairlane_core::aqm::{AqmError, Backlog, Codel, CodelConfig, CodelParameters, Verdict};
use fairlane_core::random::splitmix64;
use fairlane_core::{Length, Nanos};
use proptest::prelude::*;
use std::collections::VecDeque;

const MS: u64 = 1_000_000;

fn codel(parameters: CodelParameters) -> Codel {
    Codel::new(CodelConfig::new(parameters).unwrap())
}

/// Returns a backlog of `bytes` behind the packet in question.
fn behind(bytes: u64) -> Backlog {
    Backlog {
        packets: (bytes / 1000) as u32,
        bytes,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Packet {
    arrival: u64,
    bytes: u64,
}

/// The decisions of a queue about its packets, in order: number, and whether it was sent, marked or dropped.
type Story = Vec<(usize, Verdict)>;

/// The queue of the RFC's description (Section 5), in real numbers and with its own loop.
struct Reference {
    target: f64,
    interval: f64,
    max_packet: u64,
    ecn: bool,
    queue: VecDeque<(usize, Packet)>,
    first_above: Option<f64>,
    drop_next: f64,
    count: f64,
    last_count: f64,
    dropping: bool,
    /// A mark leaves it to the following packet to determine whether the next signal is due.
    owed: bool,
    story: Story,
}

impl Reference {
    fn new(parameters: CodelParameters) -> Reference {
        Reference {
            target: parameters.target.0 as f64,
            interval: parameters.interval.0 as f64,
            max_packet: parameters.max_packet.get().into(),
            ecn: parameters.ecn,
            queue: VecDeque::new(),
            first_above: None,
            drop_next: 0.0,
            count: 0.0,
            last_count: 0.0,
            dropping: false,
            owed: false,
            story: Vec::new(),
        }
    }

    /// In whole nanoseconds, as times are.
    fn law(&self, from: f64) -> f64 {
        from + (self.interval / self.count.sqrt()).floor()
    }

    /// The first packet, and whether its delay has stood for an interval.
    fn take(&mut self, now: f64) -> (Option<usize>, bool) {
        let Some((number, packet)) = self.queue.pop_front() else {
            self.first_above = None;
            return (None, false);
        };
        let left: u64 = self.queue.iter().map(|(_, p)| p.bytes).sum();
        if now - (packet.arrival as f64) < self.target || left <= self.max_packet {
            self.first_above = None;
            return (Some(number), false);
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + self.interval);
                (Some(number), false)
            }
            Some(since) => (Some(number), now >= since),
        }
    }

    fn tell(&mut self, number: Option<usize>, verdict: Verdict) {
        self.story.extend(number.map(|number| (number, verdict)));
    }

    /// Sends one packet, if there is one; drops on the way.
    fn send(&mut self, now: f64) {
        let (mut packet, mut standing) = self.take(now);
        if self.dropping {
            if !standing {
                self.dropping = false;
            } else if self.owed {
                self.drop_next = self.law(self.drop_next);
            }
            self.owed = false;
            while self.dropping && now >= self.drop_next {
                self.count += 1.0;
                if self.ecn {
                    self.owed = true;
                    return self.tell(packet, Verdict::Mark);
                }
                self.tell(packet, Verdict::Drop);
                (packet, standing) = self.take(now);
                if standing {
                    self.drop_next = self.law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if standing {
            let delta = self.count - self.last_count;
            let recent = now - self.drop_next < 16.0 * self.interval;
            self.count = if delta > 1.0 && recent { delta } else { 1.0 };
            self.drop_next = self.law(now);
            self.last_count = self.count;
            self.dropping = true;
            if self.ecn {
                return self.tell(packet, Verdict::Mark);
            }
            self.tell(packet, Verdict::Drop);
            (packet, _) = self.take(now);
        }
        self.tell(packet, Verdict::Pass);
    }
}

/// A queue managed by the code, with the loop that its owner has.
struct Managed {
    codel: Codel,
    queue: VecDeque<(usize, Packet)>,
    bytes: u64,
    story: Story,
}

impl Managed {
    fn send(&mut self, now: u64) {
        while let Some((number, packet)) = self.queue.pop_front() {
            self.bytes -= packet.bytes;
            let left = Backlog {
                packets: self.queue.len() as u32,
                bytes: self.bytes,
            };
            let verdict = self
                .codel
                .leaving(Nanos(now), Nanos(now - packet.arrival), left);
            self.story.push((number, verdict));
            if self.queue.is_empty() {
                self.codel.emptied();
            }
            if verdict != Verdict::Drop {
                return;
            }
        }
    }
}

/// Lets both queues live through the same arrivals and departures.
fn both(parameters: CodelParameters, events: &[(u64, u32, bool)]) -> (Story, Story) {
    let mut reference = Reference::new(parameters);
    let mut managed = Managed {
        codel: codel(parameters),
        queue: VecDeque::new(),
        bytes: 0,
        story: Vec::new(),
    };
    let (mut now, mut number) = (0, 0);
    for &(gap, bytes, arrives) in events {
        now += gap;
        if arrives {
            let packet = Packet {
                arrival: now,
                bytes: bytes.into(),
            };
            reference.queue.push_back((number, packet));
            managed.queue.push_back((number, packet));
            managed.bytes += packet.bytes;
            number += 1;
        } else {
            reference.send(now as f64);
            managed.send(now);
        }
    }
    (reference.story, managed.story)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Random traffic whose load rises and falls, so that series of drops begin, continue, end and begin again.
    #[test]
    fn every_packet_fares_as_the_rfc_says(
        ecn in any::<bool>(),
        interval_ms in 1..40u64,
        loads in proptest::collection::vec((1..9u32, 20..400usize), 1..12),
        seed in any::<u64>(),
    ) {
        let parameters = CodelParameters {
            target: Nanos::from_micros(interval_ms * 50),
            interval: Nanos::from_millis(interval_ms),
            ecn,
            ..CodelParameters::default()
        };
        let mut random = seed;
        let mut draw = |below: u64| splitmix64(&mut random) % below;
        let mut events = Vec::new();
        for (load, count) in loads {
            for _ in 0..count {
                // Of 8 events, `load` are arrivals.
                let arrives = draw(8) < load.into();
                events.push((draw(600_000), 40 + draw(1460) as u32, arrives));
            }
        }
        let (expected, found) = both(parameters, &events);
        prop_assert_eq!(expected, found);
    }
}

#[test]
fn the_random_traffic_makes_rows_of_drops_begin_and_end() {
    let parameters = CodelParameters {
        target: Nanos::from_micros(500),
        interval: Nanos::from_millis(10),
        ..CodelParameters::default()
    };
    // Twice as many arrivals as departures for 0.4 s, then departures alone, and again.
    let mut events = Vec::new();
    for _ in 0..2 {
        for n in 0..3000u64 {
            events.push((133_331, 1000, n % 3 != 0));
        }
        events.extend((0..3000).map(|_| (133_331, 0, false)));
    }
    let (expected, found) = both(parameters, &events);
    let drops = |story: &Story| story.iter().filter(|s| s.1 == Verdict::Drop).count();
    assert!(drops(&expected) > 100, "{} drops", drops(&expected));
    assert_eq!(expected, found);
}

/// Returns the drop times of a queue with a standing delay from time 0 on, checked every microsecond.
fn drops(codel: &mut Codel, from: u64, until: u64) -> Vec<u64> {
    (from..until)
        .step_by(1000)
        .filter(|&now| codel.leaving(Nanos(now), Nanos(20 * MS), behind(100_000)) == Verdict::Drop)
        .collect()
}

#[test]
fn a_standing_queue_is_dropped_from_at_the_inverse_root_of_the_count() {
    let mut codel = codel(CodelParameters::default());
    let found = drops(&mut codel, 0, 4000 * MS);
    // The first after an interval, then one an interval, then ever faster.
    let mut expected = 100e6;
    assert!(found.len() > 400, "{} drops", found.len());
    for (count, &drop) in (1u32..).zip(&found) {
        // Asked every microsecond, and a nanosecond lost a drop.
        let late = drop as f64 - expected;
        assert!(
            (-f64::from(count)..1000.0).contains(&late),
            "drop {count} comes {late} ns late"
        );
        expected += 100e6 / f64::from(count).sqrt();
    }
}

#[test]
fn a_delay_of_the_target_stands_and_less_does_not() {
    for (sojourn, left, drops) in [
        (5 * MS, 1515, true),
        (5 * MS - 1, 1515, false),
        (5 * MS, 1514, false),
        (u64::MAX, u64::MAX, true),
    ] {
        let mut codel = codel(CodelParameters::default());
        let mut verdict = |now| codel.leaving(Nanos(now), Nanos(sojourn), behind(left));
        assert_eq!(verdict(7), Verdict::Pass);
        assert_eq!(verdict(7 + 100 * MS - 1), Verdict::Pass);
        let expected = if drops { Verdict::Drop } else { Verdict::Pass };
        assert_eq!(
            verdict(7 + 100 * MS),
            expected,
            "{sojourn} ns, {left} bytes"
        );
    }
}

#[test]
fn one_packet_in_time_or_an_empty_queue_starts_the_interval_anew() {
    for empties in [false, true] {
        let mut codel = codel(CodelParameters::default());
        assert_eq!(drops(&mut codel, 0, 99 * MS), []);
        if empties {
            codel.emptied();
        } else {
            let verdict = codel.leaving(Nanos(99 * MS), Nanos(0), behind(100_000));
            assert_eq!(verdict, Verdict::Pass);
        }
        assert_eq!(drops(&mut codel, 100 * MS, 199 * MS), []);
        assert_eq!(drops(&mut codel, 199 * MS, 201 * MS), [200 * MS]);
    }
}

#[test]
fn a_queue_that_stands_again_soon_resumes_its_drop_rate_and_later_does_not() {
    for (pause, resumes) in [(1000, true), (1700, false)] {
        let mut codel = codel(CodelParameters::default());
        let row = drops(&mut codel, 0, 1000 * MS);
        let end = *row.last().unwrap();
        // The next would have been due within an interval.
        assert!(row.len() > 20 && end > 900 * MS);
        let verdict = codel.leaving(Nanos(1000 * MS), Nanos(0), behind(100_000));
        assert_eq!(verdict, Verdict::Pass);
        let again = (1000 + pause) * MS;
        let second = drops(&mut codel, again, again + 150 * MS);
        // An interval of patience either way, then one drop, or many.
        assert_eq!(second[0], again + 100 * MS);
        assert_eq!(second.len() > 1, resumes, "{} drops", second.len());
    }
}

#[test]
fn with_ecn_a_signal_is_a_mark_and_counts_as_a_drop() {
    let parameters = CodelParameters {
        ecn: true,
        ..CodelParameters::default()
    };
    let (mut marking, mut dropping) = (codel(parameters), codel(CodelParameters::default()));
    for now in (0..3000 * MS).step_by(MS as usize) {
        let ask = |codel: &mut Codel| codel.leaving(Nanos(now), Nanos(20 * MS), behind(9_000_000));
        let expected = match ask(&mut dropping) {
            Verdict::Drop => Verdict::Mark,
            other => other,
        };
        assert_eq!(ask(&mut marking), expected, "at {now}");
    }
}

#[test]
fn times_that_go_back_or_never_end_do_no_harm() {
    let mut codel = codel(CodelParameters::default());
    assert!(!drops(&mut codel, 0, 500 * MS).is_empty());
    // Back to the start: it waits until the time comes again.
    assert_eq!(drops(&mut codel, 0, MS), []);
    for now in [u64::MAX - 1, u64::MAX, u64::MAX, 0, 5, u64::MAX] {
        let _ = codel.leaving(Nanos(now), Nanos(u64::MAX), behind(100_000));
    }
}

#[test]
fn parameters_out_of_range_are_refused_with_one_sentence() {
    let with = |target, interval| {
        CodelConfig::new(CodelParameters {
            target: Nanos(target),
            interval: Nanos(interval),
            ..CodelParameters::default()
        })
        .map(|config| (config.parameters().target.0, config.parameters().interval.0))
    };
    for (target, interval) in [(1, 10_000), (9_999, 10_000), (1, 4000 * MS)] {
        assert_eq!(with(target, interval), Ok((target, interval)));
    }
    for (target, interval) in [(0, 100 * MS), (100 * MS, 100 * MS), (u64::MAX, 100 * MS)] {
        let error = AqmError::Target {
            target: Nanos(target),
            interval: Nanos(interval),
        };
        assert_eq!(with(target, interval), Err(error));
    }
    for interval in [0, 9_999, 4000 * MS + 1, u64::MAX] {
        let error = AqmError::Interval {
            interval: Nanos(interval),
        };
        assert_eq!(with(1, interval), Err(error));
    }
    assert_eq!(
        with(1, 0).unwrap_err().to_string(),
        "CoDel's interval must be between 10us and 4s, not 0ns"
    );
    assert_eq!(
        with(MS, MS).unwrap_err().to_string(),
        "CoDel's target of 1000000ns must be above 0 and below its interval of 1000000ns"
    );
    assert_eq!(
        CodelConfig::default().parameters(),
        CodelParameters::default()
    );
    assert_eq!(
        CodelConfig::default(),
        CodelConfig::new(CodelParameters::default()).unwrap()
    );
    assert_eq!(
        Length::new(1514),
        Some(CodelParameters::default().max_packet)
    );
}
