//! Errors, as the exceptions of Python (`fairlane/errors.py`).

use fairlane_config::SiteError;
use fairlane_core::Rejection;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

/// An invalid argument, as an exception of the class `kind` with its name and, for an array, the index of the first
/// invalid element.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub(crate) struct Wrong {
    pub kind: &'static str,
    pub argument: String,
    pub index: Option<usize>,
    pub sentence: String,
}

impl Wrong {
    /// Creates an `ArgumentError`, unless another kind is set.
    pub(crate) fn new(argument: &str, sentence: impl Into<String>) -> Wrong {
        Wrong {
            kind: "ArgumentError",
            argument: argument.to_owned(),
            index: None,
            sentence: sentence.into(),
        }
    }

    pub(crate) fn of_kind(self, kind: &'static str) -> Wrong {
        Wrong { kind, ..self }
    }

    pub(crate) fn at(self, index: usize) -> Wrong {
        Wrong {
            index: Some(index),
            ..self
        }
    }
}

impl From<Wrong> for PyErr {
    fn from(wrong: Wrong) -> PyErr {
        let Wrong {
            kind,
            argument,
            index,
            sentence,
        } = wrong;
        Python::attach(|py| exception(py, kind, (sentence, argument, index)))
    }
}

/// Returns an exception of a class of `fairlane.errors`.
pub(crate) fn exception<'py>(
    py: Python<'py>,
    class: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyErr {
    let made = py
        .import("fairlane.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1(arguments));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Returns the exception for an error that ended a replay or a simulation.
pub(crate) fn ended(py: Python<'_>, error: anyhow::Error) -> PyErr {
    let error = match error.downcast::<PyErr>() {
        Ok(error) => return error,
        Err(error) => error,
    };
    match error.downcast::<Wrong>() {
        Ok(wrong) => wrong.into(),
        Err(error) => exception(py, "FairlaneError", (format!("{error:#}"),)),
    }
}

/// Returns the exception for a rejected packet.
pub(crate) fn rejected(py: Python<'_>, reason: Rejection) -> PyErr {
    let word = match reason {
        Rejection::Unknown => "unknown",
        Rejection::NoQueue => "no-queue",
        Rejection::TooLong { .. } => "too-long",
        Rejection::QueueFull => "queue-full",
        Rejection::LinkFull => "link-full",
        Rejection::Congestion => "congestion",
        _ => "other",
    };
    exception(py, "Rejected", (reason.to_string(), word))
}

/// Returns the exception for an invalid site or scenario.
pub(crate) fn no_site(py: Python<'_>, error: SiteError) -> PyErr {
    let places = match &error {
        SiteError::Invalid(found) => found
            .iter()
            .map(|found| {
                let sentence = found.sentence.clone();
                (found.file.clone(), found.line, found.column, sentence)
            })
            .collect(),
        _ => Vec::new(),
    };
    exception(py, "SiteError", (error.to_string(), places))
}
