//! Plots, as SVG for a page and PNG for everything else. Neither needs a font of the
//! system's.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use kuva::backend::svg::SvgBackend;
use kuva::plot::{LegendPosition, LinePlot, ScatterPlot};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;

/// Told apart by colour-blind readers too (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

const WIDTH: f64 = 1040.0;
const HEIGHT: f64 = 480.0;

/// Pixels of the PNG for one of the SVG's.
const SHARPNESS: f32 = 1.5;

/// One axis.
pub(crate) struct Axis {
    label: &'static str,
    log: bool,
}

impl Axis {
    /// An axis whose ticks multiply.
    pub(crate) fn log(label: &'static str) -> Axis {
        Axis { label, log: true }
    }

    /// An axis whose ticks add up.
    pub(crate) fn linear(label: &'static str) -> Axis {
        Axis { label, log: false }
    }
}

/// A line through points.
pub(crate) struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
    colour: usize,
    ours: bool,
}

impl Curve {
    /// What was measured here: solid, with a mark at each point.
    pub(crate) fn ours(subject: usize, name: &str, points: Vec<(f64, f64)>) -> Curve {
        Curve {
            name: name.to_owned(),
            points,
            colour: subject,
            ours: true,
        }
    }

    /// What the paper has, or a bound: dashed, in the colour of our curve on the same
    /// subject.
    pub(crate) fn papers(subject: usize, name: &str, points: Vec<(f64, f64)>) -> Curve {
        Curve {
            ours: false,
            ..Curve::ours(subject, name, points)
        }
    }
}

/// Curves over common axes.
pub(crate) struct Chart {
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
}

/// A plot in both forms.
pub(crate) struct Plots {
    pub svg: String,
    pub png: Vec<u8>,
}

impl Chart {
    /// Draws it. A point that a logarithmic axis has no place for is left out.
    pub(crate) fn draw(&self, title: &str, subtitle: &str) -> Result<Plots> {
        let mut plots: Vec<Plot> = Vec::new();
        for curve in &self.curves {
            let fits = |value: f64, axis: &Axis| value.is_finite() && (!axis.log || value > 0.0);
            let points = curve.points.iter().copied();
            let points: Vec<(f64, f64)> = points
                .filter(|&(x, y)| fits(x, &self.x) && fits(y, &self.y))
                .collect();
            let colour = COLOURS[curve.colour % COLOURS.len()];
            let line = LinePlot::new()
                .with_data(points.iter().copied())
                .with_color(colour)
                .with_legend(&*curve.name);
            if curve.ours {
                plots.push(line.with_stroke_width(2.0).into());
                let marks = ScatterPlot::new().with_data(points).with_color(colour);
                plots.push(marks.with_size(3.5).into());
            } else {
                plots.push(line.with_stroke_width(1.5).with_dashed().into());
            }
        }
        let mut layout = Layout::auto_from_plots(&plots)
            .with_title(title)
            .with_subtitle(subtitle)
            .with_x_label(self.x.label)
            .with_y_label(self.y.label)
            .with_width(WIDTH)
            .with_height(HEIGHT)
            .with_title_size(17)
            .with_tick_format(TickFormat::Custom(Arc::new(tick)))
            .with_legend_position(LegendPosition::OutsideRightTop);
        if self.x.log {
            layout = layout.with_log_x();
        }
        if self.y.log {
            layout = layout.with_log_y();
        }
        let scene = render_multiple(plots, layout);
        let png = kuva::RasterBackend::new().with_scale(SHARPNESS);
        Ok(Plots {
            svg: SvgBackend::new().render_scene(&scene),
            png: png.render_scene(&scene).map_err(|error| anyhow!(error))?,
        })
    }
}

/// A number beside a tick: short, with a unit's prefix where it is large.
fn tick(value: f64) -> String {
    let (scale, prefix) = match value.abs() {
        large if large >= 1e9 => (1e9, "G"),
        large if large >= 1e6 => (1e6, "M"),
        large if large >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    // Steps are sums and products of decimal fractions: what is left over is rounding.
    format!("{}{prefix}", (value / scale * 1e9).round() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_both_forms_and_names_every_curve_and_axis() {
        let chart = Chart {
            x: Axis::log("users"),
            y: Axis::linear("sections a second"),
            curves: vec![
                Curve::ours(0, "here", vec![(1.0, 10.0), (40.0, 0.5)]),
                // Zero has no logarithm, and infinity no place.
                Curve::papers(
                    0,
                    "paper",
                    vec![(0.0, 1.0), (1.0, f64::INFINITY), (2.0, 3.0)],
                ),
            ],
        };
        let plots = chart.draw("A lock", "a machine").unwrap();
        for text in [
            "A lock",
            "a machine",
            "users",
            "sections a second",
            ">here<",
            ">paper<",
        ] {
            assert!(plots.svg.contains(text), "{text}");
        }
        assert!(!plots.svg.contains("NaN") && !plots.svg.contains("inf"));
        assert!(plots.png.starts_with(b"\x89PNG\r\n") && plots.png.len() > 5_000);
    }

    #[test]
    fn a_tick_is_short_whatever_its_size() {
        for (value, shown) in [
            (0.1 + 0.2, "0.3"),
            (5000.0, "5000"),
            (50_000.0, "50k"),
            (2.5e7, "25M"),
            (1e9, "1G"),
            (-0.5, "-0.5"),
        ] {
            assert_eq!(tick(value), shown);
        }
    }
}
