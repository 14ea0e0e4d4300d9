//! Admission control: a flow is granted a rate, a burst and a delay for a limited time, or gets the reason for the
//! rejection and the best available offers.
//!
//! A granted guarantee is a [`Grant`] of the configuration, which the site keeps across changes. This module keeps the
//! requester's data and the expiry time of each; a grant expires unless it is renewed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairlane_config::class_report::ClassReport;
use fairlane_config::{Broken, ClassKind, Grant, NotGranted, Site, Size, Terms, Time};
use fairlane_core::Rate;
use fairlane_core::units::quantity;
use fairlane_daemon::{Error, Handle, Report, Source, mtu_beside};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::change::{ATTEMPTS, Changed, Refused, broken_by, changed, replace};
use crate::document::{EditError, Keys, lines};
use crate::draft::Drafts;

/// Maximum number of grants: each change checks all of them.
const MOST: usize = 256;
/// Maximum number of filters in one grant.
const MOST_FILTERS: usize = 64;
/// Maximum burst in bytes: buffer space is reserved for it.
const LONGEST_BURST: u64 = 1 << 20;
/// Maximum length of a note in bytes.
const LONGEST_NOTE: usize = 256;
/// Default lifetime of a grant, and the limits of a requested one.
const LIFETIME: Duration = Duration::from_secs(3_600);
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30 * 86_400);
/// Interval at which a failed expiry is retried.
const AGAIN: Duration = Duration::from_secs(1);

/// The grants of a site, shared by all requests.
#[derive(Debug)]
pub(crate) struct Grants {
    site: Handle,
    drafts: Arc<Drafts>,
    held: Mutex<GrantTable>,
    /// Serializes granting, revoking and breaking changes.
    turn: Mutex<()>,
    /// Signals that the earliest expiry may have changed.
    news: Notify,
}

#[derive(Debug, Default)]
struct GrantTable {
    /// The last number assigned.
    last: u64,
    all: BTreeMap<u64, One>,
}

#[derive(Clone, Debug)]
struct One {
    grant: Arc<Grant>,
    filters: Vec<Keys>,
    note: Option<String>,
    lifetime: Duration,
    ends: Instant,
    /// Its removal has begun, so it cannot be renewed any more.
    ending: bool,
    had: Had,
}

/// The guarantees of a grant's class at the time of granting.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Had {
    guaranteed_bps: Option<u64>,
    guaranteed_burst: Option<u64>,
    /// Delay bound of a packet that arrives at an empty queue.
    bound_us: Option<f64>,
    /// Delay bound of the packets covered by the requested delay.
    delay_us: Option<f64>,
    room_packets: Option<u32>,
    room_bytes: Option<u32>,
}

/// A parsed request for a grant.
#[derive(Debug)]
pub(crate) struct Wanted {
    terms: Terms,
    parent: Option<String>,
    filters: Vec<Keys>,
    texts: Vec<String>,
    lifetime: Duration,
    note: Option<String>,
}

/// A request as received.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    filter: Json,
    rate: String,
    burst: Option<String>,
    delay: Option<String>,
    lifetime: Option<Json>,
    parent: Option<String>,
    note: Option<String>,
}

/// The result of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Granted {
    /// The grant; its `id` is null in a dry run.
    grant: Json,
    #[serde(flatten)]
    pub(crate) changed: Changed,
}

fn unfit(sentence: impl Into<String>) -> EditError {
    EditError::Value(sentence.into())
}

