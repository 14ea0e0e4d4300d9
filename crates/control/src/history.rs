//! What became of each class, second by second for an hour and minute by minute for a week, in memory
//! that is bounded whatever the number of classes.
//!
//! A step has a row: the classes that had something to tell then, and five figures of each, in 16 bits
//! a figure. What does nothing takes no place. Where the rows would be larger than their budget, the
//! oldest go: with many busy classes the hour, and the week, are as long as fits.
//!
//! Steps count from the first state, by the site's own clock, which nobody sets. The time of day only
//! names them.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fairlane_config::class_report::{ClassReport, ClassTerms};
use fairlane_site::{LinkReport, Report};
use serde::Serialize;

use crate::stream::States;

/// Bytes of the rows of seconds, and of those of minutes: with 10,000 classes that are all busy, a
/// minute and an hour and a half; with 100, the whole hour and the whole week.
const BUDGETS: [usize; 2] = [10 << 20, 14 << 20];
/// Steps of a second that are kept at most, and of a minute.
const HOUR: u64 = 3_600;
const WEEK: u64 = 7 * 24 * 60;
/// Seconds of a long step.
const MINUTE: u64 = 60;
/// How far from the end of a step a state may be told, in seconds, and count as of its end. States
/// come about a second after each other, and drift against the steps.
const SLACK: f64 = 0.75;
/// The least time, in seconds, over which a rate is worth telling: states come sooner after a change.
const SHORTEST: f64 = 0.25;
/// By how many seconds the time of day may differ from what it was by the site's clock until steps
/// have other names.
const CLOCK_STEP: f64 = 2.0;

/// Which steps are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The last hour, by the second.
    Hour,
    /// The last week, by the minute.
    Week,
}

impl Span {
    /// Seconds of a step.
    const fn step(self) -> u64 {
        match self {
            Span::Hour => 1,
            Span::Week => MINUTE,
        }
    }
}

/// What became of a class in a step, a figure of each kind; null where nothing is known.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Told {
    /// Seconds of a step.
    step_s: u64,
    /// When the first of the steps began, in seconds since 1970.
    start: i64,
    /// Mean rates of what left, in bit/s.
    rate_bps: Vec<Option<f32>>,
    /// Packets that waited: in a long step, at most.
    queued_packets: Vec<Option<f32>>,
    /// What 99 of 100 packets did not exceed; of several states, the largest. Null where none left.
    p99_us: Vec<Option<f32>>,
    /// The longest delay.
    max_us: Vec<Option<f32>>,
    /// Packets that were dropped, whatever the reason.
    drops: Vec<Option<f32>>,
}

/// Figures of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    rate_bps: f32,
    queued: f32,
    p99_us: f32,
    max_us: f32,
    drops: f32,
}

/// The same in little room.
type Packed = [u16; 5];

const NOTHING: Packed = [0; 5];

impl Figures {
    fn pack(self) -> Packed {
        [
            self.rate_bps,
            self.queued,
            self.p99_us,
            self.max_us,
            self.drops,
        ]
        .map(pack)
    }

    /// Of this step and the next, which are parts of a longer one. Rates are added.
    fn and(self, next: Figures) -> Figures {
        Figures {
            rate_bps: self.rate_bps + next.rate_bps,
            queued: self.queued.max(next.queued),
            p99_us: self.p99_us.max(next.p99_us),
            max_us: self.max_us.max(next.max_us),
            drops: self.drops + next.drops,
        }
    }
}

/// What is taken from the exponent of an `f32`, so that six bits of it are left: 2^-15 to 2^49.
const LEAST: u32 = (127 - 15) << 10;

/// A figure to one part in 2,048: six bits of exponent and ten of mantissa, cut out of those of an
/// `f32`. What is too small, negative or no number is 0.
fn pack(figure: f32) -> u16 {
    let rounded = (figure.max(0.0).to_bits() + (1 << 12)) >> 13;
    u16::try_from(rounded.saturating_sub(LEAST)).unwrap_or(u16::MAX)
}

fn unpack(packed: u16) -> f32 {
    match packed {
        0 => 0.0,
        _ => f32::from_bits((u32::from(packed) + LEAST) << 13),
    }
}

