//! What became of each class, second by second for an hour and minute by minute for a week, in memory
//! that is bounded whatever the number of classes.
//!
//! Each step has a [row](rows). Where rows would be larger than their budget, the oldest go. So there are rows
//! of longer steps beside them, which reach further back: of a time that is too long ago for rows of seconds,
//! each second is told as its minute was, and of one too long ago for minutes as its quarter of a day was.
//!
//! Steps count from the first state, by the site's own clock, which nobody sets. The time of day only
//! names them.

mod rows;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fairlane_config::class_report::ClassReport;
use fairlane_site::{LinkReport, Report};
use serde::Serialize;

use crate::stream::States;
use rows::{Figures, Rows, Sum, find, row};

/// Seconds of the steps that have rows.
const STEPS: [u64; 3] = [1, 60, 6 * 3_600];
/// Rows of each at most: an hour, a week, and a week.
const MOST: [u64; 3] = [3_600, 7 * 24 * 60, 7 * 4];
/// How far from the end of a step a state may be told, in seconds, and count as of its end. States
/// come about a second after each other, and drift against the steps.
const SLACK: f64 = 0.75;
/// The least time, in seconds, over which a rate is worth telling: states come sooner after a change.
const SHORTEST: f64 = 0.25;
/// By how many seconds the time of day may differ from what it was by the site's clock until steps
/// have other names.
const CLOCK_STEP: f64 = 2.0;

/// Bytes of the rows of each, beside so many classes: the more there are, the larger is the rest of the process. With
/// 10,000 classes that all send it is half a minute, an hour and a week, with 100 an hour, a week and more.
fn budgets(classes: usize) -> [usize; 3] {
    const LONG: usize = 2 << 20;
    const FEW: usize = 2_000;
    let taken = classes.saturating_sub(FEW) * (2 << 10);
    let rest = (22_usize << 20).saturating_sub(taken).max(6 << 20);
    [rest / 3, rest - rest / 3, LONG]
}

/// Which steps are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The last hour, by the second.
    Hour,
    /// The last week, by the minute.
    Week,
}

/// What became of a class in a step, a figure of each kind; null where nothing is known.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Told {
    /// Seconds of a step.
    step_s: u64,
    /// When the first of the steps began, in seconds since 1970.
    start: i64,
    /// Since when each has figures of its own; before, those of a longer step that it is in.
    exact_from: i64,
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

/// A class that there is.
#[derive(Debug)]
struct Class {
    name: Arc<str>,
    /// What it has in rows.
    number: u32,
    /// The first second that is known of it.
    born: u64,
    /// What was counted when the last second ended.
    sent_bytes: u64,
    drops: u64,
    /// Of the second that goes on; without what is counted.
    now: Figures,
    /// Of the longer steps that go on.
    sums: [Sum; STEPS.len() - 1],
}

fn drops(report: &ClassReport) -> u64 {
    report.dropped + report.discarded + report.early
}

impl Class {
    fn new(report: &ClassReport, number: u32, born: u64) -> Class {
        Class {
            name: Arc::clone(&report.terms.name),
            number,
            born,
            sent_bytes: report.sent_bytes,
            drops: drops(report),
            now: Figures::default(),
            sums: Default::default(),
        }
    }

    /// A state that was told within a second.
    fn note(&mut self, report: &ClassReport) {
        let delay = report.recent.and_then(|recent| recent.delay_us);
        let delay = delay.unwrap_or_default();
        self.now.queued = report.queued_packets as f32;
        self.now.p99_us = self.now.p99_us.max(delay.p99 as f32);
        self.now.max_us = self.now.max_us.max(delay.max as f32);
    }

    /// What is true of each of the seconds that end with this state.
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
    budgets: fn(usize) -> [usize; 3],
    links: Vec<Link>,
    /// The number that the next class has.
    next: u32,
    /// When the first state was told, in the site's seconds.
    began: Option<f64>,
    /// When the last second ended, in seconds since then, and how many there were.
    ended: f64,
    seconds: u64,
    /// The time of day then.
    epoch: i64,
    /// Of the steps in [`STEPS`].
    rows: [Rows; 3],
}

impl Default for History {
    fn default() -> History {
        History::within(budgets)
    }
}

