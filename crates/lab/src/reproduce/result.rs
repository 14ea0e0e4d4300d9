//! What an experiment writes: figures for programs, a page for readers. It has no date in
//! it: a change of the files is a change of what was found.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::experiment::{Findings, Scenario, Verdict};
use super::machine::Machine;

/// The most that other programs may have of all cores' time without a remark.
const QUIET: f64 = 0.05;

/// `result.json`.
#[derive(Serialize)]
pub(super) struct ResultFile<'a> {
    name: &'a str,
    title: &'a str,
    paper: &'a str,
    claim: &'a str,
    verdict: &'a Verdict,
    machine: &'a Machine,
    others_share: Option<f64>,
    seconds: f64,
    rounds: usize,
    seed: u64,
    parameters: &'a Value,
    figures: Value,
    notes: &'a [String],
}

/// All that is known at the end of an experiment.
pub(super) struct Outcome<'a> {
    pub name: &'a str,
    pub scenario: &'a Scenario,
    /// Time of one measurement, where it was not the scenario's.
    pub seconds: f64,
    pub machine: &'a Machine,
    /// The part of all cores' time that other programs had meanwhile.
    pub others: Option<f64>,
    pub findings: &'a Findings,
}

impl Outcome<'_> {
    /// For `result.json`, and for `--json`.
    pub(super) fn json(&self) -> Result<Value> {
        let Findings {
            ours,
            papers,
            verdict,
            notes,
            ..
        } = self.findings;
        Ok(serde_json::to_value(ResultFile {
            name: self.name,
            title: &self.scenario.title,
            paper: &self.scenario.paper,
            claim: &self.scenario.claim,
            verdict,
            machine: self.machine,
            others_share: self.others,
            seconds: self.seconds,
            rounds: self.scenario.rounds,
            seed: self.scenario.seed,
            parameters: &self.scenario.parameters,
            figures: json!({ "ours": ours, "paper": papers }),
            notes,
        })?)
    }

    /// How the figures came about, in one line, and what speaks against them.
    pub(super) fn method(&self) -> String {
        let mut method = format!(
            "{}; median of {} measurements of {} s",
            self.machine.line(),
            self.scenario.rounds,
            self.seconds
        );
        if !self.machine.optimised {
            method += "; BUILT WITHOUT OPTIMISATION: the program itself is slow";
        }
        if let Some(others) = self.others {
            let percent = others * 100.0;
            let _ = write!(method, "; others had {percent:.0}% of all cores' time");
        }
        method
    }

    /// The verdict in one line, and how far to trust it.
    pub(super) fn verdict(&self) -> String {
        let mut line = self.findings.verdict.line(&self.scenario.claim);
        if self.others.is_some_and(|others| others > QUIET) {
            line += " The machine was not quiet: measure again before you rely on this.";
        }
        line
    }

    /// `result.md`.
    pub(super) fn page(&self) -> String {
        let scenario = self.scenario;
        let mut page = format!(
            "# {}: {}\n\n{}\n\n{}\n\n",
            self.name,
            scenario.title,
            scenario.paper,
            self.verdict()
        );
        let table = &self.findings.table;
        let cells = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        page += &cells(&table.header);
        page += "| --- |";
        page += &" ---: |".repeat(table.header.len() - 1);
        page += "\n";
        for row in &table.rows {
            page += &cells(row);
        }
        page += "\n![ours beside the paper's](plot.svg)\n";
        for text in
            std::iter::once(&format!("Measured on {}.", self.method())).chain(&self.findings.notes)
        {
            let _ = write!(page, "\n{text}\n");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::Rows;
    use super::*;
    use crate::plot::{Axis, Chart};

    #[test]
    fn a_verdict_from_a_busy_machine_says_so() {
        let findings = Findings {
            ours: json!([{ "users": 1 }]),
            papers: json!({}),
            table: Rows {
                header: vec!["users".into(), "Mops/s".into()],
                rows: vec![vec!["1".into(), "10.0".into()]],
            },
            chart: Chart {
                x: Axis::linear("users"),
                y: Axis::linear("Mops/s"),
                curves: vec![],
            },
            verdict: Verdict {
                holds: true,
                criterion: "less".into(),
                found: "half".into(),
            },
            notes: vec!["A note.".into()],
        };
        let scenario = Scenario {
            title: "A lock".into(),
            paper: "Table 1".into(),
            claim: "locks do not scale".into(),
            seconds: 0.2,
            rounds: 5,
            seed: 1,
            parameters: json!({ "users": [1] }),
        };
        let machine = Machine::this().unwrap();
        let page = |others| {
            let outcome = Outcome {
                name: "lock",
                scenario: &scenario,
                seconds: 0.1,
                machine: &machine,
                others,
                findings: &findings,
            };
            assert_eq!(outcome.json().unwrap()["others_share"], json!(others));
            outcome.page()
        };
        let busy = page(Some(0.5));
        assert!(busy.contains("It holds here: half (asked: less). The machine was not quiet"));
        assert!(busy.contains("others had 50%") && busy.contains("of 0.1 s"));
        for quiet in [page(Some(0.01)), page(None)] {
            assert!(!quiet.contains("not quiet"), "{quiet}");
            assert!(quiet.contains("| users | Mops/s |\n| --- | ---: |\n| 1 | 10.0 |\n"));
            assert!(quiet.contains("\nA note.\n"));
        }
    }
}