/// A class in a row: the two halves of its number, and its figures.
type Entry = [u16; 7];

fn entry(class: u32, [rate, queued, p99, max, drops]: Packed) -> Entry {
    let (high, low) = ((class >> 16) as u16, class as u16);
    [high, low, rate, queued, p99, max, drops]
}

fn class_of([high, low, ..]: &Entry) -> u32 {
    u32::from(*high) << 16 | u32::from(*low)
}

/// What had something to tell in a step, by number.
fn row(figures: impl Iterator<Item = (u32, Figures)>) -> Vec<Entry> {
    let packed = figures.map(|(class, figures)| (class, figures.pack()));
    let told = packed.filter(|&(_, packed)| packed != NOTHING);
    let mut row: Vec<Entry> = told.map(|(class, packed)| entry(class, packed)).collect();
    row.sort_unstable_by_key(class_of);
    row
}

/// Rows one after the other, in one piece of memory.
#[derive(Debug)]
struct Rows {
    /// How many rows and entries there may be.
    most: u64,
    most_entries: usize,
    /// The number of the first row that is kept.
    first: u64,
    lengths: VecDeque<u32>,
    entries: VecDeque<Entry>,
}

impl Rows {
    fn new(most: u64, budget: usize) -> Rows {
        Rows {
            most,
            most_entries: budget / size_of::<Entry>(),
            first: 0,
            lengths: VecDeque::new(),
            entries: VecDeque::new(),
        }
    }

    /// A row of more entries than there may be is one of which nothing is known.
    fn push(&mut self, row: &[Entry]) {
        let row = if row.len() > self.most_entries {
            &[]
        } else {
            row
        };
        while self.entries.len() + row.len() > self.most_entries {
            self.forget();
        }
        let needed = self.entries.len() + row.len();
        if needed > self.entries.capacity() {
            // By a quarter, and not twice as much.
            let room = (needed + needed / 4).min(self.most_entries);
            self.entries.reserve_exact(room - self.entries.len());
        }
        self.entries.extend(row);
        self.lengths.push_back(row.len() as u32);
        if self.lengths.len() as u64 > self.most {
            self.forget();
        }
    }

    /// The oldest.
    fn forget(&mut self) {
        if let Some(length) = self.lengths.pop_front() {
            self.entries.drain(..length as usize);
            self.first += 1;
        }
    }

    /// After the last.
    fn end(&self) -> u64 {
        self.first + self.lengths.len() as u64
    }

    /// The figures of a class that was there, from a row on.
    fn of(&self, class: u32, from: u64) -> impl Iterator<Item = Packed> {
        let skip = from.saturating_sub(self.first) as usize;
        let mut begin: usize = self
            .lengths
            .iter()
            .take(skip)
            .map(|&length| length as usize)
            .sum();
        self.lengths.iter().skip(skip).map(move |&length| {
            let end = begin + length as usize;
            let found = self.find(class, begin, end);
            begin = end;
            found
        })
    }

    fn find(&self, class: u32, mut begin: usize, mut end: usize) -> Packed {
        while begin < end {
            let middle = begin.midpoint(end);
            let entry = &self.entries[middle];
            match class_of(entry).cmp(&class) {
                Ordering::Less => begin = middle + 1,
                Ordering::Greater => end = middle,
                Ordering::Equal => {
                    let [_, _, figures @ ..] = *entry;
                    return figures;
                }
            }
        }
        NOTHING
    }
}

/// A class that there is.
#[derive(Debug)]
struct Class {
    terms: Arc<ClassTerms>,
    /// What it has in rows.
    number: u32,
    /// The first step that is known of it.
    born: u64,
    /// What was counted when the last step ended.
    sent_bytes: u64,
    drops: u64,
    /// Of the step that goes on; without what is counted.
    now: Figures,
    /// Of the steps of the minute that goes on, and how many.
    minute: Figures,
    seconds: u32,
}

fn drops(report: &ClassReport) -> u64 {
    report.dropped + report.discarded + report.early
}

impl Class {
    fn new(report: &ClassReport, number: u32, born: u64) -> Class {
        Class {
            terms: Arc::clone(&report.terms),
            number,
            born,
            sent_bytes: report.sent_bytes,
            drops: drops(report),
            now: Figures::default(),
            minute: Figures::default(),
            seconds: 0,
        }
    }

