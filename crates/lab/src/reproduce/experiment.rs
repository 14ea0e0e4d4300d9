//! What an experiment is, and what comes of it.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::lab::Lab;
use crate::plot::Chart;

/// An experiment of a paper.
pub(super) trait Experiment: Sync {
    /// What is in its folder.
    fn files(&self) -> Files;

    /// How many measurements it takes, each as long as the scenario says.
    fn measurements(&self) -> Result<usize>;

    /// Does it.
    fn measure(&self, lab: &Lab) -> Result<Findings>;
}

/// `scenario.toml`: what all experiments have, and the parameters of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario<P = Value> {
    /// What is done, as a heading.
    pub title: String,
    /// Where the paper has it.
    pub paper: String,
    /// What the paper concludes.
    pub claim: String,
    /// Time of one measurement.
    pub seconds: f64,
    /// How often each measurement is made.
    pub rounds: usize,
    /// Of everything random.
    pub seed: u64,
    /// The experiment's own.
    pub parameters: P,
}

/// An experiment's folder, in `experiments/`.
#[derive(Clone, Copy)]
pub(super) struct Files {
    /// Its name, and the experiment's.
    pub name: &'static str,
    /// The text of `scenario.toml`.
    pub scenario: &'static str,
    /// The text of `paper.toml`.
    pub paper: &'static str,
}

/// The folder of this name.
macro_rules! files {
    (@ $name:literal, $file:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../experiments/",
            $name,
            "/",
            $file
        ))
    };
    ($name:literal) => {
        $crate::reproduce::experiment::Files {
            name: $name,
            scenario: files!(@ $name, "scenario.toml"),
            paper: files!(@ $name, "paper.toml"),
        }
    };
}
pub(super) use files;

impl Files {
    /// How the experiment is done.
    pub(super) fn scenario<P: DeserializeOwned>(self) -> Result<Scenario<P>> {
        self.read("scenario.toml", self.scenario)
    }

    /// What the paper found.
    pub(super) fn paper<T: DeserializeOwned>(self) -> Result<T> {
        self.read("paper.toml", self.paper)
    }

    fn read<T: DeserializeOwned>(self, file: &str, text: &str) -> Result<T> {
        toml::from_str(text).with_context(|| format!("experiments/{}/{file}", self.name))
    }
}

/// What an experiment found.
pub(super) struct Findings {
    /// Our figures, with units in their names.
    pub ours: Value,
    /// The paper's, as in `paper.toml`.
    pub papers: Value,
    /// Ours beside the paper's.
    pub table: Rows,
    /// The same as a plot.
    pub chart: Chart,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// What a reader should know beside the figures.
    pub notes: Vec<String>,
}

/// A table: names in the first column, numbers in the others.
pub(super) struct Rows {
    /// A heading for each column.
    pub header: Vec<String>,
    /// As many cells in each as there are headings.
    pub rows: Vec<Vec<String>>,
}

/// Whether the paper's claim holds on this machine.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Verdict {
    /// Whether what was measured meets the criterion.
    pub holds: bool,
    /// What was asked of the figures.
    pub criterion: String,
    /// What they are.
    pub found: String,
}

impl Verdict {
    /// The verdict in one line.
    pub(super) fn line(&self, claim: &str) -> String {
        let holds = if self.holds {
            "It holds"
        } else {
            "It does not hold"
        };
        let Verdict {
            found, criterion, ..
        } = self;
        format!("The claim: {claim}. {holds} here: {found} (asked: {criterion}).")
    }
}

/// The middle of `values`, or the mean of the middle two.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// `value` to three significant digits, without an exponent.
pub(super) fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let decimals = 2 - value.abs().log10().floor() as i32;
    format!("{value:.*}", decimals.clamp(0, 6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_of_what_was_measured() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn figures_have_three_digits_and_no_exponent() {
        for (value, shown) in [
            (12345.6, "12346"),
            (123.4, "123"),
            (9.87654, "9.88"),
            (0.0123456, "0.0123"),
            (-1.5, "-1.50"),
            (0.0, "0"),
        ] {
            assert_eq!(digits(value), shown);
        }
    }

    #[test]
    fn a_verdict_says_whether_what_and_why_in_one_line() {
        let verdict = |holds| Verdict {
            holds,
            criterion: "less than half".into(),
            found: "0.6 of it".into(),
        };
        let line = verdict(false).line("locks do not scale");
        assert!(line.contains("It does not hold here"), "{line}");
        assert!(line.contains("0.6 of it") && line.contains("less than half"));
        assert!(verdict(true).line("").contains("It holds here"));
    }
}
