//! The algorithms that can be named: those of the core, and those of other crates that this program has registered.

use std::sync::RwLock;

use fairlane_core::Length;
use fairlane_core::sched::{Algorithm, CustomAlgorithm};
use fairlane_core::units::MAX_LENGTH;

use crate::diagnostic::Report;
use crate::site::LinkAlgorithm;
use crate::units::Size;
use crate::written::Text;

/// The smallest quantum of DRR: with it, a packet of the maximum size takes about a thousand turns.
pub const LEAST_QUANTUM: u32 = 64;

/// Algorithms of other crates, in the order of their registration.
static CUSTOM: RwLock<Vec<Algorithm>> = RwLock::new(Vec::new());

/// Names with another meaning where an algorithm is expected.
const RESERVED: [&str; 2] = [LinkAlgorithm::CBQ, "none"];

/// The reason why an algorithm of another crate cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is that of a built-in algorithm, or another word of the program.
    #[error("algorithm '{0}' cannot be added: the program has a built-in one of this name")]
    BuiltIn(&'static str),
    /// The name is already registered.
    #[error("algorithm '{0}' cannot be added: one of this name was added before")]
    Twice(&'static str),
    /// The name cannot be written in a file or a command line as it is.
    #[error("algorithm '{0}' cannot be added: a name is lower-case letters, digits, '+' and '-'")]
    Name(&'static str),
}

/// Lets files and command lines of this process call an algorithm of another crate by this name, from
/// now on and for good. Said before the first of them is read; O(algorithms). The
/// [`schema`](crate::schema()) of a site's file does not know it.
///
/// # Errors
///
/// If the name is taken, or is none. Nothing is changed then.
///
/// ```
/// use fairlane_config::algorithms::{RegisterError, named, register};
/// use fairlane_core::sched::SKps;
///
/// let late = register::<SKps<true>>("s-kps-late")?;
/// assert_eq!(named("s-kps-late"), Some(late));
/// // A name means one algorithm.
/// assert_eq!(register::<SKps<true>>("qfq"), Err(RegisterError::BuiltIn("qfq")));
/// # Ok::<(), RegisterError>(())
/// ```
pub fn register<A: CustomAlgorithm>(name: &'static str) -> Result<Algorithm, RegisterError> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(letter) {
        return Err(RegisterError::Name(name));
    }
    if RESERVED.contains(&name) || name.parse::<Algorithm>().is_ok() {
        return Err(RegisterError::BuiltIn(name));
    }
    let mut custom = CUSTOM.write().unwrap_or_else(|held| held.into_inner());
    if custom.iter().any(|other| other.name() == name) {
        return Err(RegisterError::Twice(name));
    }
    let algorithm = Algorithm::custom::<A>(name);
    custom.push(algorithm);
    Ok(algorithm)
}

/// Returns all named algorithms, those of the core first.
pub fn all() -> Vec<Algorithm> {
    let custom = CUSTOM.read().unwrap_or_else(|held| held.into_inner());
    [Algorithm::ALL, &custom[..]].concat()
}

/// Returns the algorithm with this name.
pub fn named(name: &str) -> Option<Algorithm> {
    all().into_iter().find(|algorithm| algorithm.name() == name)
}

/// Returns the algorithm with a quantum, as in "500b"; reports one that is out of range or has no effect.
///
/// ```
/// use fairlane_config::algorithms::{LEAST_QUANTUM, with_quantum};
/// use fairlane_config::{Report, Text};
/// use fairlane_core::sched::Algorithm;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Port {
///     quantum: Text,
/// }
///
/// let text = format!("quantum = \"{LEAST_QUANTUM}b\"\n");
/// let port: Port = toml::from_str(&text)?;
/// let mut report = Report::new("port.toml", &text);
/// let drr = with_quantum(Algorithm::Drr, &port.quantum, &mut report);
/// assert!(matches!(drr, Some(Algorithm::DrrOfQuantum(_))));
/// assert_eq!(with_quantum(Algorithm::Qfq, &port.quantum, &mut report), None);
/// assert!(report.failed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_quantum(
    algorithm: Algorithm,
    quantum: &Text,
    report: &mut Report,
) -> Option<Algorithm> {
    let size: Size = quantum.read("quantum", report)?;
    let length = u32::try_from(size.0).ok().and_then(Length::new);
    let Some(length) = length.filter(|length| length.get() >= LEAST_QUANTUM) else {
        let sentence = format!(
            "quantum '{}': it lies between {} and {}",
            quantum.value(),
            Size(LEAST_QUANTUM.into()),
            Size(MAX_LENGTH.into())
        );
        report.error(&quantum.span(), sentence);
        return None;
    };
    let with_quantum = algorithm.with_quantum(length);
    if with_quantum.is_none() {
        stray_quantum(quantum, report);
    }
    with_quantum
}

/// Reports a quantum that has no effect.
pub(crate) fn stray_quantum(quantum: &Text, report: &mut Report) {
    report.error(
        &quantum.span(),
        "quantum: only algorithm \"drr\" has one (write algorithm = \"drr\", or leave out 'quantum')",
    );
}