    /// A state that was told within a step.
    fn note(&mut self, report: &ClassReport) {
        let delay = report.recent.and_then(|recent| recent.delay_us);
        let delay = delay.unwrap_or_default();
        self.now.queued = report.queued_packets as f32;
        self.now.p99_us = self.now.p99_us.max(delay.p99 as f32);
        self.now.max_us = self.now.max_us.max(delay.max as f32);
    }

    /// What is true of each of the steps that end with this state.
    fn end(&mut self, report: &ClassReport, seconds: f64, steps: u64) -> Figures {
        let bytes = report.sent_bytes.saturating_sub(self.sent_bytes);
        let dropped = drops(report).saturating_sub(self.drops);
        (self.sent_bytes, self.drops) = (report.sent_bytes, drops(report));
        let figures = Figures {
            rate_bps: (bytes as f64 * 8.0 / seconds) as f32,
            drops: (dropped as f64 / steps as f64) as f32,
            ..self.now
        };
        self.now = Figures::default();
        figures
    }

    /// The minute that ends.
    fn end_minute(&mut self) -> Figures {
        let sum = std::mem::take(&mut self.minute);
        let seconds = std::mem::take(&mut self.seconds).max(1);
        Figures {
            rate_bps: sum.rate_bps / seconds as f32,
            ..sum
        }
    }
}

/// The classes of a link, in the order of the file.
#[derive(Debug)]
struct Link {
    name: Arc<str>,
    classes: Vec<Class>,
}

/// What became of all classes.
#[derive(Debug)]
struct History {
    budgets: [usize; 2],
    links: Vec<Link>,
    /// The number that the next class has.
    next: u32,
    /// When the first state was told, in the site's seconds.
    began: Option<f64>,
    /// When the last step ended, in seconds since then, and how many there were.
    ended: f64,
    steps: u64,
    /// The time of day then.
    epoch: i64,
    seconds: Rows,
    minutes: Rows,
}

impl Default for History {
    fn default() -> History {
        History::within(BUDGETS)
    }
}

impl History {
    /// In so many bytes of seconds and of minutes, beside some hundred for each class that there is.
    fn within(budgets: [usize; 2]) -> History {
        History {
            budgets,
            links: Vec::new(),
            next: 0,
            began: None,
            ended: 0.0,
            steps: 0,
            epoch: 0,
            seconds: Rows::new(HOUR, budgets[0]),
            minutes: Rows::new(WEEK, budgets[1]),
        }
    }

    /// A state, and the time of day in seconds since 1970. O(classes), and as much for each step that
    /// went by without a state.
    fn note(&mut self, report: &Report, day: f64) {
        let now = report.seconds - *self.began.get_or_insert(report.seconds);
        let steps = self.steps_to(now);
        if now < self.ended || steps > HOUR {
            // Nothing is known of so long a time, and what was before it is over.
            *self = History::within(self.budgets);
            return self.note(report, day);
        }
        if (day - now - self.epoch as f64).abs() >= CLOCK_STEP {
            self.epoch = (day - now).round() as i64;
        }
        self.follow(report, self.steps + steps);
        if steps > 0 {
            self.end(report, now, steps);
        }
    }

    /// How many steps end with a state of this time.
    fn steps_to(&self, now: f64) -> u64 {
        let next = self.steps + 1;
        if now - self.ended < SHORTEST {
            0
        } else if (now - next as f64).abs() < SLACK {
            1
        } else {
            (now.round() as u64).saturating_sub(self.steps)
        }
    }

    /// Has the classes that a state has, and notes what it says of them. What is gone is forgotten, and
    /// what came is known from a step on.
    fn follow(&mut self, report: &Report, from: u64) {
        let mut before = std::mem::take(&mut self.links);
        for link in &report.links {
            let known = before.iter().position(|known| known.name == link.name);
            let mut classes = known.map_or_else(Vec::new, |at| before.swap_remove(at).classes);
            let same = classes.len() == link.classes.len()
                && (classes.iter().zip(&link.classes))
                    .all(|(class, report)| Arc::ptr_eq(&class.terms, &report.terms));
            if !same {
                classes = self.changed(classes, link, from);
            }
            for (class, report) in classes.iter_mut().zip(&link.classes) {
                class.note(report);
            }
            self.links.push(Link {
                name: Arc::clone(&link.name),
                classes,
            });
        }
    }

