//! Per-class history: one sample a second for an hour and one a minute for a week, in memory that is bounded for any
//! number of classes.
//!
//! Each step has a [row](rows). When the rows exceed their budget, the oldest are evicted. Rows of longer steps reach
//! further back: a second that is too old for rows of seconds is answered with the figures of its minute, and one that
//! is too old for rows of minutes with those of its quarter of a day.
//!
//! Steps count from the first state by the site's own clock, which is monotonic. The time of day only labels them.

mod rows;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fairlane_config::class_report::ClassReport;
use fairlane_daemon::{LinkReport, Report};
use serde::Serialize;

use crate::stream::States;
use rows::{Figures, Rows, Sum, find, row};

/// Lengths of the steps that have rows, in seconds.
const STEPS: [u64; 3] = [1, 60, 6 * 3_600];
/// Maximum number of rows of each length: an hour, a week, and a week.
const MOST: [u64; 3] = [3_600, 7 * 24 * 60, 7 * 4];
/// Maximum distance of a state from the end of a step, in seconds, at which the state still ends that step. States
/// arrive about one second apart and drift against the steps.
const SLACK: f64 = 0.75;
/// Shortest interval over which a rate is computed, in seconds: an extra state follows each change.
const SHORTEST: f64 = 0.25;
/// Deviation of the time of day from the site's clock, in seconds, at which the steps are relabelled.
const CLOCK_STEP: f64 = 2.0;

/// Returns the memory budget of each kind of rows, in bytes. It shrinks as the number of classes grows, because the
/// rest of the process grows with it. If all classes send, 10,000 classes get half a minute, an hour and a week; 100
/// classes get an hour, a week and a week.
fn budgets(classes: usize) -> [usize; 3] {
    const LONG: usize = 2 << 20;
    const FEW: usize = 2_000;
    let taken = classes.saturating_sub(FEW) * (2 << 10);
    let rest = (22_usize << 20).saturating_sub(taken).max(6 << 20);
    [rest / 3, rest - rest / 3, LONG]
}

/// The steps that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The last hour, by the second.
    Hour,
    /// The last week, by the minute.
    Week,
}

/// The history of a class, one value per step in each series; null if unknown.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct HistorySteps {
    /// Length of a step in seconds.
    step_s: u64,
    /// Start of the first step, in seconds since 1970.
    start: i64,
    /// Time from which each step has figures of its own; earlier steps repeat those of the longer step that contains
    /// them.
    exact_from: i64,
    /// Mean transmit rates in bit/s.
    rate_bps: Vec<Option<f32>>,
    /// Queue length in packets: in a long step, the maximum.
    queued_packets: Vec<Option<f32>>,
    /// 99th percentile of the delay; the largest if several states fall into the step. Null if no packet was sent.
    p99_us: Vec<Option<f32>>,
    /// Maximum delay.
    max_us: Vec<Option<f32>>,
    /// Dropped packets, for any reason.
    drops: Vec<Option<f32>>,
}

/// A class of the current configuration.
#[derive(Debug)]
struct Class {
    name: Arc<str>,
    /// The number that identifies it in rows.
    number: u32,
    /// The first second for which it has data.
    born: u64,
    /// Counters at the end of the last second.
    sent_bytes: u64,
    drops: u64,
    /// Figures of the current second, without counters.
    now: Figures,
    /// Sums of the current longer steps.
    sums: [Sum; STEPS.len() - 1],
}

impl Class {
    fn new(report: &ClassReport, number: u32, born: u64) -> Class {
        Class {
            name: Arc::clone(&report.terms.name),
            number,
            born,
            sent_bytes: report.sent_bytes,
            drops: report.drops.total(),
            now: Figures::default(),
            sums: Default::default(),
        }
    }

    /// Records a state reported within a second.
    fn note(&mut self, report: &ClassReport) {
        let delay = report.recent.and_then(|recent| recent.delay_us);
        let delay = delay.unwrap_or_default();
        self.now.queued = report.queued_packets as f32;
        self.now.p99_us = self.now.p99_us.max(delay.p99 as f32);
        self.now.max_us = self.now.max_us.max(delay.max as f32);
    }

