//! Seeded sources: arrival times and lengths of packets.

use anyhow::Result;
use fairlane_core::Length;
use fairlane_sim::{self as sim, Picos, SourceError};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::column::{Column, Given, Whole, equally_long, length, rate};
use crate::watch::Watch;
use crate::wrong::{Wrong, ended};

/// The lengths of a source's packets, each drawn independently.
#[pyclass(frozen, from_py_object, module = "fairlane")]
#[derive(Clone)]
pub(crate) struct Lengths {
    pub(crate) lengths: sim::Lengths,
}

#[pymethods]
impl Lengths {
    /// All lengths are equal.
    #[staticmethod]
    fn fixed(length: Whole) -> PyResult<Lengths> {
        let lengths = sim::Lengths::Fixed(self::length("length", &length)?);
        Ok(Lengths { lengths })
    }

    /// Uniform from the least to the most.
    #[staticmethod]
    fn uniform(least: Whole, most: Whole) -> PyResult<Lengths> {
        let lengths = sim::Lengths::Uniform(length("least", &least)?, length("most", &most)?);
        Ok(Lengths { lengths })
    }

    /// Each with a probability proportional to the number next to it.
    #[staticmethod]
    fn weighted(choices: Vec<(Whole, Whole)>) -> PyResult<Lengths> {
        let mut read = Vec::with_capacity(choices.len());
        for (index, (len, weight)) in choices.iter().enumerate() {
            let choice = length("choices", len).and_then(|len| Ok((len, weight.small("choices")?)));
            read.push(choice.map_err(|wrong| wrong.at(index))?);
        }
        let lengths = sim::Lengths::Weighted(read);
        possible(&sim::Traffic::Greedy(1), &lengths)?;
        Ok(Lengths { lengths })
    }

