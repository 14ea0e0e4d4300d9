//! Admission of clients, and their resources.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlane_io::PeerCredentials;
use fairlane_mailbox::shared::Geometry;

use super::daemon::{AttachConfig, ListenError};
use super::mapping::{Class, Mapping};
use crate::link::Link;

/// Connections that will be rejected and may still wait for their hello, at a time.
#[doc(hidden)]
pub const MOST_PENDING_REFUSALS: usize = 64;

/// Those of them that are of one user.
#[doc(hidden)]
pub const MOST_PENDING_REFUSALS_OF_A_USER: usize = 8;

/// The grant for every client of a class.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) class: Class,
    pub(super) geometry: Geometry,
}

/// A place among the clients. It is taken before the hello, so that a silent connection counts
/// against its own user and class, and is held until the arbiter has released the flow and the
/// mailbox is empty, so that a client that attaches repeatedly has no more flows, and no more
/// memory, than one that stays.
#[must_use = "a place is given back to the admission"]
pub(super) struct Slot {
    pub(super) offer: Arc<Offer>,
    class: usize,
    uid: u32,
}

/// Leave to wait for the hello and be refused then.
#[must_use = "it is given back to the admission"]
pub(super) struct PendingRefusal {
    uid: u32,
}

/// The resources of one user.
struct User {
    places: usize,
    pending_refusals: usize,
    /// When the token bucket of attachments is full again.
    even: Instant,
}

impl User {
    fn new(now: Instant) -> User {
        User {
            places: 0,
            pending_refusals: 0,
            even: now,
        }
    }

    fn has_something(&self, now: Instant) -> bool {
        self.places > 0 || self.pending_refusals > 0 || self.even > now
    }
}

/// How often a user may attach: a bucket of tokens, as the time in which it fills.
#[derive(Clone, Copy)]
struct Pace {
    each: Duration,
    most: u32,
    per_second: u32,
}

impl Pace {
    fn of(config: &AttachConfig) -> Pace {
        let per_second = config.attachments_per_second.max(1);
        let places = u32::try_from(config.most_of_a_user).unwrap_or(u32::MAX);
        Pace {
            each: Duration::from_secs(1) / per_second,
            most: places.max(per_second),
            per_second,
        }
    }

    /// Returns when the bucket will be full again after one more attachment, or `None` if that is
    /// not allowed.
    fn once_more(self, even: Instant, now: Instant) -> Option<Instant> {
        let after = even.max(now) + self.each;
        (after <= now + self.each.saturating_mul(self.most)).then_some(after)
    }
}

/// Fewest users at which those without resources are removed.
const FEW_USERS: usize = 64;

/// Gives the places.
pub(super) struct Admission {
    mapping: Mapping,
    /// By the number of the class.
    offers: Vec<Arc<Offer>>,
    /// Places taken, by the number of the class.
    taken: Vec<usize>,
    /// Of all classes.
    places: usize,
    pending_refusals: usize,
    /// Of all mailboxes, in bytes.
    memory: u64,
    /// Users that hold anything.
    users: HashMap<u32, User>,
    most: usize,
    most_of_a_user: usize,
    most_memory: u64,
    pace: Pace,
    /// Users at which those that have nothing are forgotten.
    many_users: usize,
}

impl Admission {
    pub(super) fn new(config: &AttachConfig, link: Link) -> Result<Self, ListenError> {
        let offers = config.mapping.classes().iter().map(|class| {
            let max = class.flow.max_length;
            if link.carried(max).is_none() {
                return Err(ListenError::TooLong {
                    class: class.name.clone(),
                    max,
                    overhead: link.overhead,
                });
            }
            let geometry = Geometry::new(config.slots, max.get() as usize);
            let geometry = geometry.map_err(|error| ListenError::Geometry {
                class: class.name.clone(),
                error,
            })?;
            let bytes = geometry.bytes() as u64;
            if bytes > config.most_memory {
                return Err(ListenError::Memory {
                    class: class.name.clone(),
                    bytes,
                    most: config.most_memory,
                });
            }
            let class = class.clone();
            Ok(Arc::new(Offer { class, geometry }))
        });
        let offers: Vec<_> = offers.collect::<Result<_, _>>()?;
        Ok(Admission {
            taken: vec![0; offers.len()],
            offers,
            mapping: config.mapping.clone(),
            places: 0,
            pending_refusals: 0,
            memory: 0,
            users: HashMap::new(),
            most: config.most_clients,
            most_of_a_user: config.most_of_a_user,
            most_memory: config.most_memory,
            pace: Pace::of(config),
            many_users: FEW_USERS,
        })
    }