    /// Ends the seconds that this state completes and returns the figures of each of them.
    fn end(&mut self, report: &ClassReport, seconds: f64, steps: u64) -> Figures {
        let bytes = report.sent_bytes.saturating_sub(self.sent_bytes);
        let drops = report.drops.total();
        let dropped = drops.saturating_sub(self.drops);
        (self.sent_bytes, self.drops) = (report.sent_bytes, drops);
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

/// The history of all classes.
#[derive(Debug)]
struct History {
    budgets: fn(usize) -> [usize; 3],
    links: Vec<Link>,
    /// The number of the next new class.
    next: u32,
    /// Time of the first state, in seconds of the site's clock.
    began: Option<f64>,
    /// End of the last second, in seconds since `began`, and the number of completed seconds.
    ended: f64,
    seconds: u64,
    /// The time of day at `began`.
    epoch: i64,
    /// Rows for each length in [`STEPS`].
    rows: [Rows; 3],
}

impl Default for History {
    fn default() -> History {
        History::within(budgets)
    }
}

impl History {
    /// Returns an empty history. `budgets` maps the number of classes to the bytes allowed for each kind of step; each
    /// class takes some hundred bytes more.
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

    /// Records a state, with the time of day in seconds since 1970. O(classes), and as much again for each second
    /// without a state.
    fn note(&mut self, report: &Report, day: f64) {
        let now = report.seconds - *self.began.get_or_insert(report.seconds);
        let steps = self.steps_to(now);
        if now < self.ended || steps > MOST[0] {
            // The gap is longer than the history, so nothing from before it would be shown.
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

    /// Returns how many steps end with a state at this time.
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

    /// Matches the known classes with those of a state and records its figures. Removed classes are forgotten; new ones
    /// are known from step `from` on.
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

    /// Returns the classes of a link whose classes or their order changed; they are matched by name.
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
            // Numbers wrap after 2^32 classes, when no row holds the former class of a number any more.
            self.next = self.next.wrapping_add(1);
            Class::new(report, number, from)
        });
        all.collect()
    }

    /// Ends `steps` seconds with a state.
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

    /// Returns the history of a class from `since`, or from its start; `None` if there is no such class. O(steps), and
    /// [a search](find) in the row of each.
    fn told(
        &self,
        link: &str,
        class: &str,
        span: Span,
        since: Option<i64>,
    ) -> Option<HistorySteps> {
        let link = self.links.iter().find(|known| &*known.name == link)?;
        let class = (link.classes.iter()).find(|known| &*known.name == class)?;
        let kind = span as usize;
        let (step, rows) = (STEPS[kind], &self.rows[kind]);
        // The oldest step covered by rows of any length.
        let kept = self.rows[kind..].iter().zip(&STEPS[kind..]);
        let known = kept.map(|(rows, step)| rows.first() * step).min()?;
        let oldest = rows.end().saturating_sub(MOST[kind]);
        let oldest = oldest.max(known.div_ceil(step));
        // The first step that begins at `since` or later.
        let first = since.map_or(0, |since| since.saturating_sub(self.epoch).max(0));
        let first = (first as u64).div_ceil(step).clamp(oldest, rows.end());
        let begins = |at: u64| self.epoch + (at * step) as i64;
        let mut told = HistorySteps {
            start: begins(first),
            exact_from: begins(first.max(rows.first())),
            ..HistorySteps::nothing(span)
        };
        for at in first..rows.end() {
            let is_known = (at + 1) * step > class.born;
            told.push(is_known.then(|| self.figures(class, kind, at)));
        }
        Some(told)
    }

    /// Returns the figures of a class in a step, from the rows of the shortest length that still covers it.
    fn figures(&self, class: &Class, kind: usize, at: u64) -> Figures {
        for (longer, step) in STEPS.into_iter().enumerate().skip(kind) {
            let rows = &self.rows[longer];
            let within = at * STEPS[kind] / step;
            if let Some(row) = rows.get(within) {
                let parts = step / STEPS[kind];
                return find(row, class.number).part_of(parts as f32);
            }
            // The step is still in progress.
            if let (true, Some(before)) = (within == rows.end(), longer.checked_sub(1)) {
                let sum = &class.sums[before];
                let parts = sum.seconds as f32 / STEPS[kind] as f32;
                return sum.figures().part_of(parts);
            }
        }
        Figures::default()
    }
}

impl HistorySteps {
    /// Returns a history without any step.
    pub(crate) fn nothing(span: Span) -> HistorySteps {
        HistorySteps {
            step_s: STEPS[span as usize],
            ..HistorySteps::default()
        }
    }

