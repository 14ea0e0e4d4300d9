//! Who gets a place, and what goes with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlane_io::PeerCredentials;
use fairlane_mailbox::shared::Geometry;

use super::daemon::{AttachConfig, ListenError};
use super::mapping::{Class, Mapping};
use crate::link::Link;

/// What every client of a class gets.
pub(super) struct Offer {
    pub(super) class: Class,
    pub(super) geometry: Geometry,
    /// Places taken.
    taken: AtomicUsize,
}

/// A place among the clients. It is taken before the hello, so that who is silent takes it from
/// its own class only, and until the arbiter has let go of the flow, so that a client that comes
/// and goes has no more flows than one that stays.
pub(super) struct Seat {
    pub(super) offer: Arc<Offer>,
    of_all: Arc<AtomicUsize>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.offer.taken.fetch_sub(1, Ordering::Relaxed);
        self.of_all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives the places.
pub(super) struct Desk {
    mapping: Mapping,
    /// By the number of the class.
    offers: Vec<Arc<Offer>>,
    taken: Arc<AtomicUsize>,
    most: usize,
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
            Ok(Arc::new(Offer {
                class: class.clone(),
                geometry,
                taken: AtomicUsize::new(0),
            }))
        });
        Ok(Desk {
            offers: offers.collect::<Result<_, _>>()?,
            mapping: config.mapping.clone(),
            taken: Arc::default(),
            most: config.most_clients,
        })
    }

    /// A place for a process, or why it gets none.
    pub(super) fn seat(&mut self, peer: PeerCredentials) -> Result<Seat, String> {
        let PeerCredentials { uid, gid, .. } = peer;
        let Some(number) = self.mapping.class_number(peer) else {
            return Err(format!(
                "no rule gives uid {uid}, gid {gid} a class: the daemon's configuration must name one"
            ));
        };
        let offer = &self.offers[number];
        // Others only give back.
        let of_class = offer.taken.load(Ordering::Relaxed);
        let of_all = self.taken.load(Ordering::Relaxed);
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
        offer.taken.fetch_add(1, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Ok(Seat {
            offer: Arc::clone(offer),
            of_all: Arc::clone(&self.taken),
        })
    }
}
