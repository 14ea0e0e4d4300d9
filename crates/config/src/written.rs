//! Values of the file with their positions. They are validated later, so that one pass over a file finds all errors in
//! its values.

#[cfg(test)]
use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::diagnostic::Report;

/// A value and where it stands.
///
/// For a file of one's own in which the words of a site's mean the same:
///
/// ```
/// use fairlane_config::{At, Report, Scalar, Text, Whole};
/// use fairlane_core::Rate;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Sender {
///     rate: Text,
///     flows: At<Whole>,
///     seed: Scalar,
/// }
///
/// let text = "rate = \"5mbit\"\nflows = 0\nseed = 7\n";
/// let sender: Sender = toml::from_str(text)?;
/// let mut report = Report::new("sender.toml", text);
/// assert_eq!(sender.rate.read("rate", &mut report), Some("5mbit".parse::<Rate>()?));
/// assert_eq!(sender.flows.within::<u32>("flows", 1..101, &mut report), None);
/// assert!(matches!(sender.seed, Scalar::Number(7)));
///
/// // All that is wrong is told at once, each with its place.
/// let told = report.finish().unwrap_err().to_string();
/// assert_eq!(told, "sender.toml:2:9: flows 0: it lies between 1 and 100");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct At<T> {
    value: T,
    /// In few bytes, since each of thousands of tables has a dozen values. No text has 4 GiB.
    span: [u32; 2],
}

impl<T> At<T> {
    /// Returns a value without a position.
    pub(crate) fn made(value: T) -> At<T> {
        At {
            value,
            span: [0; 2],
        }
    }

    /// Returns the value for modification.
    pub(crate) fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns its byte range in the text.
    pub fn span(&self) -> Range<usize> {
        let [start, end] = self.span;
        start as usize..end as usize
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At<T>, D::Error> {
        let spanned = Spanned::deserialize(deserializer)?;
        let Range { start, end } = spanned.span();
        Ok(At {
            span: [start, end].map(|at| u32::try_from(at).unwrap_or(u32::MAX)),
            value: spanned.into_inner(),
        })
    }
}

#[cfg(test)]
impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Text to be parsed as some `T`.
pub type Text = At<String>;

impl Text {
    /// Returns the parsed value with its position, or reports the reason with the key.
    pub fn read<T: FromStr<Err: Display>>(&self, key: &str, report: &mut Report) -> Option<T> {
        match self.value().parse() {
            Ok(value) => Some(value),
            Err(reason) => {
                report.error(&self.span(), format!("{key} '{}': {reason}", self.value()));
                None
            }
        }
    }
}

impl At<Whole> {
    /// Returns the number if it is in range; otherwise reports the range with the key.
    pub fn within<T>(&self, key: &str, range: Range<i64>, report: &mut Report) -> Option<T>
    where
        T: TryFrom<i64>,
    {
        let (least, most) = (range.start, range.end - 1);
        let sentence = match &self.value().0 {
            Scalar::Number(value) => match T::try_from(*value) {
                Ok(number) if range.contains(value) => return Some(number),
                _ => format!("{key} {value}: it lies between {least} and {most}"),
            },
            Scalar::Text(text) => {
                format!("{key} '{text}': it is a whole number between {least} and {most}")
            }
        };
        report.error(&self.span(), sentence);
        None
    }
}

/// A whole number. Any other value is accepted at first, and rejected with its key and range when it is
/// [read](At::within).
#[derive(Clone, Debug)]
pub struct Whole(Scalar);

impl Whole {
    /// Returns the number, unless it is another value.
    pub(crate) fn number(&self) -> Option<i64> {
        match self.0 {
            Scalar::Number(number) => Some(number),
            Scalar::Text(_) => None,
        }
    }
}

impl From<i64> for Whole {
    fn from(number: i64) -> Whole {
        Whole(Scalar::Number(number))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        let value = deserializer.deserialize_any(Value("a whole number"));
        value.map(Whole)
    }
}

#[cfg(test)]
impl JsonSchema for Whole {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        i64::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        i64::json_schema(generator)
    }
}

/// A number, or a text that contains one.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(untagged))]
pub enum Scalar {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl<'de> Deserialize<'de> for Scalar {
    /// Converts any other value to its text, which is rejected with its key when it is read.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(Value("a number or a text"))
    }
}

/// A visitor of values other than lists and tables, with the description of an expected one.
struct Value(&'static str);

impl Visitor<'_> for Value {
    type Value = Scalar;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Scalar, E> {
        Ok(Scalar::Text(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Text(number.to_string()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }
}

impl Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Number(number) => number.fmt(f),
            Scalar::Text(text) => text.fmt(f),
        }
    }
}
