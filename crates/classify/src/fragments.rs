//! Where the fragments of a datagram go: a later one has no ports, so it follows the first.

use alloc::vec::Vec;
use core::fmt;

use fairlane_core::Nanos;
use fairlane_core::tree::{ClassFlow, ClassId};

use crate::digest::SipHash13;
use crate::{DigestKey, Origin};
use fairlane_wire::{Family, Fragment, Headers};

/// Sets of the table, each for the sources of one hash.
const SETS: usize = 256;
/// Datagrams of which a set knows the class at a time.
const WAYS: usize = 16;
/// How long after its last fragment a datagram is forgotten. Fragments are sent back to back, and an
/// identification may be used again.
const TIMEOUT: Nanos = Nanos::from_millis(1_000);
/// An address of IPv6 is a source by its network: a host has many.
const NETWORK: u32 = 64;

/// A datagram of which the first fragment was seen.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// A hash of source, destination, protocol, identification and origin.
    datagram: u64,
    to: ClassFlow,
    /// When it is forgotten; zero is free.
    until: Nanos,
    /// Which of the sources of the set it is of.
    source: u32,
    /// Bytes of its payload so far, and all of them once the last fragment was seen.
    seen: u32,
    all: u32,
}

impl Entry {
    const FREE: Entry = Entry {
        datagram: 0,
        to: ClassFlow {
            class: ClassId::ROOT,
            flow: 0,
        },
        until: Nanos::ZERO,
        source: 0,
        seen: 0,
        all: 0,
    };
}

/// The datagrams whose first fragments were seen lately: of each its class and flow, for the fragments that follow.
///
/// Its size is fixed, and a source has one set of [`WAYS`] entries. An entry is free when all of its datagram
/// was seen or nothing for [`TIMEOUT`]. In a full set a first fragment takes the entry that has been idle for longest: of its
/// own source if that has one, else of all. So a source that sends first fragments alone evicts its own. Forged sources
/// spread over all sets, since the hash has a key that nothing outside knows: a datagram is lost only if some
/// [`SETS`] x [`WAYS`] of them begin between two of its fragments.
#[derive(Clone)]
pub(crate) struct Fragments {
    key: DigestKey,
    entries: Vec<Entry>,
}

impl fmt::Debug for Fragments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fragments").finish_non_exhaustive()
    }
}

impl Fragments {
    pub(crate) fn new(key: DigestKey) -> Fragments {
        Fragments {
            key,
            entries: alloc::vec![Entry::FREE; SETS * WAYS],
        }
    }

    /// Forgets all datagrams.
    pub(crate) fn clear(&mut self) {
        self.entries.fill(Entry::FREE);
    }

    /// Returns where a fragment goes that the filters sort into `to`: a first one goes there and is remembered; a later
    /// one goes where its first went, or nowhere known: `None`. O([`WAYS`]).
    #[inline(never)]
    pub(crate) fn follow(
        &mut self,
        headers: &Headers,
        origin: &Origin,
        to: ClassFlow,
        now: Nanos,
    ) -> Option<ClassFlow> {
        let (set, source) = self.source(headers);
        let datagram = self.datagram(headers, origin);
        let set = &mut self.entries[set * WAYS..][..WAYS];
        let is_used = |entry: &Entry| entry.until > now;
        let known = set
            .iter()
            .position(|entry| entry.datagram == datagram && is_used(entry));
        if headers.fragment == Fragment::First {
            let rank = |entry: &Entry| match is_used(entry) {
                false => 0,
                true if entry.source == source => 1,
                true => 2,
            };
            let idlest = || (0..WAYS).min_by_key(|&at| (rank(&set[at]), set[at].until));
            let at = known.or_else(idlest).unwrap_or_default();
            set[at] = Entry {
                datagram,
                to,
                until: now + TIMEOUT,
                source,
                seen: headers.fragment_bytes.into(),
                all: 0,
            };
            return Some(to);
        }
        let entry = &mut set[known?];
        entry.seen = (entry.seen).saturating_add(headers.fragment_bytes.into());
        entry.all = entry.all.max(headers.fragmented_bytes);
        entry.until = match entry.all > 0 && entry.seen >= entry.all {
            true => Nanos::ZERO,
            false => now + TIMEOUT,
        };
        Some(entry.to)
    }

    /// Returns the set of a packet's source, and which source of that set it is.
    fn source(&self, headers: &Headers) -> (usize, u32) {
        let mut hash = SipHash13::new(&self.key);
        hash.write(match headers.family {
            Family::V6 => (headers.source >> NETWORK) as u64,
            _ => headers.source as u64,
        });
        let hash = hash.finish();
        (hash as usize % SETS, (hash >> 32) as u32)
    }

    fn datagram(&self, headers: &Headers, origin: &Origin) -> u64 {
        let mut hash = SipHash13::new(&self.key);
        for address in [headers.source, headers.destination] {
            hash.write((address >> 64) as u64);
            hash.write(address as u64);
        }
        let protocol = headers.protocol.map_or(0, |protocol| protocol.0);
        let vlan = headers.vlan.map_or(0, |vlan| vlan.get());
        // RFC 8200, 4.5: of IPv6 addresses and identification alone say which datagram it is.
        let protocol = match headers.family {
            Family::V6 => 0x100,
            _ => u64::from(protocol),
        };
        hash.write(u64::from(headers.identification) << 32 | protocol);
        hash.write(u64::from(origin.ingress) << 16 | u64::from(vlan));
        hash.finish()
    }
}
