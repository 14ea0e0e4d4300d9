//! `fairlane-lab sim`: what each class sent over time, drawn.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use fairlane_cli::sim::{self, Rates};

use crate::plot::{Axis, Chart, Curve};

/// Options of `fairlane-lab sim`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    #[command(flatten)]
    sim: sim::Options,
    /// Draw the classes' rates over time: an SVG, or a PNG if FILE ends in .png
    #[arg(long, value_name = "FILE")]
    plot: PathBuf,
}

/// Simulates, draws and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    check(&options.plot)?;
    sim::run_and_draw(&options.sim, &|rates| draw(rates, &options.plot))
}

fn check(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    ensure!(
        matches!(extension, Some("svg" | "png")),
        "--plot {}: the name ends in .svg or .png",
        path.display()
    );
    if !folder.is_dir() {
        bail!("--plot {}: there is no folder of that name", path.display());
    }
    Ok(())
}

fn draw(rates: Rates, path: &Path) -> Result<()> {
    let curves = rates.classes.into_iter().enumerate();
    let chart = Chart {
        x: Axis::linear("seconds"),
        y: Axis::linear("Mbit/s"),
        curves: curves
            .map(|(place, (name, points))| Curve::ours(place, &name, points))
            .collect(),
    };
    let plots = chart.draw("What each class sent", &rates.link)?;
    let written = match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => fs::write(path, plots.png),
        _ => fs::write(path, plots.svg),
    };
    written.with_context(|| format!("writing {}", path.display()))
}