    /// The longest packet.
    #[getter]
    pub(crate) fn longest(&self) -> u32 {
        match &self.lengths {
            sim::Lengths::Fixed(len) => len.get(),
            sim::Lengths::Uniform(a, b) => a.get().max(b.get()),
            sim::Lengths::Weighted(choices) => {
                let lens = choices.iter().filter(|&&(_, weight)| weight > 0);
                lens.map(|(len, _)| len.get()).max().unwrap_or(1)
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("Lengths({:?})", self.lengths)
    }
}

/// The arrival process of a source.
#[pyclass(frozen, from_py_object, module = "fairlane")]
#[derive(Clone)]
pub(crate) struct Traffic {
    pub(crate) traffic: sim::Traffic,
}

/// Returns a time span in seconds, to the picosecond.
pub(crate) fn seconds(argument: &str, given: &Given<f64>) -> Result<Picos, Wrong> {
    let seconds = *given.value(argument, "a number of seconds")?;
    match (0.0..=1e9).contains(&seconds) {
        true => Ok(Picos::from_secs_f64(seconds)),
        false => Err(Wrong::new(
            argument,
            format!("{argument} is {seconds}: it is 0 to 1e9 seconds"),
        )),
    }
}

#[pymethods]
impl Traffic {
    /// Always backlogged: keeps this number of packets in the scheduler.
    #[staticmethod]
    #[pyo3(signature = (packets = Whole::Number(2)))]
    fn greedy(packets: Whole) -> PyResult<Traffic> {
        let packets = packets.small("packets")?;
        if packets == 0 {
            let sentence = "packets is 0: a greedy source keeps one packet at least";
            return Err(Wrong::new("packets", sentence).into());
        }
        let traffic = sim::Traffic::Greedy(packets);
        Ok(Traffic { traffic })
    }

    /// Constant bit rate.
    #[staticmethod]
    fn cbr(rate: &Bound<'_, PyAny>) -> PyResult<Traffic> {
        let traffic = sim::Traffic::Cbr(self::rate("rate", rate)?);
        Ok(Traffic { traffic })
    }

    /// A Poisson process of this mean rate.
    #[staticmethod]
    fn poisson(rate: &Bound<'_, PyAny>) -> PyResult<Traffic> {
        let traffic = sim::Traffic::Poisson(self::rate("rate", rate)?);
        Ok(Traffic { traffic })
    }

    /// Sends at the peak rate while on; on and off times have Pareto distributions.
    #[staticmethod]
    #[pyo3(signature = (peak, mean_on, mean_off, alpha = Given(Ok(1.5))))]
    fn on_off(
        peak: &Bound<'_, PyAny>,
        mean_on: Given<f64>,
        mean_off: Given<f64>,
        alpha: Given<f64>,
    ) -> PyResult<Traffic> {
        let traffic = sim::Traffic::ParetoOnOff {
            alpha: *alpha.value("alpha", "a number")?,
            mean_on: seconds("mean_on", &mean_on)?,
            mean_off: seconds("mean_off", &mean_off)?,
            peak: rate("peak", peak)?,
        };
        possible(&traffic, &sim::Lengths::Fixed(Length::MAX))?;
        Ok(Traffic { traffic })
    }

    /// A number of packets at once, every period.
    #[staticmethod]
    fn bursty(packets: Whole, period: Given<f64>) -> PyResult<Traffic> {
        let (packets, period) = (packets.small("packets")?, seconds("period", &period)?);
        let traffic = sim::Traffic::Bursty { packets, period };
        possible(&traffic, &sim::Lengths::Fixed(Length::MAX))?;
        Ok(Traffic { traffic })
    }

    /// Sends the given packets.
    #[staticmethod]
    fn _trace(times: Column<'_>, lens: Column<'_>) -> PyResult<Traffic> {
        let (times, lens) = (times.numbers("time_ns"), lens.numbers("len"));
        equally_long(&[&times, &lens])?;
        let packet = |index| -> Result<(Picos, Length), Wrong> {
            let len = lens.within(index, fairlane_core::units::MAX_LENGTH, "LengthError")?;
            let len = Length::new(len).unwrap_or(Length::MAX);
            Ok((Picos::from_nanos(times.get(index)?), len))
        };
        let packets: Result<Vec<_>, Wrong> = (0..times.len()).map(packet).collect();
        let traffic = sim::Traffic::Trace(packets?);
        Ok(Traffic { traffic })
    }

    fn __repr__(&self) -> String {
        match &self.traffic {
            sim::Traffic::Trace(packets) => format!("Traffic(a trace of {})", packets.len()),
            other => format!("Traffic({other:?})"),
        }
    }
}

/// Checks whether a source is valid.
fn possible(traffic: &sim::Traffic, lengths: &sim::Lengths) -> Result<(), Wrong> {
    let source = sim::Source::new(traffic.clone(), lengths.clone(), 0);
    let wrong = |error: SourceError| {
        let argument = match (error, traffic) {
            (SourceError::NoLength, _) => "choices",
            (SourceError::NoMean, _) => "alpha",
            (_, sim::Traffic::Bursty { .. }) => "period",
            _ => "mean_on",
        };
        Wrong::new(argument, format!("{argument}: {error}"))
    };
    source.map(drop).map_err(wrong)
}

/// The largest number of on-times per packet: signals are not checked while they are drawn.
const MOST_SPANS: f64 = 1e5;

/// Checks that a packet of a source takes few enough on-times to draw them quickly.
pub(crate) fn in_few_spans(traffic: &Traffic, lengths: &Lengths) -> Result<(), Wrong> {
    let sim::Traffic::ParetoOnOff {
        alpha,
        mean_on,
        peak,
        ..
    } = &traffic.traffic
    else {
        return Ok(());
    };
    let shortest = mean_on.as_secs_f64() * (alpha - 1.0) / alpha;
    let longest = f64::from(lengths.longest()) * 8.0 / peak.bps() as f64;
    if longest <= MOST_SPANS * shortest {
        return Ok(());
    }
    let sentence = format!(
        "traffic: a packet of {} bytes takes {longest:.1e} s at its peak rate, and a span of sending may be \
         as short as {shortest:.1e} s: {MOST_SPANS:e} of them are the most",
        lengths.longest()
    );
    Err(Wrong::new("traffic", sentence))
}

/// Returns the packets that an open-loop source sends before `until` seconds: picoseconds and lengths, alternating.
#[pyfunction]
pub(crate) fn packets<'py>(
    py: Python<'py>,
    traffic: Traffic,
    lengths: Lengths,
    seed: Whole,
    until: Given<f64>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (until, seed) = (seconds("seconds", &until)?, seed.large("seed")?);
    if until > Picos(u64::MAX.into()) {
        let sentence = format!(
            "seconds: packets are told in picoseconds of 64 bits, up to {} seconds",
            u64::MAX / fairlane_sim::PICOS_PER_SECOND
        );
        return Err(Wrong::new("seconds", sentence).into());
    }
    in_few_spans(&traffic, &lengths)?;
    let cells = py.detach(|| -> Result<Vec<u64>> {
        let source = sim::Source::new(traffic.traffic, lengths.lengths, seed);
        let mut source = source.map_err(|error| Wrong::new("traffic", error.to_string()))?;
        if source.keeps().is_some() {
            let sentence =
                "a greedy source sends when the link takes packets: only sim() knows when";
            return Err(Wrong::new("traffic", sentence).into());
        }
        let mut cells = Vec::new();
        let mut watch = Watch::new();
        while let Some((time, len)) = source.next_packet()
            && time < until
        {
            watch.often()?;
            // It fits, since it is before `until`.
            cells.extend([time.0 as u64, len.get().into()]);
        }
        Ok(cells)
    });
    Ok(cells.map_err(|error| ended(py, error))?.into_pyarray(py))
}
