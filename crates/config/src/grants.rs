//! Grants: guarantees given to a flow while a site runs, in addition to its file.
//!
//! A grant is a class with its filters that is not in the file. It stays in force across reloads
//! ([`Site::parse_beside`](crate::Site::parse_beside)): its class follows the file's classes, its filters precede the
//! file's. A text that would break grants is refused, with the names of those grants.

use std::fmt;
use std::sync::Arc;

use fairlane_core::{Nanos, Rate};

use crate::diagnostic::SiteError;
use crate::guarantee::{Guarantee, NoGuarantee};
use crate::site::MtuOf;
use crate::units::{Size, Time};
use crate::{read, site};

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

/// The reason why a grant is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotGranted {
    /// The site's own text is no longer valid.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// There is no such link.
    #[error("{0}")]
    NoLink(String),
    /// It is not possible at all, or not below this class.
    #[error("{0}")]
    Unfit(String),
    /// It would be possible if other classes had less.
    #[error("{}", refusal(.reason, .best))]
    Full {
        /// The reason: a sentence without its end.
        reason: String,
        /// The alternatives available now: the highest rate with the requested delay, and the shortest delay with the
        /// requested rate.
        best: Vec<Offer>,
    },
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

fn refusal(reason: &str, best: &[Offer]) -> String {
    let offers: Vec<_> = best.iter().map(Offer::to_string).collect();
    match offers[..] {
        [] => format!("not granted: {reason}; nothing could be had"),
        _ => format!(
            "not granted: {reason}; the best that could be had is {}",
            offers.join(", or ")
        ),
    }
}

impl Terms {
    /// Returns the delay that `has` bounds, of a class whose arrivals have this burst.
    pub fn delay_in(&self, has: &Guarantee) -> Result<Nanos, NoGuarantee> {
        has.delay.unwrap_or(Err(NoGuarantee::Inner))
    }

    /// Checks whether a class with these guarantees gets the granted terms, and returns the shortfall if not. Whole
    /// weights may cost up to a thousandth of the rate, as for any class.
    pub fn kept_by(&self, has: &Guarantee) -> Result<(), String> {
        self.compared(has, self.rate.bps() - self.rate.bps() / 1000)
    }

    /// Checks the same, without tolerance.
    pub(crate) fn exactly_kept_by(&self, has: &Guarantee) -> Result<(), String> {
        self.compared(has, self.rate.bps())
    }

    fn compared(&self, has: &Guarantee, least: u64) -> Result<(), String> {
        let nothing = |why: NoGuarantee| format!("nothing would be guaranteed, {why}");
        let bps = has.rate.map_err(nothing)?;
        if bps < least {
            return Err(format!("{bps}bit would be guaranteed, not {}", self.rate));
        }
        if let Some(burst) = self.burst
            && has.burst.is_none_or(|fits| fits < burst)
        {
            return Err(format!("a burst of {} would not fit", Size(burst)));
        }
        self.in_time(has)
    }

    /// Checks whether the delay alone is kept.
    pub(crate) fn in_time(&self, has: &Guarantee) -> Result<(), String> {
        let Some(delay) = self.delay else {
            return Ok(());
        };
        match self.delay_in(has) {
            Ok(would) if would <= delay => Ok(()),
            Ok(would) => Err(format!(
                "its packets could take {}, not {}",
                Time(rounded(would)),
                Time(delay)
            )),
            Err(why) => Err(format!("no delay would be guaranteed, {why}")),
        }
    }
}

/// Rounds up to whole microseconds.
pub(crate) fn rounded(delay: Nanos) -> Nanos {
    Nanos(delay.0.div_ceil(1_000).saturating_mul(1_000))
}

impl Grant {
    /// Finds capacity for a grant in addition to others and a valid text. Returns it with the least reserved rate, in
    /// whole kilobits if that is more than the granted rate, that keeps its terms whatever siblings are added later,
    /// and breaks no other guarantee. The value of `reserved` on input is ignored.
    ///
    /// Reads the link's classes about ten times if it is granted, fifty times if it is refused: O(n) each, since a
    /// class's own settings are read once.
    ///
    /// # Errors
    ///
    /// The grant is refused, with the best alternatives.
    pub fn admit(
        self,
        text: &str,
        mtu: MtuOf<'_>,
        others: &[Arc<Grant>],
    ) -> Result<Grant, NotGranted> {
        let (site, mut tables) = site::Site::tables_of(text, "configuration", mtu)?;
        read::admit(&mut tables.0, &site, &[], mtu, others, self)
    }
}