impl Wanted {
    /// Parses the keys of a request.
    ///
    /// # Errors
    ///
    /// A missing, unknown or invalid key.
    pub(crate) fn of(keys: Keys) -> Result<Wanted, EditError> {
        let written: Written = serde_json::from_value(Json::Object(keys))
            .map_err(|error| unfit(format!("a grant has {KEYS}: {error}")))?;
        let said = |key: &str, text: &str, why: String| unfit(format!("{key} '{text}': {why}"));
        let rate = &written.rate;
        let rate = rate.parse();
        let rate = rate.map_err(|why: fairlane_core::units::ParseRateError| {
            said("rate", &written.rate, why.to_string())
        })?;
        let burst = written.burst.as_deref().map(|text| {
            let size: Result<Size, _> = text.parse();
            let Size(bytes) = size.map_err(|why| said("burst", text, why.to_string()))?;
            match (1..=LONGEST_BURST).contains(&bytes) {
                true => Ok(bytes),
                false => Err(said("burst", text, "it is from 1b to 1mb".to_owned())),
            }
        });
        let delay = written.delay.as_deref().map(|text| {
            let time: Result<Time, _> = text.parse();
            let Time(delay) = time.map_err(|why| said("delay", text, why.to_string()))?;
            match delay.0 {
                0 => Err(said("delay", text, "it is longer than nothing".to_owned())),
                _ => Ok(delay),
            }
        });
        let filters = match written.filter {
            Json::Object(keys) => vec![keys],
            Json::Array(many) => (many.into_iter())
                .map(|one| match one {
                    Json::Object(keys) => Ok(keys),
                    _ => Err(unfit("filter: each is an object of keys of a filter")),
                })
                .collect::<Result<_, _>>()?,
            _ => {
                return Err(unfit(
                    "filter: it is an object of keys of a filter, or a list of them",
                ));
            }
        };
        let note = written.note;
        if note.as_ref().is_some_and(|note| note.len() > LONGEST_NOTE) {
            return Err(unfit(format!("note: {LONGEST_NOTE} bytes are the most")));
        }
        if note
            .as_ref()
            .is_some_and(|note| note.contains(char::is_control))
        {
            return Err(unfit(
                "note: it has a character that a terminal would obey".to_owned(),
            ));
        }
        Ok(Wanted {
            terms: Terms {
                rate,
                burst: burst.transpose()?,
                delay: delay.transpose()?,
            },
            parent: written.parent,
            texts: texts(&filters)?,
            filters,
            lifetime: lifetime(written.lifetime.as_ref())?,
            note,
        })
    }
}

const KEYS: &str = "filter, rate, and burst, delay, lifetime, parent, note if they are needed";

/// Returns the filters as text of the site file.
fn texts(filters: &[Keys]) -> Result<Vec<String>, EditError> {
    if !(1..=MOST_FILTERS).contains(&filters.len()) {
        return Err(unfit(format!(
            "filter: there are 1 to {MOST_FILTERS} of them"
        )));
    }
    let texts = filters.iter().map(|keys| {
        if keys.is_empty() {
            return Err(unfit(
                "filter: it says which packets are the flow's, as in {\"destination-port\": 5060}",
            ));
        }
        for key in ["class", "priority"] {
            if keys.contains_key(key) {
                return Err(unfit(format!(
                    "filter: {key} is not for a grant, which has a class of its own and comes first"
                )));
            }
        }
        lines(keys)
    });
    texts.collect()
}

