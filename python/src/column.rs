//! Arguments: columns of numbers as numpy has them, and what numbers and words mean.

use std::num::NonZeroU32;

use fairlane_config::{algorithms as known, suggestion};
use fairlane_core::sched::Algorithm;
use fairlane_core::units::{MAX_LENGTH, MAX_WEIGHT};
use fairlane_core::{Length, Rate, Weight};
use fairlane_traffic::replay::by_flow::Flow;
use numpy::PyReadonlyArray1;
use numpy::ndarray::ArrayView1;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use crate::wrong::Wrong;

/// One column of whole numbers, of any of the types that are not copied.
#[derive(FromPyObject)]
pub(crate) enum Column<'py> {
    U64(PyReadonlyArray1<'py, u64>),
    I64(PyReadonlyArray1<'py, i64>),
    U32(PyReadonlyArray1<'py, u32>),
    I32(PyReadonlyArray1<'py, i32>),
}

/// The columns of a table.
pub(crate) type Columns<'py, const N: usize> = [Column<'py>; N];

/// Whose packets come: weight and longest packet of each flow.
pub(crate) fn flows_of(columns: &Columns<'_, 2>) -> Result<Vec<Flow>, Wrong> {
    let [weights, max_lens] = columns;
    flows(&weights.numbers("weight"), &max_lens.numbers("max_len"))
}

/// What comes: time, flow and length of each packet.
pub(crate) fn arrivals_of<'a>(columns: &'a Columns<'_, 3>) -> [Numbers<'a>; 3] {
    let [times, flows, lens] = columns;
    [
        times.numbers("time_ns"),
        flows.numbers("flow"),
        lens.numbers("len"),
    ]
}

impl Column<'_> {
    /// Its numbers, for a thread that is detached from the interpreter.
    pub(crate) fn numbers<'a>(&'a self, name: &'static str) -> Numbers<'a> {
        let values = match self {
            Column::U64(array) => Values::U64(array.as_array()),
            Column::I64(array) => Values::I64(array.as_array()),
            Column::U32(array) => Values::U32(array.as_array()),
            Column::I32(array) => Values::I32(array.as_array()),
        };
        Numbers { name, values }
    }
}