impl History {
    /// In so many bytes of each kind of step, by the number of classes, beside some hundred for each class.
    fn within(budgets: fn(usize) -> [usize; 3]) -> History {
        History {
            budgets,
            links: Vec::new(),
            next: 0,
            began: None,
            ended: 0.0,
            seconds: 0,
            epoch: 0,
            rows: MOST.map(Rows::new),
        }
    }

    /// A state, and the time of day in seconds since 1970. O(classes), and as much for each second that
    /// went by without a state.
    fn note(&mut self, report: &Report, day: f64) {
        let now = report.seconds - *self.began.get_or_insert(report.seconds);
        let steps = self.steps_to(now);
        if now < self.ended || steps > MOST[0] {
            // Nothing is known of so long a time, and what was before it is over.
            *self = History::within(self.budgets);
            return self.note(report, day);
        }
        if (day - now - self.epoch as f64).abs() >= CLOCK_STEP {
            self.epoch = (day - now).round() as i64;
        }
        self.follow(report, self.seconds + steps);
        if steps > 0 {
            self.end(report, now, steps);
        }
    }

    /// How many steps end with a state of this time.
    fn steps_to(&self, now: f64) -> u64 {
        let next = self.seconds + 1;
        if now - self.ended < SHORTEST {
            0
        } else if (now - next as f64).abs() < SLACK {
            1
        } else {
            (now.round() as u64).saturating_sub(self.seconds)
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
                    .all(|(class, report)| class.name == report.terms.name);
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
            .map(|class| (Arc::clone(&class.name), class))
            .collect();
        let reports = link.classes.iter();
        let all = reports.map(|report| {
            if let Some(class) = known.remove(&report.terms.name) {
                return class;
            }
            let number = self.next;
            // Who had a number before, four thousand million classes ago, is in no row any more.
            self.next = self.next.wrapping_add(1);
            Class::new(report, number, from)
        });
        all.collect()
    }

    /// Seconds end with a state.
    fn end(&mut self, report: &Report, now: f64, steps: u64) {
        let since = now - self.ended;
        let mut all = Vec::new();
        for (link, report) in self.links.iter_mut().zip(&report.links) {
            for (class, report) in link.classes.iter_mut().zip(&report.classes) {
                all.push((class.number, class.end(report, since, steps)));
            }
        }
        let most_bytes = (self.budgets)(all.len());
        let second = row(all.iter().copied());
        for _ in 0..steps {
            self.rows[0].push(second.clone(), most_bytes[0]);
            self.seconds += 1;
            let classes = self.links.iter_mut().flat_map(|link| &mut link.classes);
            for (class, &(_, figures)) in classes.zip(&all) {
                class.sums.iter_mut().for_each(|sum| sum.add(figures));
            }
            for kind in 1..STEPS.len() {
                if self.seconds.is_multiple_of(STEPS[kind]) {
                    let classes = self.links.iter_mut().flat_map(|link| &mut link.classes);
                    let ended = classes.map(|class| {
                        let sum = std::mem::take(&mut class.sums[kind - 1]);
                        (class.number, sum.figures())
                    });
                    self.rows[kind].push(row(ended), most_bytes[kind]);
                }
            }
        }
        self.ended = now;
    }

    /// What became of a class, since a time of day or as long as it is known; `None` where there is no
    /// such class. O(steps, and what [finding](find) it in their rows takes).
    fn told(&self, link: &str, class: &str, span: Span, since: Option<i64>) -> Option<Told> {
        let link = self.links.iter().find(|known| &*known.name == link)?;
        let class = (link.classes.iter()).find(|known| &*known.name == class)?;
        let kind = span as usize;
        let (step, rows) = (STEPS[kind], &self.rows[kind]);
        // As far back as there are rows, of whatever steps.
        let kept = self.rows[kind..].iter().zip(&STEPS[kind..]);
        let known = kept.map(|(rows, step)| rows.first() * step).min()?;
        let oldest = rows.end().saturating_sub(MOST[kind]);
        let oldest = oldest.max(known.div_ceil(step));
        // The first that begins then, or later.
        let first = since.map_or(0, |since| since.saturating_sub(self.epoch).max(0));
        let first = (first as u64).div_ceil(step).clamp(oldest, rows.end());
        let begins = |at: u64| self.epoch + (at * step) as i64;
        let mut told = Told {
            start: begins(first),
            exact_from: begins(first.max(rows.first())),
            ..Told::nothing(span)
        };
        for at in first..rows.end() {
            let is_known = (at + 1) * step > class.born;
            told.push(is_known.then(|| self.figures(class, kind, at)));
        }
        Some(told)
    }

    /// What is known of a class in a step of a kind: by the shortest steps that there are rows of.
    fn figures(&self, class: &Class, kind: usize, at: u64) -> Figures {
        for (longer, step) in STEPS.into_iter().enumerate().skip(kind) {
            let rows = &self.rows[longer];
            let within = at * STEPS[kind] / step;
            if let Some(row) = rows.get(within) {
                let parts = step / STEPS[kind];
                return find(row, class.number).part_of(parts as f32);
            }
            // It goes on.
            if let (true, Some(before)) = (within == rows.end(), longer.checked_sub(1)) {
                let sum = &class.sums[before];
                let parts = sum.seconds as f32 / STEPS[kind] as f32;
                return sum.figures().part_of(parts);
            }
        }
        Figures::default()
    }
}

impl Told {
    /// Of what is not known yet.
    pub(crate) fn nothing(span: Span) -> Told {
        Told {
            step_s: STEPS[span as usize],
            ..Told::default()
        }
    }

