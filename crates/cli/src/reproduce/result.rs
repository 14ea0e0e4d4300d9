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
pub struct ResultFile<'a> {
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
pub struct Outcome<'a> {
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
    pub fn json(&self) -> Result<Value> {
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
    pub fn method(&self) -> String {
        let mut method = format!(
            "{}; median of {} measurements of {} s",
            self.machine.line(),
            self.scenario.rounds,
            self.seconds
        );
        if !self.machine.optimised {
            method += "; BUILT WITHOUT OPTIMISATION: the program itself is slow";
        }
        if let Some(others) = self.others.filter(|others| *others > QUIET) {
            let percent = others * 100.0;
            let _ = write!(
                method,
                "; NOT QUIET: others had {percent:.0}% of all cores' time"
            );
        }
        method
    }

    /// `result.md`.
    pub fn page(&self) -> String {
        let scenario = self.scenario;
        let mut page = format!(
            "# {}: {}\n\n{}\n\n{}\n\n",
            self.name,
            scenario.title,
            scenario.paper,
            self.findings.verdict.line(&scenario.claim)
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