enum Values<'a> {
    U64(ArrayView1<'a, u64>),
    I64(ArrayView1<'a, i64>),
    U32(ArrayView1<'a, u32>),
    I32(ArrayView1<'a, i32>),
}

/// The numbers of a column, which errors call `name`.
pub(crate) struct Numbers<'a> {
    pub(crate) name: &'static str,
    values: Values<'a>,
}

impl Numbers<'_> {
    pub(crate) fn len(&self) -> usize {
        match &self.values {
            Values::U64(values) => values.len(),
            Values::I64(values) => values.len(),
            Values::U32(values) => values.len(),
            Values::I32(values) => values.len(),
        }
    }

    fn at(&self, index: usize) -> i128 {
        match &self.values {
            Values::U64(values) => values[index].into(),
            Values::I64(values) => values[index].into(),
            Values::U32(values) => values[index].into(),
            Values::I32(values) => values[index].into(),
        }
    }

    /// The number at an index below the length.
    pub(crate) fn get(&self, index: usize) -> Result<u64, Wrong> {
        let number = self.at(index);
        u64::try_from(number).map_err(|_| {
            let name = self.name;
            self.wrong(
                index,
                format!("{name}[{index}] is {number}: it is not negative"),
            )
        })
    }

    /// The same of 1 to `most`; `kind` is the exception otherwise.
    pub(crate) fn within(&self, index: usize, most: u32, kind: &'static str) -> Result<u32, Wrong> {
        let number = self.at(index);
        match u32::try_from(number) {
            Ok(number) if (1..=most).contains(&number) => Ok(number),
            _ => {
                let sentence = format!("{}[{index}] is {number}, not 1 to {most}", self.name);
                Err(self.wrong(index, sentence).of_kind(kind))
            }
        }
    }

    pub(crate) fn wrong(&self, index: usize, sentence: String) -> Wrong {
        Wrong::new(self.name, sentence).at(index)
    }
}

/// That columns of one table are equally long.
pub(crate) fn equally_long(columns: &[&Numbers<'_>]) -> Result<(), Wrong> {
    let first = columns[0];
    for other in &columns[1..] {
        if other.len() != first.len() {
            return Err(Wrong::new(
                other.name,
                format!(
                    "{} has {} elements and {} has {}: they are columns of one table",
                    other.name,
                    other.len(),
                    first.name,
                    first.len()
                ),
            ));
        }
    }
    Ok(())
}

/// The flows of two columns; one at least.
fn flows<'a>(weights: &Numbers<'a>, max_lens: &Numbers<'a>) -> Result<Vec<Flow>, Wrong> {
    equally_long(&[weights, max_lens])?;
    if weights.len() == 0 {
        return Err(Wrong::new(
            "flows",
            "flows: there is none, one at least is needed",
        ));
    }
    (0..weights.len())
        .map(|index| {
            let weight = weights.within(index, MAX_WEIGHT, "WeightError")?;
            let max_len = max_lens.within(index, MAX_LENGTH, "LengthError")?;
            Ok(Flow {
                weight: Weight::new(weight).unwrap_or(Weight::ONE),
                max_len: Length::new(max_len).unwrap_or(Length::MAX),
            })
        })
        .collect()
}

/// A weight that a call was given.
pub(crate) fn weight(number: i64) -> Result<Weight, Wrong> {
    let weight = u32::try_from(number).ok().and_then(Weight::new);
    weight.ok_or_else(|| {
        let sentence = format!("weight is {number}: weights are 1 to {MAX_WEIGHT}");
        Wrong::new("weight", sentence).of_kind("WeightError")
    })
}

/// A length that a call was given as `argument`.
pub(crate) fn length(argument: &str, number: i64) -> Result<Length, Wrong> {
    let length = u32::try_from(number).ok().and_then(Length::new);
    length.ok_or_else(|| {
        let sentence = format!("{argument} is {number}: lengths are 1 to {MAX_LENGTH} bytes");
        Wrong::new(argument, sentence).of_kind("LengthError")
    })
}

/// A rate: a text as `10mbit`, or a whole number of bits a second.
pub(crate) fn rate(argument: &str, value: &Bound<'_, PyAny>) -> Result<Rate, Wrong> {
    let wrong = |sentence: String| Wrong::new(argument, sentence).of_kind("RateError");
    if let Ok(text) = value.extract::<String>() {
        return (text.parse()).map_err(|error| wrong(format!("{argument} is '{text}': {error}")));
    }
    let number = match value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        true => value.extract::<u64>().ok(),
        false => None,
    };
    number.and_then(Rate::from_bps).ok_or_else(|| {
        wrong(format!(
            "{argument} is {value}: it is a text as '10mbit', or a whole number of bits a second, 1kbit \
             to 1tbit"
        ))
    })
}

/// The algorithm of this name, with at most `aggregate` flows in an aggregate.
pub(crate) fn algorithm(name: &str, aggregate: u32) -> Result<Algorithm, Wrong> {
    let Some(members) = NonZeroU32::new(aggregate) else {
        let sentence = "aggregate is 0: an aggregate has one flow at least";
        return Err(Wrong::new("aggregate", sentence));
    };
    let found = known::named(name);
    let found = found.ok_or_else(|| {
        let all: Vec<&str> = known::all().iter().map(|one| one.name()).collect();
        let near = suggestion(name, all.iter().copied());
        let near = match near.is_empty() {
            true => format!(": it is one of {}", all.join(", ")),
            false => near,
        };
        let sentence = format!("algorithm '{}' is unknown{near}", name.escape_debug());
        Wrong::new("algorithm", sentence).of_kind("UnknownAlgorithm")
    })?;
    Ok(found.with_members(members))
}

/// Names of the algorithms, and what each is.
#[pyfunction]
pub(crate) fn algorithms() -> Vec<(&'static str, &'static str)> {
    let all = known::all().into_iter();
    all.map(|one| (one.name(), one.about())).collect()
}
