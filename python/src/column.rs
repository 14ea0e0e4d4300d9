//! Arguments: columns of numbers from numpy, numbers and names.

use std::fmt::Display;
use std::num::NonZeroU32;

use fairlane_config::{algorithms as known, suggestion};
use fairlane_core::sched::Algorithm;
use fairlane_core::units::{MAX_LENGTH, MAX_WEIGHT};
use fairlane_core::{Length, Rate, Weight};
use fairlane_traffic::replay::by_flow::Flow;
use numpy::PyReadonlyArray1;
use numpy::ndarray::ArrayView1;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::wrong::Wrong;

/// A column of integers, of a type that is not copied.
#[derive(FromPyObject)]
pub(crate) enum Column<'py> {
    U64(PyReadonlyArray1<'py, u64>),
    I64(PyReadonlyArray1<'py, i64>),
    U32(PyReadonlyArray1<'py, u32>),
    I32(PyReadonlyArray1<'py, i32>),
}

/// The columns of a table.
pub(crate) type Columns<'py, const N: usize> = [Column<'py>; N];

/// Returns the flows: weight and longest packet of each.
pub(crate) fn flows_of(columns: &Columns<'_, 2>) -> Result<Vec<Flow>, Wrong> {
    let [weights, max_lens] = columns;
    flows(&weights.numbers("weight"), &max_lens.numbers("max_len"))
}

/// Returns the arrivals: time, flow and length of each packet.
pub(crate) fn arrivals_of<'a>(columns: &'a Columns<'_, 3>) -> [Numbers<'a>; 3] {
    let [times, flows, lens] = columns;
    [
        times.numbers("time_ns"),
        flows.numbers("flow"),
        lens.numbers("len"),
    ]
}

impl Column<'_> {
    /// Returns its numbers, for a thread that is detached from the interpreter.
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

/// The numbers of a column that errors name `name`.
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

    /// Returns the number at an index below the length, unless it is negative.
    #[inline]
    fn at(&self, index: usize) -> Option<u64> {
        match &self.values {
            Values::U64(values) => Some(values[index]),
            Values::I64(values) => values[index].try_into().ok(),
            Values::U32(values) => Some(values[index].into()),
            Values::I32(values) => values[index].try_into().ok(),
        }
    }

    /// Returns the number as text.
    fn shown(&self, index: usize) -> String {
        match &self.values {
            Values::U64(values) => values[index].to_string(),
            Values::I64(values) => values[index].to_string(),
            Values::U32(values) => values[index].to_string(),
            Values::I32(values) => values[index].to_string(),
        }
    }

    /// Returns the number at an index below the length.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Result<u64, Wrong> {
        self.at(index).ok_or_else(|| self.negative(index))
    }

    #[cold]
    fn negative(&self, index: usize) -> Wrong {
        let (name, number) = (self.name, self.shown(index));
        let sentence = format!("{name}[{index}] is {number}: it is not negative");
        self.wrong(index, sentence)
    }

    /// Returns a number from 1 to `most`; `kind` is the exception otherwise.
    #[inline]
    pub(crate) fn within(&self, index: usize, most: u32, kind: &'static str) -> Result<u32, Wrong> {
        match self.at(index) {
            Some(number) if (1..=most.into()).contains(&number) => Ok(number as u32),
            _ => Err(self.beyond(index, most, kind)),
        }
    }

    #[cold]
    fn beyond(&self, index: usize, most: u32, kind: &'static str) -> Wrong {
        let (name, number) = (self.name, self.shown(index));
        let sentence = format!("{name}[{index}] is {number}, not 1 to {most}");
        self.wrong(index, sentence).of_kind(kind)
    }

    pub(crate) fn wrong(&self, index: usize, sentence: String) -> Wrong {
        Wrong::new(self.name, sentence).at(index)
    }
}

/// Checks that columns of one table are equally long.
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

/// Returns the flows of two columns; at least one.
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

/// Returns Python's representation, which fails for numbers with thousands of digits.
fn shown(given: Borrowed<'_, '_, PyAny>) -> String {
    (given.repr()).map_or_else(|_| "too large".into(), |shown| shown.to_string())
}

/// An argument, or its representation if it has the wrong type: the caller, which knows its name, reports the expected
/// type.
#[derive(Debug)]
pub(crate) struct Given<T>(pub(crate) Result<T, String>);

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Given<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Given<T>> {
        let error = match T::extract(given) {
            Ok(value) => return Ok(Given(Ok(value))),
            Err(error) => error,
        };
        let py = given.py();
        // Otherwise the argument's own code raised it.
        let is_told = error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyOverflowError>(py)
            || error.is_instance_of::<PyValueError>(py);
        match is_told {
            true => Ok(Given(Err(shown(given)))),
            false => Err(error),
        }
    }
}