    /// The classes of a link that has others now, or in another order; they are known by name.
    fn changed(&mut self, classes: Vec<Class>, link: &LinkReport, from: u64) -> Vec<Class> {
        let named = classes.into_iter();
        let mut known: HashMap<Arc<str>, Class> = named
            .map(|class| (Arc::clone(&class.terms.name), class))
            .collect();
        let reports = link.classes.iter();
        let all = reports.map(|report| {
            if let Some(class) = known.remove(&report.terms.name) {
                let terms = Arc::clone(&report.terms);
                return Class { terms, ..class };
            }
            let number = self.next;
            // Who had a number before, four thousand million classes ago, is in no row any more.
            self.next = self.next.wrapping_add(1);
            Class::new(report, number, from)
        });
        all.collect()
    }

    /// Steps end with a state.
    fn end(&mut self, report: &Report, now: f64, steps: u64) {
        let seconds = now - self.ended;
        let mut all = Vec::new();
        for (link, report) in self.links.iter_mut().zip(&report.links) {
            for (class, report) in link.classes.iter_mut().zip(&report.classes) {
                all.push((class.number, class.end(report, seconds, steps)));
            }
        }
        let second = row(all.iter().copied());
        for _ in 0..steps {
            self.seconds.push(&second);
            let classes = self.links.iter_mut().flat_map(|link| &mut link.classes);
            for (class, &(_, figures)) in classes.zip(&all) {
                class.minute = class.minute.and(figures);
                class.seconds += 1;
            }
            self.steps += 1;
            if self.steps.is_multiple_of(MINUTE) {
                let classes = self.links.iter_mut().flat_map(|link| &mut link.classes);
                let minute = classes.map(|class| (class.number, class.end_minute()));
                self.minutes.push(&row(minute));
            }
        }
        self.ended = now;
    }

    /// What became of a class, since a time of day or as long as it is known; `None` where there is no
    /// such class. O(steps).
    fn told(&self, link: &str, class: &str, span: Span, since: Option<i64>) -> Option<Told> {
        let link = self.links.iter().find(|known| &*known.name == link)?;
        let class = (link.classes.iter()).find(|known| &*known.terms.name == class)?;
        let rows = match span {
            Span::Hour => &self.seconds,
            Span::Week => &self.minutes,
        };
        let step = span.step();
        // The first that begins then, or later.
        let first = since.map_or(0, |since| since.saturating_sub(self.epoch).max(0));
        let first = (first as u64).div_ceil(step).clamp(rows.first, rows.end());
        let mut told = Told {
            start: self.epoch + (first * step) as i64,
            ..Told::nothing(span)
        };
        for (at, packed) in (first..).zip(rows.of(class.number, first)) {
            told.push(((at + 1) * step > class.born).then_some(packed));
        }
        Some(told)
    }
}

impl Told {
    /// Of what is not known yet.
    pub(crate) fn nothing(span: Span) -> Told {
        Told {
            step_s: span.step(),
            ..Told::default()
        }
    }

    fn push(&mut self, packed: Option<Packed>) {
        let figures = packed.map(|packed| packed.map(unpack));
        let [rate_bps, queued, p99_us, max_us, drops] = match figures {
            Some(figures) => figures.map(Some),
            None => [None; 5],
        };
        self.rate_bps.push(rate_bps);
        self.queued_packets.push(queued);
        // No packet takes no time.
        self.p99_us.push(p99_us.filter(|&us| us > 0.0));
        self.max_us.push(max_us.filter(|&us| us > 0.0));
        self.drops.push(drops);
    }
}

/// A history that is kept while it is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<History>>);

impl Kept {
    /// Notes all states, until there are no more.
    pub(crate) async fn follow(self, mut states: States) {
        while states.changed().await.is_ok() {
            let state = Arc::clone(&states.borrow_and_update());
            let day = SystemTime::now().duration_since(UNIX_EPOCH);
            let day = day.unwrap_or_default().as_secs_f64();
            let mut history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            history.note(&state.report, day);
        }
    }

