//! Which class a process belongs to.

use std::fmt;
use std::str::FromStr;

use fairlane_core::FlowConfig;
use fairlane_io::PeerCredentials;

/// Bytes of a class's name.
const LONGEST_NAME: usize = 64;

/// The rights of a class of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// 1 to 64 bytes, sent to the client.
    pub name: String,
    /// Of each client's own flow; its longest packet is also the size of a mailbox's slot.
    pub flow: FlowConfig,
    /// Most clients of this class at a time.
    pub most_clients: usize,
}

/// The processes that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Who {
    /// A user.
    Uid(u32),
    /// A group: the process's effective one, not its supplementary groups.
    Gid(u32),
    /// All processes.
    Any,
}

impl Who {
    fn is(self, peer: PeerCredentials) -> bool {
        match self {
            Who::Uid(uid) => peer.uid == uid,
            Who::Gid(gid) => peer.gid == gid,
            Who::Any => true,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Uid(uid) => write!(f, "uid={uid}"),
            Who::Gid(gid) => write!(f, "gid={gid}"),
            Who::Any => f.write_str("any"),
        }
    }
}

/// The text is not one that [`Who`] is written as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no clients: write uid=NUMBER, gid=NUMBER or any")]
pub struct WhoError(String);

impl FromStr for Who {
    type Err = WhoError;

    fn from_str(text: &str) -> Result<Self, WhoError> {
        let who = match text.split_once('=') {
            Some(("uid", number)) => number.parse().ok().map(Who::Uid),
            Some(("gid", number)) => number.parse().ok().map(Who::Gid),
            None if text == "any" => Some(Who::Any),
            _ => None,
        };
        who.ok_or_else(|| WhoError(text.to_owned()))
    }
}

/// An invalid [`Mapping`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A name that cannot be sent to a client.
    #[error("the class \"{0}\" has a name of {len} bytes: 1 to 64 are allowed", len = .0.len())]
    Name(String),
    /// Two classes of one name.
    #[error("there are two classes \"{0}\": each needs a name of its own")]
    Twice(String),
    /// A rule for a class that there is not.
    #[error("the rule for {who} names the class \"{class}\", which does not exist")]
    UnknownClass {
        /// The processes that the rule matches.
        who: Who,
        /// The class it names.
        class: String,
    },
}

/// Classes, and rules that map processes to them. The first matching rule applies.
///
/// ```
/// use fairlane_core::{FlowConfig, Length, Weight};
/// use fairlane_runtime::attach::{Class, Mapping, MappingError, Who, WhoError};
///
/// let voice = Class {
///     name: "voice".into(),
///     flow: FlowConfig::new(Weight::new(10).unwrap(), Length::new(1500).unwrap()),
///     most_clients: 4,
/// };
/// let mapping = Mapping::new()
///     .class(voice)?
///     .rule(Who::Uid(1000), "voice")?
///     .rule("gid=44".parse()?, "voice")?;
///
/// // The error is a message.
/// let wrong: MappingError = mapping.rule(Who::Any, "guests").unwrap_err();
/// println!("{wrong}");
/// let wrong: WhoError = "user=anna".parse::<Who>().unwrap_err();
/// println!("{wrong}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    classes: Vec<Class>,
    /// Each with the index of its class.
    rules: Vec<(Who, usize)>,
}

impl Mapping {
    /// Returns a mapping that admits no process.
    #[must_use]
    pub fn new() -> Self {
        Mapping::default()
    }

    /// With one class more.
    ///
    /// # Errors
    ///
    /// Its name is empty, longer than 64 bytes, or taken.
    pub fn class(mut self, class: Class) -> Result<Self, MappingError> {
        if class.name.is_empty() || class.name.len() > LONGEST_NAME {
            return Err(MappingError::Name(class.name));
        }
        if self.number_of(&class.name).is_some() {
            return Err(MappingError::Twice(class.name));
        }
        self.classes.push(class);
        Ok(self)
    }

    /// Appends a rule: `who` belongs to the class of that name, unless an
    /// earlier rule says otherwise.
    ///
    /// # Errors
    ///
    /// There is no such class.
    pub fn rule(mut self, who: Who, class: &str) -> Result<Self, MappingError> {
        let Some(number) = self.number_of(class) else {
            let class = class.to_owned();
            return Err(MappingError::UnknownClass { who, class });
        };
        self.rules.push((who, number));
        Ok(self)
    }

    /// Returns the class of a process, if a rule gives it one.
    #[must_use]
    #[doc(hidden)]
    pub fn class_of(&self, peer: PeerCredentials) -> Option<&Class> {
        Some(&self.classes[self.class_number(peer)?])
    }

    pub(super) fn class_number(&self, peer: PeerCredentials) -> Option<usize> {
        let rule = self.rules.iter().find(|(who, _)| who.is(peer))?;
        Some(rule.1)
    }

    pub(super) fn classes(&self) -> &[Class] {
        &self.classes
    }

    fn number_of(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }
}

#[cfg(test)]
mod tests {
    use fairlane_core::{Length, Weight};

    use super::*;

    fn class(name: &str) -> Class {
        Class {
            name: name.to_owned(),
            flow: FlowConfig::new(Weight::ONE, Length::MAX),
            most_clients: 1,
        }
    }

    fn peer(uid: u32, gid: u32) -> PeerCredentials {
        PeerCredentials { pid: 1, uid, gid }
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let mapping = Mapping::new().class(class("a")).unwrap();
        let mapping = mapping.class(class("b")).unwrap();
        let mapping = mapping.rule(Who::Uid(1000), "a").unwrap();
        let mapping = mapping.rule(Who::Gid(50), "b").unwrap();
        let name = |mapping: &Mapping, peer| mapping.class_of(peer).map(|class| class.name.clone());
        assert_eq!(name(&mapping, peer(1000, 50)).as_deref(), Some("a"));
        assert_eq!(name(&mapping, peer(1001, 50)).as_deref(), Some("b"));
        assert_eq!(name(&mapping, peer(50, 1000)), None);
        let mapping = mapping.rule(Who::Any, "a").unwrap();
        assert_eq!(name(&mapping, peer(50, 1000)).as_deref(), Some("a"));
    }

    #[test]
    fn whom_a_rule_is_about_is_read_as_it_is_written() {
        for who in [Who::Uid(0), Who::Uid(u32::MAX), Who::Gid(7), Who::Any] {
            assert_eq!(who.to_string().parse(), Ok(who));
        }
        for text in [
            "",
            "uid",
            "uid=",
            "uid=-1",
            "uid=4294967296",
            "user=1",
            "ANY",
            "any=1",
        ] {
            let refused = text.parse::<Who>().unwrap_err().to_string();
            assert!(refused.contains("uid=NUMBER, gid=NUMBER or any"), "{text}");
        }
    }

    #[test]
    fn a_mapping_that_makes_no_sense_is_refused() {
        let mapping = Mapping::new().class(class("a")).unwrap();
        let twice = mapping.clone().class(class("a")).unwrap_err();
        assert_eq!(
            twice.to_string(),
            "there are two classes \"a\": each needs a name of its own"
        );
        let unknown = mapping.clone().rule(Who::Any, "b").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "the rule for any names the class \"b\", which does not exist"
        );
        assert!(mapping.clone().class(class(&"n".repeat(64))).is_ok());
        for name in [String::new(), "n".repeat(65)] {
            let refused = mapping.clone().class(class(&name)).unwrap_err();
            assert!(refused.to_string().ends_with("1 to 64 are allowed"));
        }
    }
}