impl<T> Given<T> {
    pub(crate) fn value(&self, argument: &str, kind: &str) -> Result<&T, Wrong> {
        self.0.as_ref().map_err(|shown| {
            Wrong::new(argument, format!("{argument} is {shown}: it is {kind}"))
                .of_kind("DtypeError")
        })
    }
}

/// An integer argument, or the representation of an invalid one: the caller, which knows its name, reports the allowed
/// range.
#[derive(Debug)]
pub(crate) enum Whole {
    Number(u64),
    /// Negative or too large, in Python's representation.
    Beyond(String),
    /// Not an integer, in Python's representation.
    Other(String),
}

impl FromPyObject<'_, '_> for Whole {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Whole> {
        let error = match given.extract::<u64>() {
            Ok(number) => return Ok(Whole::Number(number)),
            Err(error) => error,
        };
        let (py, shown) = (given.py(), shown(given));
        if error.is_instance_of::<PyOverflowError>(py) {
            Ok(Whole::Beyond(shown))
        } else if error.is_instance_of::<PyTypeError>(py) {
            Ok(Whole::Other(shown))
        } else {
            Err(error)
        }
    }
}

impl Whole {
    fn number<T: TryFrom<u64>>(&self) -> Option<T> {
        match self {
            Whole::Number(number) => T::try_from(*number).ok(),
            Whole::Beyond(_) | Whole::Other(_) => None,
        }
    }

    fn wrong(&self, argument: &str, kind: &'static str, allowed: impl Display) -> Wrong {
        let (shown, kind) = match self {
            Whole::Number(number) => (&number.to_string(), kind),
            Whole::Beyond(shown) => (shown, kind),
            Whole::Other(shown) => (shown, "DtypeError"),
        };
        Wrong::new(argument, format!("{argument} is {shown}: {allowed}")).of_kind(kind)
    }

    /// Returns it if it is from 0 to `most`.
    fn up_to<T: TryFrom<u64>>(&self, argument: &str, most: u64) -> Result<T, Wrong> {
        self.number().ok_or_else(|| {
            let allowed = format!("it is a whole number, 0 to {most}");
            self.wrong(argument, "ArgumentError", allowed)
        })
    }

    /// Returns it if it has 32 bits.
    pub(crate) fn small(&self, argument: &str) -> Result<u32, Wrong> {
        self.up_to(argument, u32::MAX.into())
    }

    /// Returns it if it has 64 bits.
    pub(crate) fn large(&self, argument: &str) -> Result<u64, Wrong> {
        self.up_to(argument, u64::MAX)
    }
}

/// Returns a weight argument.
pub(crate) fn weight(given: &Whole) -> Result<Weight, Wrong> {
    given.number().and_then(Weight::new).ok_or_else(|| {
        let allowed = format!("weights are 1 to {MAX_WEIGHT}");
        given.wrong("weight", "WeightError", allowed)
    })
}

/// Returns a length argument named `argument`.
pub(crate) fn length(argument: &str, given: &Whole) -> Result<Length, Wrong> {
    given.number().and_then(Length::new).ok_or_else(|| {
        let allowed = format!("lengths are 1 to {MAX_LENGTH} bytes");
        given.wrong(argument, "LengthError", allowed)
    })
}

/// Returns a rate argument: a text such as `10mbit`, or an integer in bits a second.
pub(crate) fn rate(argument: &str, value: &Bound<'_, PyAny>) -> Result<Rate, Wrong> {
    let wrong = |sentence: String| Wrong::new(argument, sentence).of_kind("RateError");
    if let Ok(text) = value.extract::<String>() {
        return (text.parse()).map_err(|error| wrong(format!("{argument} is '{text}': {error}")));
    }
    let number = match value.is_instance_of::<PyBool>() {
        true => None,
        false => value.extract::<u64>().ok(),
    };
    number.and_then(Rate::from_bps).ok_or_else(|| {
        wrong(format!(
            "{argument} is {value}: it is a text as '10mbit', or a whole number of bits a second, 1kbit \
             to 1tbit"
        ))
    })
}

/// Returns the number of flows in an aggregate.
pub(crate) fn aggregate(given: &Whole) -> Result<NonZeroU32, Wrong> {
    NonZeroU32::new(given.small("aggregate")?).ok_or_else(|| {
        let sentence = "aggregate is 0: an aggregate has one flow at least";
        Wrong::new("aggregate", sentence)
    })
}

/// Returns the algorithm of this name, with at most `members` flows in an aggregate.
pub(crate) fn algorithm(given: &Given<String>, members: NonZeroU32) -> Result<Algorithm, Wrong> {
    let name = given.value("algorithm", "a name, as 'qfq'")?;
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

/// Returns the names of the algorithms, with a description of each.
#[pyfunction]
pub(crate) fn algorithms() -> Vec<(&'static str, &'static str)> {
    let all = known::all().into_iter();
    all.map(|one| (one.name(), one.about())).collect()
}