    fn push(&mut self, figures: Option<Figures>) {
        // A delay of zero means that no packet was sent.
        let delay = |us: f32| (us > 0.0).then_some(us);
        self.rate_bps.push(figures.map(|it| it.rate_bps));
        self.queued_packets.push(figures.map(|it| it.queued));
        self.p99_us.push(figures.and_then(|it| delay(it.p99_us)));
        self.max_us.push(figures.and_then(|it| delay(it.max_us)));
        self.drops.push(figures.map(|it| it.drops));
    }
}

/// A history that one task records while others query it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedHistory(Arc<Mutex<History>>);

impl SharedHistory {
    /// Records all states until the stream ends.
    pub(crate) async fn follow(self, mut states: States) {
        while states.changed().await.is_ok() {
            let state = Arc::clone(&states.borrow_and_update());
            let day = SystemTime::now().duration_since(UNIX_EPOCH);
            let day = day.unwrap_or_default().as_secs_f64();
            let mut history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            history.note(&state.report, day);
        }
    }

    /// Returns the history of a class, as [`History::told`] does.
    pub(crate) fn told(
        &self,
        link: &str,
        class: &str,
        span: Span,
        since: Option<i64>,
    ) -> Option<HistorySteps> {
        let history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        history.told(link, class, span, since)
    }
}

#[cfg(test)]
mod tests {
    use fairlane_config::class_report::{DelayReport, Drops, Recent};

    use super::*;

    const HOUR: u64 = MOST[0];
    const WEEK: u64 = MOST[1];
    /// The time of day when the site starts.
    const DAY: f64 = 1.7e9;

    /// A sequence of states of a site. Each adds the given bytes and drops to the first class.
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
            class.drops.full += drops;
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

        fn told(&self, span: Span, since: Option<i64>) -> HistorySteps {
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
    fn history_since_a_time_has_only_new_steps() {
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
    fn history_covers_only_the_lifetime_of_a_class() {
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
        // The other classes keep their history.
        near(&told.told(Span::Hour, None).rate_bps, &[1e6; 5]);
        with(&mut told, &|all| drop(all.pop()));
        told.at(7.0, 125_000, 0);
        assert!(told.history.told("up", &name, Span::Hour, None).is_none());
        near(&told.told(Span::Hour, None).rate_bps, &[1e6; 6]);
    }

    #[test]
    fn history_has_no_negative_rate_after_a_counter_reset() {
        let mut told = States::new();
        told.at(2.0, 125_000, 3);
        let class = told.report.links[0].classes.make_mut(0);
        (class.sent_bytes, class.drops) = (0, Drops::default());
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
        // Rows of every length contain the class, back to the oldest row.
        let week = told.told(Span::Week, None);
        let oldest = kept[2].0 * STEPS[2];
        assert_eq!(week.start, DAY as i64 + 1 + oldest as i64);
        assert_eq!(week.rate_bps.len() as u64, 3_333 - oldest / STEPS[1]);
        near(&week.rate_bps, &vec![1e6; week.rate_bps.len()]);
        near(&week.drops, &vec![60.0; week.drops.len()]);
    }

    #[test]
    fn history_falls_back_to_minutes_and_quarter_days() {
        let mut told = States::new();
        // Budgets for a few hundred seconds and a few tens of minutes.
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
                // The quarter of a day is still in progress.
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
    fn history_restarts_after_a_gap() {
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