    fn push(&mut self, figures: Option<Figures>) {
        // No packet takes no time.
        let delay = |us: f32| (us > 0.0).then_some(us);
        self.rate_bps.push(figures.map(|it| it.rate_bps));
        self.queued_packets.push(figures.map(|it| it.queued));
        self.p99_us.push(figures.and_then(|it| delay(it.p99_us)));
        self.max_us.push(figures.and_then(|it| delay(it.max_us)));
        self.drops.push(figures.map(|it| it.drops));
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
    use fairlane_config::class_report::{DelayReport, Recent};

    use super::*;

    const HOUR: u64 = MOST[0];
    const WEEK: u64 = MOST[1];
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
            let class = self.report.links[0].classes.make_mut(0);
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
            let class = self.report.links[0].classes.make_mut(0);
            class.recent = Some(Recent {
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
            assert!(off <= expected / 120.0, "{figures:?}: {expected}");
        }
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
        let seconds = WEEK * STEPS[1] + 2 * HOUR;
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
        let with = |told: &mut States, change: &dyn Fn(&mut Vec<ClassReport>)| {
            let classes = &mut told.report.links[0].classes;
            let mut all = classes.to_vec();
            change(&mut all);
            *classes = all.into();
        };
        let last = told.report.links[0].classes.iter().next_back().cloned();
        let last = last.unwrap();
        let name = last.terms.name.to_string();
        with(&mut told, &|all| drop(all.pop()));
        for second in 2..=4 {
            told.at(second.into(), 125_000, 0);
        }
        assert!(told.history.told("up", &name, Span::Hour, None).is_none());
        with(&mut told, &|all| all.push(last.clone()));
        told.at(5.0, 125_000, 0);
        told.at(6.0, 125_000, 0);
        let answer = told.history.told("up", &name, Span::Hour, None).unwrap();
        let known: Vec<bool> = answer.rate_bps.iter().map(Option::is_some).collect();
        assert_eq!(known, [false, false, false, false, true]);
        // The others are what they were.
        near(&told.told(Span::Hour, None).rate_bps, &[1e6; 5]);
        with(&mut told, &|all| drop(all.pop()));
        told.at(7.0, 125_000, 0);
        assert!(told.history.told("up", &name, Span::Hour, None).is_none());
        near(&told.told(Span::Hour, None).rate_bps, &[1e6; 6]);
    }

    #[test]
    fn a_class_that_is_counted_anew_sends_less_than_nothing_in_no_second() {
        let mut told = States::new();
        told.at(2.0, 125_000, 3);
        let class = told.report.links[0].classes.make_mut(0);
        (class.sent_bytes, class.dropped) = (0, 0);
        told.at(3.0, 0, 0);
        told.at(4.0, 125_000, 0);
        near(&told.told(Span::Hour, None).rate_bps, &[1e6, 0.0, 1e6]);
    }

    #[test]
    fn the_budget_holds_and_the_oldest_goes_first() {
        let mut told = States::new();
        told.history = History::within(|_| [20_000, 8_000, 300]);
        told.at(1.0, 0, 0);
        for second in 1..=200_000_u32 {
            told.at(f64::from(second) + 1.0, 125_000, 1);
            if second % 977 == 0 {
                let rows = told.history.rows.iter().zip([20_000, 8_000, 300]);
                rows.for_each(|(rows, most)| assert!(rows.bytes() <= most));
            }
        }
        let [seconds, minutes, long] = &told.history.rows;
        let kept = [seconds, minutes, long].map(|rows| (rows.first(), rows.end()));
        assert_eq!(kept.map(|(_, end)| end), [200_000, 3_333, 9]);
        assert!(
            kept.iter().all(|&(first, end)| 0 < first && first < end),
            "{kept:?}"
        );
        // A class is in a row of every kind since the oldest one of them.
        let week = told.told(Span::Week, None);
        let oldest = kept[2].0 * STEPS[2];
        assert_eq!(week.start, DAY as i64 + 1 + oldest as i64);
        assert_eq!(week.rate_bps.len() as u64, 3_333 - oldest / STEPS[1]);
        near(&week.rate_bps, &vec![1e6; week.rate_bps.len()]);
        near(&week.drops, &vec![60.0; week.drops.len()]);
    }

    #[test]
    fn what_is_too_long_ago_for_seconds_is_told_by_the_minute_and_then_by_the_quarter_of_a_day() {
        let mut told = States::new();
        // Some hundred seconds, and some ten minutes.
        told.history = History::within(|_| [6_000, 600, 6_000]);
        told.at(1.0, 0, 0);
        let minute = |second: u64| second / 60;
        let bytes = |second: u64| 125_000 * (1 + minute(second) % 2 + second % 2 * 2);
        let seconds = 3_000;
        for second in 0..seconds {
            told.delay((second % 60 == 7).then_some(500.0));
            told.at(
                (second + 2) as f64,
                bytes(second),
                u64::from(second % 60 == 9),
            );
        }
        let hour = told.told(Span::Hour, None);
        assert_eq!((hour.start, hour.rate_bps.len()), (DAY as i64 + 1, 3_000));
        let exact = (hour.exact_from - hour.start) as u64;
        assert!((60..600).contains(&(seconds - exact)), "{exact}");
        let by_minutes = told.history.rows[1].first() * 60;
        assert!((600..exact).contains(&by_minutes), "{by_minutes}");
        for second in 0..seconds {
            let mean = |second| 1e6 * (2.0 + (minute(second) % 2) as f32);
            let (rate, late, drops) = match second {
                _ if second >= exact => {
                    let late = (second % 60 == 7).then_some(500.0);
                    (
                        (bytes(second) * 8) as f32,
                        late,
                        f32::from(second % 60 == 9),
                    )
                }
                _ if second >= by_minutes => (mean(second), Some(500.0), 1.0 / 60.0),
                // The quarter of a day goes on.
                _ => (2.5e6, Some(500.0), 1.0 / 60.0),
            };
            let at = second as usize;
            near(&hour.rate_bps[at..=at], &[rate]);
            near(&hour.drops[at..=at], &[drops]);
            assert_eq!(hour.max_us[at].is_some(), late.is_some(), "{second}");
        }
        let since = told.told(Span::Hour, Some(hour.exact_from - 5));
        assert_eq!(since.rate_bps, hour.rate_bps[exact as usize - 5..]);
        assert_eq!(since.exact_from, hour.exact_from);
        let week = told.told(Span::Week, None);
        assert_eq!(week.rate_bps.len(), 50);
        near(&week.drops, &[1.0; 50]);
    }

    #[test]
    fn ten_thousand_busy_classes_have_an_hour_of_minutes_and_a_week_and_a_hundred_have_all() {
        let busy = Figures {
            rate_bps: 1e6,
            queued: 30.0,
            p99_us: 700.0,
            max_us: 900.0,
            ..Figures::default()
        };
        let kept = |classes: u32| {
            let row = row((0..classes).map(|class| (class, busy)));
            let mut rows = MOST.map(Rows::new);
            for (rows, most) in rows.iter_mut().zip(budgets(classes as usize)) {
                (0..20_000).for_each(|_| rows.push(row.clone(), most));
            }
            let steps = rows.map(|rows| rows.end() - rows.first());
            eprintln!("{classes} classes: {steps:?} steps of {STEPS:?} s");
            steps
        };
        assert_eq!(kept(100), MOST);
        assert!(kept(1_000)[0] >= 900);
        let [seconds, minutes, long] = kept(10_000);
        assert!(seconds >= 30 && minutes >= 60 && long == MOST[2]);
        let most: usize = budgets(10_000).iter().sum();
        assert!(most < 9_000_000, "{most} bytes");
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
