//! Site files: guarantees, and scenarios.

use std::path::PathBuf;

use anyhow::Context;
use fairlane_config::SiteError;
use fairlane_config::link_report::SiteReport;
use fairlane_daemon::pipeline_terms;
use fairlane_traffic::scenario::{Run, Scenario};
use pyo3::prelude::*;

use crate::column::{Given, Whole};
use crate::watch::Watch;
use crate::wrong::{Wrong, ended, exception, no_site};

/// A site, from its file and the interfaces of this machine.
#[pyclass(frozen, subclass, module = "fairlane")]
pub(crate) struct Site {
    site: fairlane_config::Site,
    path: PathBuf,
}

#[pymethods]
impl Site {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Site> {
        // Reading a pipe may block.
        let site = py.detach(|| fairlane_daemon::read(&path));
        let site = site.map_err(|error| no_site(py, error))?;
        Ok(Site { site, path })
    }

    /// Returns the output of `fairlane check --json`.
    fn _check(&self, py: Python<'_>) -> PyResult<String> {
        let pipeline = |link: &_| pipeline_terms(&self.site, link);
        json(py, &SiteReport::new(&self.site, pipeline))
    }

    /// Returns warnings about settings that are probably mistakes.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.site.warnings.iter().map(ToString::to_string).collect()
    }

    /// Returns the names of its links.
    #[getter]
    fn links(&self) -> Vec<String> {
        self.site
            .links
            .iter()
            .map(|link| link.name.clone())
            .collect()
    }

    fn __repr__(&self) -> String {
        format!("Site({:?})", self.path.display().to_string())
    }
}

fn json(py: Python<'_>, what: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(what)
        .map_err(|error| exception(py, "FairlaneError", (error.to_string(),)))
}

/// The reason why a scenario has no result.
enum Failed {
    Unsound(SiteError),
    Ended(anyhow::Error),
}

/// Name of a class, seconds, and Mbit/s.
type Rates = Vec<(String, Vec<(f64, f64)>)>;

/// Returns the output of `fairlane sim --json` for a scenario, and the rates of its classes over time if `drawn`.
#[pyfunction]
pub(crate) fn scenario(
    py: Python<'_>,
    path: PathBuf,
    link: Option<String>,
    seconds: Option<Given<f64>>,
    seed: Option<Whole>,
    drawn: bool,
) -> PyResult<(String, Option<Rates>)> {
    let seconds = seconds.as_ref();
    let seconds = seconds.map(|given| given.value("seconds", "a number of seconds").copied());
    let seconds = seconds.transpose()?;
    if let Some(given) = seconds.filter(|given| !(*given > 0.0 && *given <= 1e6)) {
        let sentence = format!("seconds is {given}: it is above 0 and at most 1e6");
        return Err(Wrong::new("seconds", sentence).into());
    }
    let seed = seed.map(|given| given.large("seed")).transpose()?;
    let done = py.detach(|| {
        let scenario = Scenario::read(&path, link.as_deref()).map_err(Failed::Unsound)?;
        let seed = seed.unwrap_or(scenario.seed);
        let seconds = seconds.unwrap_or(scenario.seconds);
        let run = Run::new(&scenario, seed, seconds, drawn);
        let mut run = run.map_err(Failed::Ended)?;
        let (mut watch, mut raised) = (Watch::new(), None);
        run.run_while(
            |_| true,
            || {
                raised = raised.take().or(watch.often().err());
                raised.is_none()
            },
        );
        if let Some(raised) = raised {
            return Err(Failed::Ended(raised.into()));
        }
        let outcome = serde_json::to_string(&run.outcome(path.display().to_string()));
        let outcome = outcome.context("the outcome").map_err(Failed::Ended)?;
        Ok((outcome, run.rates().map(|rates| rates.classes)))
    });
    done.map_err(|failed| match failed {
        Failed::Unsound(error) => no_site(py, error),
        Failed::Ended(error) => ended(py, error),
    })
}
