//! Who gets a place, and what goes with it.

use std::collections::HashMap;
use std::sync::Arc;

use fairlane_io::PeerCredentials;
use fairlane_mailbox::shared::Geometry;

use super::daemon::{AttachConfig, ListenError};
use super::mapping::{Class, Mapping};
use crate::link::Link;

/// Connections that are to be refused and may still wait for their hello, at a time.
pub const MOST_STRANGERS: usize = 64;

/// Those of them that are of one user.
pub const MOST_STRANGERS_OF_A_USER: usize = 8;

/// What every client of a class gets.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) class: Class,
    pub(super) geometry: Geometry,
}

/// A place among the clients. It is taken before the hello, so that who is silent takes it from its
/// own user and class, and until the arbiter has let go of the flow and the mailbox is empty, so
/// that a client that comes and goes has no more flows, and no more memory, than one that stays.
#[must_use = "a place is given back to the desk"]
pub(super) struct Seat {
    pub(super) offer: Arc<Offer>,
    class: usize,
    uid: u32,
}

/// Leave to wait for the hello and be refused then.
#[must_use = "it is given back to the desk"]
pub(super) struct Bench {
    uid: u32,
}

/// What one user has.
#[derive(Default)]
struct User {
    places: usize,
    strangers: usize,
}

/// Gives the places.
pub(super) struct Desk {
    mapping: Mapping,
    /// By the number of the class.
    offers: Vec<Arc<Offer>>,
    /// Places taken, by the number of the class.
    taken: Vec<usize>,
    /// Of all classes.
    places: usize,
    strangers: usize,
    /// Of all mailboxes, in bytes.
    memory: u64,
    /// Those who have anything.
    users: HashMap<u32, User>,
    most: usize,
    most_of_a_user: usize,
    most_memory: u64,
}

impl Desk {
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
        Ok(Desk {
            taken: vec![0; offers.len()],
            offers,
            mapping: config.mapping.clone(),
            places: 0,
            strangers: 0,
            memory: 0,
            users: HashMap::new(),
            most: config.most_clients,
            most_of_a_user: config.most_of_a_user,
            most_memory: config.most_memory,
        })
    }

    /// A place for a process, or why it gets none.
    pub(super) fn seat(&mut self, peer: PeerCredentials) -> Result<Seat, String> {
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
                "the class \"{}\" has {of_class} clients already, the most that it may have",
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
        let offer = Arc::clone(offer);
        self.taken[class] += 1;
        self.places += 1;
        self.memory = memory;
        self.users.entry(uid).or_default().places += 1;
        Ok(Seat { offer, class, uid })
    }

    /// The place is free again.
    pub(super) fn leave(&mut self, seat: Seat) {
        self.taken[seat.class] -= 1;
        self.places -= 1;
        self.memory -= seat.offer.geometry.bytes() as u64;
        self.of_user(seat.uid, |user| user.places -= 1);
    }

    /// Leave to wait, for one that got no place; none if too many have it.
    pub(super) fn bench(&mut self, uid: u32) -> Option<Bench> {
        let of_user = self.users.get(&uid).map_or(0, |user| user.strangers);
        if self.strangers >= MOST_STRANGERS || of_user >= MOST_STRANGERS_OF_A_USER {
            return None;
        }
        self.strangers += 1;
        self.users.entry(uid).or_default().strangers += 1;
        Some(Bench { uid })
    }

    pub(super) fn stand_up(&mut self, bench: Bench) {
        self.strangers -= 1;
        self.of_user(bench.uid, |user| user.strangers -= 1);
    }

    /// Who has nothing is forgotten: there are four billion users.
    fn of_user(&mut self, uid: u32, less: impl FnOnce(&mut User)) {
        if let Some(user) = self.users.get_mut(&uid) {
            less(user);
            if user.places == 0 && user.strangers == 0 {
                self.users.remove(&uid);
            }
        }
    }
}