    /// As [`History::told`].
    pub(crate) fn told(
        &self,
        link: &str,
        class: &str,
        span: Span,
        since: Option<i64>,
    ) -> Option<Told> {
        let history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        history.told(link, class, span, since)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use fairlane_config::class_report::{DelayReport, Recent};

    use super::*;

    /// The time of day when the site starts.
    const DAY: f64 = 1.7e9;

    /// A site whose states are told one after the other; its first class has this many bytes more, and
    /// drops, each time.
    struct States {
        report: Report,
        history: History,
    }

    impl States {
        fn new() -> States {
            let mut report = crate::metrics::tests::report();
            report.seconds = 1.0;
            let mut told = States {
                report,
                history: History::default(),
            };
            told.at(1.0, 0, 0);
            told
        }

        fn at(&mut self, seconds: f64, bytes: u64, drops: u64) {
            self.at_day(seconds, bytes, drops, DAY + seconds);
        }

        fn at_day(&mut self, seconds: f64, bytes: u64, drops: u64, day: f64) {
            self.report.seconds = seconds;
            let class = &mut self.report.links[0].classes[0];
            class.sent_bytes += bytes;
            class.dropped += drops;
            self.history.note(&self.report, day);
        }

        fn delay(&mut self, us: Option<f64>) {
            let delay_us = us.map(|us| DelayReport {
                mean: None,
                p50: us / 4.0,
                p99: us / 2.0,
                max: us,
            });
            self.report.links[0].classes[0].recent = Some(Recent {
                delay_us,
                ..Recent::default()
            });
        }

        fn name(&self, class: usize) -> String {
            self.report.links[0].classes[class].terms.name.to_string()
        }

        fn told(&self, span: Span, since: Option<i64>) -> Told {
            let name = self.name(0);
            self.history.told("up", &name, span, since).unwrap()
        }
    }

    fn near(figures: &[Option<f32>], expected: &[f32]) {
        assert_eq!(figures.len(), expected.len(), "{figures:?}");
        for (figure, expected) in figures.iter().zip(expected) {
            let off = (figure.unwrap() - expected).abs();
            assert!(off <= expected / 2_000.0, "{figures:?}: {expected}");
        }
    }

    #[test]
    fn a_figure_is_kept_to_one_part_in_two_thousand_from_a_nanosecond_to_a_petabit() {
        for exponent in -14..=48 {
            for part in 0..1_000_u16 {
                let figure = 2_f32.powi(exponent) * (1.0 + f32::from(part) / 1_000.0);
                let off = (unpack(pack(figure)) - figure).abs();
                assert!(off <= figure / 2_048.0, "{figure}");
            }
        }
        // Counts are exact as far as there are queues of that length.
        for count in 0..=2_048_u16 {
            assert_eq!(unpack(pack(f32::from(count))), f32::from(count));
        }
    }

    #[test]
    fn a_figure_beyond_what_is_kept_is_the_least_or_the_most() {
        for nothing in [0.0, -1.0, f32::NAN, 1e-9, f32::NEG_INFINITY] {
            assert_eq!(pack(nothing), 0, "{nothing}");
        }
        assert_eq!(unpack(0), 0.0);
        for much in [1e15, f32::MAX, f32::INFINITY] {
            assert_eq!(pack(much), u16::MAX, "{much}");
        }
        assert!(unpack(u16::MAX).is_finite());
    }

    #[test]
    fn each_second_has_its_rate_and_its_drops() {
        let mut told = States::new();
        told.delay(Some(800.0));
        told.at(2.0, 125_000, 0);
        told.delay(None);
        told.at(3.0, 250_000, 7);
        told.at(4.0, 0, 0);
        let answer = told.told(Span::Hour, None);
        assert_eq!((answer.step_s, answer.start), (1, DAY as i64 + 1));
        near(&answer.rate_bps, &[1e6, 2e6, 0.0]);
        near(&answer.drops, &[0.0, 7.0, 0.0]);
        near(&answer.p99_us[..1], &[400.0]);
        near(&answer.max_us[..1], &[800.0]);
        assert_eq!(answer.p99_us[1..], [None, None], "no packet has no delay");
        let none = |link: &str, class: &str| told.history.told(link, class, Span::Hour, None);
        assert!(none("up", "nobody").is_none() && none("down", &told.name(0)).is_none());
    }

    #[test]
    fn states_that_drift_or_come_late_leave_no_gap_and_lose_no_byte() {
        for every in [0.1, 0.999, 1.0, 1.0007, 1.3, 2.0, 5.0] {
            let mut told = States::new();
            let states = (3_000.0 / every) as u32;
            for state in 1..=states {
                let bytes = (125_000.0 * every) as u64;
                told.at(1.0 + f64::from(state) * every, bytes, 0);
            }
            let rates = told.told(Span::Hour, None).rate_bps;
            let seconds = f64::from(states) * every;
            assert!((rates.len() as f64 - seconds).abs() <= 1.0, "{every}");
            let whole = rates
                .iter()
                .flatten()
                .all(|rate| (rate / 1e6 - 1.0).abs() < 0.01);
            assert!(whole, "{every}: {rates:?}");
        }
    }

    #[test]
    fn what_was_dropped_in_a_long_time_is_spread_over_it() {
        let mut told = States::new();
        told.at(5.0, 500_000, 8);
        let answer = told.told(Span::Hour, None);
        near(&answer.rate_bps, &[1e6; 4]);
        near(&answer.drops, &[2.0; 4]);
    }

    #[test]
    fn a_minute_is_the_mean_and_the_worst_of_its_seconds() {
        let mut told = States::new();
        for second in 2..=122_u32 {
            told.delay((second == 30).then_some(5_000.0));
            let bytes = if second <= 31 { 250_000 } else { 0 };
            told.at(second.into(), bytes, u64::from(second == 40));
        }
        let answer = told.told(Span::Week, None);
        assert_eq!((answer.step_s, answer.start), (60, DAY as i64 + 1));
        near(&answer.rate_bps, &[1e6, 0.0]);
        near(&answer.drops, &[1.0, 0.0]);
        near(&answer.max_us[..1], &[5_000.0]);
    }

    #[test]
    fn an_hour_and_a_week_are_kept_and_no_more() {
        let mut told = States::new();
        let seconds = WEEK * MINUTE + 2 * HOUR;
        for second in 1..=seconds {
            told.at(1.0 + second as f64, 125, 0);
        }
        assert_eq!(told.told(Span::Hour, None).rate_bps.len() as u64, HOUR);
        let week = told.told(Span::Week, None);
        assert_eq!(week.rate_bps.len() as u64, WEEK);
        assert_eq!(week.start, DAY as i64 + 1 + 2 * HOUR as i64);
        assert!(week.rate_bps.iter().all(Option::is_some));
    }

    #[test]
    fn who_asks_for_what_is_new_gets_no_more() {
        let mut told = States::new();
        for second in 2..=11 {
            told.at(second.into(), 125_000, 0);
        }
        let whole = told.told(Span::Hour, None);
        let new = told.told(Span::Hour, Some(whole.start + 8));
        assert_eq!((new.start, new.rate_bps.len()), (whole.start + 8, 2));
        let later = told.told(Span::Hour, Some(whole.start + 500));
        assert!(later.rate_bps.is_empty());
        for before in [0, i64::MIN] {
            assert_eq!(told.told(Span::Hour, Some(before)), whole);
        }
        assert!(told.told(Span::Hour, Some(i64::MAX)).rate_bps.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_renames_the_steps_and_moves_none() {
        let mut told = States::new();
        told.at(2.0, 125_000, 0);
        told.at_day(3.0, 125_000, 0, DAY + 3.0 - 7_200.0);
        told.at_day(4.0, 125_000, 0, DAY + 4.0 - 7_199.2);
        let answer = told.told(Span::Hour, None);
        near(&answer.rate_bps, &[1e6; 3]);
        assert_eq!(answer.start, DAY as i64 + 1 - 7_200);
    }

    #[test]
    fn a_class_is_unknown_before_it_came_and_forgotten_when_it_went() {
        let mut told = States::new();
        let last = told.report.links[0].classes.pop().unwrap();
        let name = last.terms.name.to_string();
        for second in 2..=4 {
            told.at(second.into(), 125_000, 0);
        }
        assert!(told.history.told("up", &name, Span::Hour, None).is_none());
        told.report.links[0].classes.push(last);
        told.at(5.0, 125_000, 0);
        told.at(6.0, 125_000, 0);
        let answer = told.history.told("up", &name, Span::Hour, None).unwrap();
        let known: Vec<bool> = answer.rate_bps.iter().map(Option::is_some).collect();
        assert_eq!(known, [false, false, false, false, true]);
        // The others are what they were.
        near(&told.told(Span::Hour, None).rate_bps, &[1e6; 5]);
        told.report.links[0].classes.pop();
        told.at(7.0, 125_000, 0);
        assert!(told.history.told("up", &name, Span::Hour, None).is_none());
        near(&told.told(Span::Hour, None).rate_bps, &[1e6; 6]);
    }

    #[test]
    fn a_class_that_is_counted_anew_sends_less_than_nothing_in_no_second() {
        let mut told = States::new();
        told.at(2.0, 125_000, 3);
        let class = &mut told.report.links[0].classes[0];
        (class.sent_bytes, class.dropped) = (0, 0);
        told.at(3.0, 0, 0);
        told.at(4.0, 125_000, 0);
        near(&told.told(Span::Hour, None).rate_bps, &[1e6, 0.0, 1e6]);
    }

    #[test]
    fn the_budget_holds_and_the_oldest_goes_first() {
        let mut told = States::new();
        told.history = History::within([14 * 400, 14 * 1_000]);
        told.at(1.0, 0, 0);
        for second in 1..=20_000_u32 {
            told.at(f64::from(second) + 1.0, 125_000, 1);
            for rows in [&told.history.seconds, &told.history.minutes] {
                let lengths: u32 = rows.lengths.iter().sum();
                assert_eq!(lengths as usize, rows.entries.len());
                assert!(rows.entries.capacity() <= rows.most_entries);
            }
        }
        let answer = told.told(Span::Hour, None);
        near(&answer.rate_bps, &[1e6; 400]);
        assert_eq!(answer.start, DAY as i64 + 1 + 20_000 - 400);
        assert_eq!(told.told(Span::Week, None).rate_bps.len(), 20_000 / 60);
    }

    #[test]
    fn a_row_that_is_larger_than_the_budget_is_not_kept_and_breaks_nothing() {
        let mut rows = Rows::new(HOUR, 14 * 2);
        let figures = Figures {
            rate_bps: 1e6,
            ..Figures::default()
        };
        let of = |classes: Range<u32>| row(classes.map(|class| (class, figures)));
        rows.push(&of(0..2));
        rows.push(&of(0..3));
        rows.push(&of(70_000..70_001));
        assert_eq!((rows.first, rows.end()), (1, 3));
        let told: Vec<_> = rows.of(70_000, 0).collect();
        assert_eq!(told, [NOTHING, figures.pack()]);
    }

    #[test]
    fn each_class_has_its_own_figures_whatever_its_number() {
        let mut rows = Rows::new(HOUR, 1 << 20);
        let classes = [70_000, 3, 65_535, 65_536, 0];
        let figures = |class: u32| Figures {
            queued: class as f32 + 1.0,
            ..Figures::default()
        };
        for _ in 0..3 {
            rows.push(&row(classes.iter().map(|&class| (class, figures(class)))));
        }
        for class in classes {
            let told: Vec<_> = rows.of(class, 1).collect();
            assert_eq!(told, [figures(class).pack(); 2], "{class}");
        }
        assert!(rows.of(4, 0).all(|packed| packed == NOTHING));
    }

    #[test]
    fn after_a_time_without_states_it_begins_anew() {
        let mut told = States::new();
        told.at(2.0, 125_000, 0);
        told.at(10_000.0, 125_000, 0);
        assert!(told.told(Span::Hour, None).rate_bps.is_empty());
        told.at(10_001.0, 125_000, 0);
        let answer = told.told(Span::Hour, None);
        near(&answer.rate_bps, &[1e6]);
        assert_eq!(answer.start, DAY as i64 + 10_000);
    }
}