/// Parses a lifetime; without one, returns the default.
fn lifetime(written: Option<&Json>) -> Result<Duration, EditError> {
    let units = [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("min", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    let millis = match written {
        None => return Ok(LIFETIME),
        Some(Json::Number(seconds)) => seconds.as_u64().and_then(|s| s.checked_mul(1_000)),
        Some(Json::String(text)) => quantity(text, &units).ok(),
        Some(_) => None,
    };
    let given = millis.map(Duration::from_millis);
    given
        .filter(|given| (SHORTEST..=LONGEST).contains(given))
        .ok_or_else(|| {
            let written = written.map(Json::to_string).unwrap_or_default();
            unfit(format!(
                "lifetime {written}: it is from 1s to 30d, a number with s, min, h or d, as in \"10min\""
            ))
        })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grants {
    pub(crate) fn new(site: Handle, drafts: Arc<Drafts>) -> Grants {
        Grants {
            site,
            drafts,
            held: Mutex::default(),
            turn: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Returns all grants for a successor process, once a request in progress has completed.
    pub(crate) fn kept(&self) -> GrantRecords {
        let _turn = lock(&self.turn);
        let held = lock(&self.held);
        GrantRecords {
            last: held.last,
            all: held.all.iter().map(KeptGrant::of).collect(),
        }
    }

    /// Adopts the grants of a predecessor process. The site already has them.
    pub(crate) fn go_on_with(&self, kept: GrantRecords) {
        let now = Instant::now();
        let mut held = lock(&self.held);
        held.last = kept.last;
        held.all = kept.all.into_iter().map(|one| one.from(now)).collect();
        self.news.notify_one();
    }

    /// Grants a request on a link; with `dry`, only checks whether it could.
    pub(crate) fn grant(&self, link: &str, wanted: &Wanted, dry: bool) -> Result<Granted, Refused> {
        let _turn = lock(&self.turn);
        let mut attempt = 1;
        loop {
            let before = self.site.site();
            if before.grants.len() >= MOST {
                return Err(Refused::TooMany(format!(
                    "not granted: the limit of {MOST} grants is reached"
                )));
            }
            let (number, name) = self.free(|name| {
                let link = before.link(link);
                link.is_some_and(|link| link.classes.iter().any(|class| &*class.name == name))
            });
            let grant = Grant {
                link: link.to_owned(),
                name,
                parent: wanted.parent.clone(),
                filters: wanted.texts.clone(),
                reserved: wanted.terms.rate,
                terms: wanted.terms,
            };
            let (grant, source) = self.admitted(&before, grant)?;
            let after = match dry {
                true => self.site.consider(source),
                false => self.site.change(source, Some(Arc::clone(&before))),
            };
            let after = match after {
                Err(Error::Outdated) if attempt < ATTEMPTS => {
                    attempt += 1;
                    continue;
                }
                after => after?,
            };
            let one = One {
                had: Had::of(&after, &grant),
                grant,
                filters: wanted.filters.clone(),
                note: wanted.note.clone(),
                lifetime: wanted.lifetime,
                ends: Instant::now() + wanted.lifetime,
                ending: false,
            };
            let told = one.told((!dry).then_some(number), None);
            if !dry {
                let mut held = lock(&self.held);
                held.last = number;
                held.all.insert(number, one);
                self.news.notify_one();
            }
            return Ok(Granted {
                grant: told,
                changed: changed(!dry, &before, &after),
            });
        }
    }

    /// Returns the grant if it fits next to the running configuration, together with the source that contains it.
    fn admitted(&self, before: &Site, grant: Grant) -> Result<(Arc<Grant>, Source), NotGranted> {
        let (grant, source) = match self.drafts.admitted(before, grant.clone()) {
            Some(admitted) => {
                let (grant, site) = admitted?;
                (grant, Source::Site(Box::new(site)))
            }
            None => {
                let grant = grant.admit(&before.text, &mtu_beside(before), &before.grants)?;
                (Arc::new(grant), Source::Text(before.text.to_string()))
            }
        };
        let all = before.grants.iter().chain([&grant]).cloned().collect();
        Ok((grant, Source::Granting(Box::new(source), all)))
    }

    /// Returns the next grant number whose class name is not in use.
    fn free(&self, is_taken: impl Fn(&str) -> bool) -> (u64, String) {
        let last = lock(&self.held).last;
        let mut names = (last + 1..).map(|number| (number, format!("grant-{number}")));
        let free = names.find(|(_, name)| !is_taken(name));
        free.expect("there are more numbers than classes")
    }

    /// Returns all grants with their measurements, by number.
    pub(crate) fn all(&self, report: &Report) -> Vec<Json> {
        let all = lock(&self.held).all.clone();
        let told = all.iter();
        told.map(|(&number, one)| one.told(Some(number), measured(report, &one.grant)))
            .collect()
    }

    /// Returns one grant with its measurements.
    pub(crate) fn one(&self, number: &str, report: &Report) -> Result<Json, EditError> {
        let (number, one) = self.find(number)?;
        Ok(one.told(Some(number), measured(report, &one.grant)))
    }

    /// Finds a grant by its number or its class name.
    fn find(&self, written: &str) -> Result<(u64, One), EditError> {
        let held = lock(&self.held);
        let number = written.strip_prefix("grant-").unwrap_or(written);
        let number = number.parse().ok();
        let found = number.and_then(|number: u64| held.all.get_key_value(&number));
        let found = found.map(|(&number, one)| (number, one.clone()));
        found.ok_or_else(|| {
            let all: Vec<_> = held.all.keys().map(u64::to_string).collect();
            let there = match all.is_empty() {
                true => String::new(),
                false => format!("; there is {}", all.join(", ")),
            };
            EditError::Missing(format!(
                "no such grant: {written} (it may have expired or been revoked{there})"
            ))
        })
    }

    /// Returns an error if a class belongs to a grant.
    ///
    /// # Errors
    ///
    /// A sentence that says how to change the grant instead.
    pub(crate) fn guard(&self, link: &str, class: &str) -> Result<(), EditError> {
        let held = lock(&self.held);
        let mut all = held.all.iter();
        let owner = all.find(|(_, one)| one.grant.link == link && one.grant.name == class);
        match owner {
            None => Ok(()),
            Some((number, _)) => Err(EditError::Conflict(format!(
                "class '{class}' is that of grant {number}: renew it, or revoke it (ctl revoke {number})"
            ))),
        }
    }

    /// Sets a grant's lifetime, counted from now; with `dry`, only checks that the grant exists.
    pub(crate) fn renew(&self, number: &str, keys: &Keys, dry: bool) -> Result<Json, EditError> {
        if let Some(key) = keys.keys().find(|key| *key != "lifetime") {
            return Err(unfit(format!(
                "{key}: a grant is renewed as it is, and only its 'lifetime' is given; ask for another \
                 one, and revoke this one"
            )));
        }
        let (number, mut one) = self.find(number)?;
        // The former lifetime is the default.
        let lifetime = match keys.get("lifetime") {
            None => one.lifetime,
            written => lifetime(written)?,
        };
        if one.ending {
            return Err(EditError::Missing(format!("grant {number} is at its end")));
        }
        (one.lifetime, one.ends) = (lifetime, Instant::now() + lifetime);
        if !dry {
            let mut held = lock(&self.held);
            match held.all.get_mut(&number) {
                Some(there) if !there.ending => *there = one.clone(),
                _ => return Err(EditError::Missing(format!("grant {number} is at its end"))),
            }
            self.news.notify_one();
        }
        Ok(one.told(Some(number), None))
    }

    /// Revokes a grant; with `dry`, only reports the effects. If other grants cannot be kept because an interface has
    /// changed, the call is rejected, or with `breaks` it ends those too.
    pub(crate) fn revoke(&self, number: &str, dry: bool, breaks: bool) -> Result<Changed, Refused> {
        let (number, one) = self.find(number)?;
        let make = |kept: Option<&[_]>| self.without(&[&one.grant.name], kept, dry);
        let changed = match breaks {
            true => self.despite(true, make)?,
            false => {
                let _turn = lock(&self.turn);
                make(None)?
            }
        };
        if !dry {
            lock(&self.held).all.remove(&number);
        }
        Ok(changed)
    }

    /// Applies the configuration without these grants. `kept` replaces the site's list of grants if it is given.
    fn without(
        &self,
        names: &[&str],
        kept: Option<&[Arc<Grant>]>,
        dry: bool,
    ) -> Result<Changed, Refused> {
        let mut attempt = 1;
        loop {
            let before = self.site.site();
            let kept = kept.unwrap_or(&before.grants).iter();
            let kept = kept.filter(|grant| !names.contains(&&*grant.name)).cloned();
            let kept: Vec<_> = kept.collect();
            let source = match self.drafts.beside(&before, &kept) {
                Some(site) => Source::Site(Box::new(site)),
                None => Source::Text(before.text.to_string()),
            };
            let source = Source::Granting(Box::new(source), kept);
            let base = (!dry).then(|| Arc::clone(&before));
            match replace(&self.site, source, base, &before) {
                Err(Refused::Site(Error::Outdated)) if attempt < ATTEMPTS => attempt += 1,
                done => return done,
            }
        }
    }

    /// Makes a change, passing it the grants to keep. A change that would break grants is rejected, or with `breaks`
    /// made without those.
    pub(crate) fn despite(
        &self,
        breaks: bool,
        make: impl Fn(Option<&[Arc<Grant>]>) -> Result<Changed, Refused>,
    ) -> Result<Changed, Refused> {
        if !breaks {
            return make(None);
        }
        let _turn = lock(&self.turn);
        let mut kept: Option<Vec<Arc<Grant>>> = None;
        let mut ended: Vec<Broken> = Vec::new();
        loop {
            let mut changed = match make(kept.as_deref()) {
                Ok(changed) => changed,
                Err(refused) => {
                    let left = kept.unwrap_or_else(|| self.site.site().grants.clone());
                    let is_broken = |grant: &Arc<Grant>| {
                        let mut broken = broken_by(&refused).iter();
                        broken.any(|broken| broken.grant.name == grant.name)
                    };
                    // Each iteration has fewer grants, so the loop ends.
                    if !left.iter().any(is_broken) {
                        return Err(refused);
                    }
                    kept = Some(
                        left.iter()
                            .filter(|grant| !is_broken(grant))
                            .cloned()
                            .collect(),
                    );
                    ended.extend_from_slice(broken_by(&refused));
                    continue;
                }
            };
            if changed.applied {
                let is_left =
                    |one: &One| ended.iter().all(|gone| gone.grant.name != one.grant.name);
                lock(&self.held).all.retain(|_, one| is_left(one));
            }
            changed.ended = ended.iter().map(Into::into).collect();
            return Ok(changed);
        }
    }

    /// Ends each grant when it expires, for as long as the site runs.
    pub(crate) async fn end_in_time(self: Arc<Self>) {
        loop {
            let next = {
                let held = lock(&self.held);
                held.all.values().map(|one| one.ends).min()
            };
            let Some(next) = next else {
                self.news.notified().await;
                continue;
            };
            let wait = next.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                // The loop re-evaluates in either case.
                let _ = timeout(wait, self.news.notified()).await;
                continue;
            }
            let grants = Arc::clone(&self);
            let ended = spawn_blocking(move || grants.end_due()).await;
            if !ended.is_ok_and(|ended| ended.is_ok()) {
                sleep(AGAIN).await;
            }
        }
    }

    /// Ends the expired grants.
    fn end_due(&self) -> Result<(), Refused> {
        let _turn = lock(&self.turn);
        let now = Instant::now();
        let mut due = Vec::new();
        for one in lock(&self.held).all.values_mut() {
            if one.ends <= now {
                one.ending = true;
                due.push(Arc::clone(&one.grant));
            }
        }
        let names: Vec<_> = due.iter().map(|grant| &*grant.name).collect();
        self.without(&names, None, false)?;
        let is_due = |one: &One| due.iter().any(|grant| grant.name == one.grant.name);
        lock(&self.held).all.retain(|_, one| !is_due(one));
        Ok(())
    }
}

/// All grants, as handed over from one process to another.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct GrantRecords {
    last: u64,
    all: Vec<KeptGrant>,
}

/// A grant in the handover: rates in bits per second, times in nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
struct KeptGrant {
    number: u64,
    link: String,
    class: String,
    parent: Option<String>,
    texts: Vec<String>,
    reserved: u64,
    rate: u64,
    burst: Option<u64>,
    delay: Option<u64>,
    filters: Vec<Keys>,
    note: Option<String>,
    lifetime: Duration,
    left: Duration,
    had: Had,
}

impl GrantRecords {
    /// Returns the grants that the site adopts.
    pub(crate) fn grants(&self) -> Vec<Arc<Grant>> {
        self.all.iter().map(|one| Arc::new(one.grant())).collect()
    }
}

impl KeptGrant {
    fn of((&number, one): (&u64, &One)) -> KeptGrant {
        let Grant {
            link,
            name,
            parent,
            filters,
            reserved,
            terms,
        } = &*one.grant;
        KeptGrant {
            number,
            link: link.clone(),
            class: name.clone(),
            parent: parent.clone(),
            texts: filters.clone(),
            reserved: reserved.bps(),
            rate: terms.rate.bps(),
            burst: terms.burst,
            delay: terms.delay.map(|delay| delay.0),
            filters: one.filters.clone(),
            note: one.note.clone(),
            lifetime: one.lifetime,
            left: one.ends.saturating_duration_since(Instant::now()),
            had: one.had.clone(),
        }
    }

    fn grant(&self) -> Grant {
        // The value was valid when it was handed over.
        let rate = |bps| Rate::from_bps(bps).unwrap_or(Rate::MIN);
        Grant {
            link: self.link.clone(),
            name: self.class.clone(),
            parent: self.parent.clone(),
            filters: self.texts.clone(),
            reserved: rate(self.reserved),
            terms: Terms {
                rate: rate(self.rate),
                burst: self.burst,
                delay: self.delay.map(fairlane_core::Nanos),
            },
        }
    }

    fn from(self, now: Instant) -> (u64, One) {
        let one = One {
            grant: Arc::new(self.grant()),
            filters: self.filters,
            note: self.note,
            lifetime: self.lifetime,
            ends: now + self.left,
            had: self.had,
            ending: false,
        };
        (self.number, one)
    }
}

impl Had {
    /// Returns the guarantees that a grant has in a site.
    fn of(site: &fairlane_config::Site, grant: &Grant) -> Had {
        let link = site.link(&grant.link);
        let class = link.and_then(|link| {
            let mut classes = link.classes.iter();
            let at = classes.position(|class| *class.name == *grant.name)?;
            Some((&link.classes[at], link.guarantees().swap_remove(at)))
        });
        let us = |delay: fairlane_core::Nanos| delay.0 as f64 / 1e3;
        let room = class.as_ref().and_then(|(class, _)| match &class.kind {
            ClassKind::Leaf(queue) => Some(queue.room),
            _ => None,
        });
        let has = class.map(|(_, has)| has);
        let has = has.as_ref();
        Had {
            guaranteed_bps: has.and_then(|has| has.rate.ok()),
            guaranteed_burst: has.and_then(|has| has.burst),
            bound_us: has.and_then(|has| has.delay?.ok()).map(us),
            delay_us: has.and_then(|has| grant.terms.delay_in(has).ok()).map(us),
            room_packets: room.map(|room| room.packets),
            room_bytes: room.map(|room| room.bytes),
        }
    }
}

impl One {
    /// Returns the grant as shown to clients. `number` is null in a dry run.
    fn told(&self, number: Option<u64>, measured: Option<Json>) -> Json {
        let Grant { terms, .. } = &*self.grant;
        let left = self.ends.saturating_duration_since(Instant::now());
        json!({
            "id": number,
            "link": self.grant.link,
            "class": self.grant.name,
            "parent": self.grant.parent,
            "filter": self.filters,
            "note": self.note,
            "rate_bps": terms.rate.bps(),
            "burst": terms.burst,
            "delay_us": terms.delay.map(|delay| delay.0 as f64 / 1e3),
            "reserved_bps": self.grant.reserved.bps(),
            "granted": self.had,
            "lifetime_s": self.lifetime.as_secs_f64(),
            "expires_in_s": (left.as_millis() as f64) / 1e3,
            "measured": measured,
        })
    }
}

/// Returns the measurements of a grant's class in the last state.
fn measured(report: &Report, grant: &Grant) -> Option<Json> {
    let link = report.links.iter().find(|link| *link.name == *grant.link)?;
    let mut classes = link.classes.iter();
    let class: &ClassReport = classes.find(|class| *class.terms.name == *grant.name)?;
    Some(json!({
        "guaranteed_bps": class.terms.guaranteed_bps,
        "bound_us": class.terms.bound_us(),
        "sent_bps": class.recent.map(|recent| recent.sent_bps),
        "sent_packets": class.sent_packets,
        "queued_packets": class.queued_packets,
        "drops": class.drops.total(),
        "delay_max_us": class.delay_us.map(|delay| delay.max),
        "violations": class.recent.map_or(0, |recent| recent.violations),
    }))
}

/// Returns the answer to a rejected request.
pub(crate) fn refusal(refused: &NotGranted) -> Json {
    let best = match refused {
        NotGranted::Full { best, .. } => &best[..],
        _ => &[],
    };
    let best = best.iter().map(|offer| {
        json!({
            "rate": offer.rate.to_string(),
            "delay": offer.delay.map(|delay| Time(delay).to_string()),
        })
    });
    json!({ "error": refused.to_string(), "best": best.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(json: Json) -> Result<Wanted, String> {
        let Json::Object(keys) = json else {
            panic!("{json}");
        };
        Wanted::of(keys).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_says_what_is_wanted_in_the_words_of_the_file() {
        let given = wanted(json!({
            "filter": [{"source": "10.0.0.1"}, {"destination-port": 5060}],
            "rate": "2mbit", "burst": "10kb", "delay": "20ms", "lifetime": "10min",
        }));
        let given = given.unwrap();
        assert_eq!(given.terms.rate.bps(), 2_000_000);
        assert_eq!(given.terms.burst, Some(10_240));
        assert_eq!(given.terms.delay, Some(fairlane_core::Nanos(20_000_000)));
        assert_eq!(given.lifetime, Duration::from_secs(600));
        assert_eq!(given.texts[1].trim(), "destination-port = 5060");
        let plain = wanted(json!({"filter": {"pid": 7}, "rate": "1kbit"})).unwrap();
        assert_eq!((plain.terms.burst, plain.terms.delay), (None, None));
        assert_eq!(plain.lifetime, LIFETIME);
    }

    #[test]
    fn impossible_grant_is_refused_with_a_sentence() {
        let filter = json!({"pid": 7});
        for (request, names) in [
            (json!({"rate": "2mbit"}), "filter"),
            (json!({"filter": filter}), "rate"),
            (json!({"filter": filter, "rate": "2"}), "rate '2'"),
            (json!({"filter": filter, "rate": 2}), "string"),
            (
                json!({"filter": filter, "rate": "2mbit", "speed": 1}),
                "speed",
            ),
            (json!({"filter": {}, "rate": "2mbit"}), "which packets"),
            (json!({"filter": [], "rate": "2mbit"}), "1 to 64"),
            (json!({"filter": "port 7", "rate": "2mbit"}), "an object"),
            (json!({"filter": [7], "rate": "2mbit"}), "an object"),
            (
                json!({"filter": {"class": "web"}, "rate": "2mbit"}),
                "class",
            ),
            (
                json!({"filter": {"priority": 7}, "rate": "2mbit"}),
                "priority",
            ),
            (
                json!({"filter": filter, "rate": "2mbit", "burst": "2mb"}),
                "1mb",
            ),
            (
                json!({"filter": filter, "rate": "2mbit", "burst": "0b"}),
                "1b",
            ),
            (
                json!({"filter": filter, "rate": "2mbit", "delay": "0s"}),
                "longer",
            ),
            (
                json!({"filter": filter, "rate": "2mbit", "delay": "7"}),
                "delay '7'",
            ),
        ] {
            let sentence = wanted(request).unwrap_err();
            assert!(sentence.contains(names), "{sentence}");
        }
    }

    #[test]
    fn a_lifetime_lies_between_a_second_and_thirty_days() {
        let of = |written: Json| lifetime(Some(&written)).ok().map(|it| it.as_millis());
        for (written, millis) in [
            (json!("1s"), Some(1_000)),
            (json!("999ms"), None),
            (json!("1.5s"), Some(1_500)),
            (json!("10m"), Some(600_000)),
            (json!("10min"), Some(600_000)),
            (json!("30d"), Some(2_592_000_000)),
            (json!("30.001d"), None),
            (json!(1), Some(1_000)),
            (json!(0), None),
            (json!(-1), None),
            (json!(u64::MAX), None),
            (json!("soon"), None),
            (json!(null), None),
        ] {
            assert_eq!(of(written.clone()), millis, "{written}");
        }
    }
}