    /// Gives a place to a process, or returns the reason why not.
    pub(super) fn admit(&mut self, peer: PeerCredentials, now: Instant) -> Result<Slot, String> {
        let PeerCredentials { uid, gid, .. } = peer;
        let Some(class) = self.mapping.class_number(peer) else {
            return Err(format!(
                "no rule gives uid {uid}, gid {gid} a class: the daemon's configuration must name one"
            ));
        };
        let offer = &self.offers[class];
        let (of_class, of_all) = (self.taken[class], self.places);
        let of_user = self.users.get(&uid).map_or(0, |user| user.places);
        if of_class >= offer.class.most_clients {
            return Err(format!(
                "the class \"{}\" has {of_class} clients, its limit",
                offer.class.name
            ));
        }
        if of_all >= self.most {
            return Err(format!(
                "there are {of_all} processes attached already, the most that were configured"
            ));
        }
        if of_user >= self.most_of_a_user {
            return Err(format!(
                "uid {uid} has {of_user} processes attached or about to be, the most that one user may have"
            ));
        }
        let (bytes, most) = (offer.geometry.bytes() as u64, self.most_memory);
        let memory = self.memory + bytes;
        if memory > most {
            return Err(format!(
                "a mailbox takes {bytes} bytes, and {} of the {most} for all of them are taken",
                self.memory
            ));
        }
        let even = self.users.get(&uid).map_or(now, |user| user.even);
        let Pace {
            most, per_second, ..
        } = self.pace;
        let Some(even) = self.pace.once_more(even, now) else {
            return Err(format!(
                "uid {uid} attaches too often: a user may do so {most} times at once, and {per_second} times a second"
            ));
        };
        let offer = Arc::clone(offer);
        self.taken[class] += 1;
        self.places += 1;
        self.memory = memory;
        let user = self.user(uid, now);
        user.places += 1;
        user.even = even;
        Ok(Slot { offer, class, uid })
    }

    /// The place is free again.
    pub(super) fn release(&mut self, slot: Slot) {
        self.taken[slot.class] -= 1;
        self.places -= 1;
        self.memory -= slot.offer.geometry.bytes() as u64;
        if let Some(user) = self.users.get_mut(&slot.uid) {
            user.places -= 1;
        }
    }

    /// Leave to wait, for one that got no place; none if too many have it.
    pub(super) fn refuse_later(&mut self, uid: u32, now: Instant) -> Option<PendingRefusal> {
        let of_user = self.users.get(&uid).map_or(0, |user| user.pending_refusals);
        if self.pending_refusals >= MOST_PENDING_REFUSALS
            || of_user >= MOST_PENDING_REFUSALS_OF_A_USER
        {
            return None;
        }
        self.pending_refusals += 1;
        self.user(uid, now).pending_refusals += 1;
        Some(PendingRefusal { uid })
    }

    pub(super) fn refusal_ended(&mut self, pending: PendingRefusal) {
        self.pending_refusals -= 1;
        if let Some(user) = self.users.get_mut(&pending.uid) {
            user.pending_refusals -= 1;
        }
    }

    /// Returns the entry of a user. Once there are many, removes those without resources: there are
    /// four billion possible users.
    fn user(&mut self, uid: u32, now: Instant) -> &mut User {
        if self.users.len() >= self.many_users {
            self.users.retain(|_, user| user.has_something(now));
            self.many_users = FEW_USERS.max(2 * self.users.len());
        }
        self.users.entry(uid).or_insert_with(|| User::new(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::Who;
    use fairlane_core::{FlowConfig, Length, Rate, Weight};

    fn admission(most_of_a_user: usize, attachments_per_second: u32) -> Admission {
        let flow = FlowConfig::new(Weight::ONE, Length::new(100).unwrap());
        let class = Class {
            name: "all".to_owned(),
            flow,
            most_clients: 1_000,
        };
        let mapping = Mapping::new().class(class).unwrap();
        let config = AttachConfig {
            most_of_a_user,
            attachments_per_second,
            ..AttachConfig::new(mapping.rule(Who::Any, "all").unwrap())
        };
        Admission::new(&config, Link::new(Rate::from_bps(8_000).unwrap())).unwrap()
    }

    fn peer(uid: u32) -> PeerCredentials {
        PeerCredentials {
            uid,
            gid: 0,
            pid: 1,
        }
    }

    #[test]
    fn a_user_who_comes_and_goes_does_so_at_its_pace_and_slows_down_nobody_else() {
        let mut admission = admission(5, 10);
        let start = Instant::now();
        let mut come_and_go = |uid, after| {
            let slot = admission.admit(peer(uid), start + Duration::from_millis(after));
            slot.map(|slot| admission.release(slot))
        };
        for n in 0..10 {
            assert!(come_and_go(7, 0).is_ok(), "{n}");
        }
        assert_eq!(
            come_and_go(7, 99).unwrap_err(),
            "uid 7 attaches too often: a user may do so 10 times at once, and 10 times a second"
        );
        assert!(come_and_go(8, 99).is_ok());
        // A place that it could not have costs nothing of it.
        assert!(come_and_go(7, 100).is_ok());
        assert!(come_and_go(7, 101).is_err());
        for n in 0..10 {
            assert!(come_and_go(7, 1_100).is_ok(), "{n}");
        }
        assert!(come_and_go(7, 1_100).is_err());
    }

    #[test]
    fn all_places_may_be_taken_at_once() {
        let mut admission = admission(50, 10);
        let now = Instant::now();
        let slots: Vec<Slot> = (0..50)
            .map(|_| admission.admit(peer(7), now).unwrap())
            .collect();
        for slot in slots {
            admission.release(slot);
        }
        assert!(admission.admit(peer(7), now).is_err());
    }

    #[test]
    fn users_who_have_nothing_any_more_are_forgotten() {
        let mut admission = admission(5, 10);
        let start = Instant::now();
        let staying = admission.admit(peer(0), start).unwrap();
        for uid in 1..10_000 {
            let now = start + Duration::from_millis(u64::from(uid) * 50);
            let slot = admission.admit(peer(uid), now).unwrap();
            admission.release(slot);
            assert!(admission.users.len() <= 2 * FEW_USERS);
        }
        assert_eq!(admission.users[&0].places, 1);
        admission.release(staying);
    }
}
