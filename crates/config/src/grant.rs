//! A grant, its terms, and an offer of other terms.

use std::fmt;
use std::sync::Arc;

use fairlane_core::{Nanos, Rate};

use crate::units::Time;

/// A class that is granted to a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its link's name.
    pub link: String,
    /// Its name, which must differ from those of the link's classes.
    pub name: String,
    /// The parent class; `None` for a part of the whole link.
    pub parent: Option<String>,
    /// The flow's filters: the keys of each, as in the file, without `class` and `priority`.
    pub filters: Vec<String>,
    /// The rate reserved for its class, at least the granted rate: a shorter delay may need more.
    pub reserved: Rate,
    /// The granted terms.
    pub terms: Terms,
}

/// The guarantees of a flow that keeps to its rate and burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its long-term rate.
    pub rate: Rate,
    /// Bytes that it may send at once in addition to its rate without loss. By default, as for any class.
    pub burst: Option<u64>,
    /// The delay bound of a flow that keeps to its rate and burst; without a burst, to one longest packet at once.
    pub delay: Option<Nanos>,
}

/// A grant that a configuration would leave less than it was promised.
///
/// ```
/// use fairlane_config::{Broken, Grant, Site, SiteError, Terms};
/// use std::sync::Arc;
///
/// let text = r#"
/// [[link]]
/// name = "up"
/// to = "outside"
/// rate = "10mbit"
///
/// [[link.class]]
/// name = "voice"
/// rate = "2mbit"
///
/// [[link.class]]
/// name = "rest"
/// weight = 1
/// default = true
/// "#;
/// // Nothing is known of this machine's interfaces.
/// let mtu = &|_: &str| None;
/// let terms = Terms { rate: "1mbit".parse()?, burst: None, delay: None };
/// let call = Grant {
///     link: "up".to_owned(),
///     name: "call".to_owned(),
///     parent: None,
///     filters: vec!["dscp = \"cs5\"".to_owned()],
///     reserved: terms.rate,
///     terms,
/// };
/// let granted = Arc::new(call.admit(text, mtu, &[])?);
///
/// // A file that would leave it less is refused, and says to whom what was promised.
/// let greedy = text.replace("2mbit", "9500kbit");
/// match Site::parse_beside(&greedy, "site.toml", mtu, &[granted]) {
///     Err(SiteError::Grants { broken, .. }) => {
///         let Broken { grant, reason } = &broken[0];
///         println!("{}: {reason}", grant.name);
///     }
///     other => panic!("9.5 and 1 are more than 10: {other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Broken {
    /// The grant.
    pub grant: Arc<Grant>,
    /// The reason: a sentence without its end.
    pub reason: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { grant, reason } = self;
        write!(f, "{} of link '{}' ({reason})", grant.name, grant.link)
    }
}

/// A grant that is available, with the requested burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The rate.
    pub rate: Rate,
    /// The delay, if one was requested, in whole microseconds.
    pub delay: Option<Nanos>,
}

impl Offer {
    /// Returns the next offer after one that was refused: with a lower rate, or a longer delay, by steps that double.
    pub(crate) fn below(self, refused: Offer, tries: u32) -> Offer {
        let step = 1_000 << tries;
        match (self.delay, refused.delay) {
            (Some(delay), Some(former)) => Offer {
                delay: Some(delay.max(Nanos(former.0 + step))),
                ..self
            },
            _ => {
                let less = Rate::from_bps(refused.rate.bps().saturating_sub(step));
                let rate = less.map_or(self.rate, |less| less.min(self.rate));
                Offer { rate, ..self }
            }
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rate.fmt(f)?;
        match self.delay {
            Some(delay) => write!(f, " within {}", Time(delay)),
            None => Ok(()),
        }
    }
}

/// Rounds up to whole microseconds.
pub(crate) fn rounded(delay: Nanos) -> Nanos {
    Nanos(delay.0.div_ceil(1_000).saturating_mul(1_000))
}
