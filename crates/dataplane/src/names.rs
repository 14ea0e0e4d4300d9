//! Names of flows. Classes know flows by keyed digests, which cannot be inverted; while names are requested, the
//! forwarding thread notes the flow key next to a frame's digest.
//!
//! A digest stands for one name as long as its class distinguishes flows by the same fields, since a link's digest key
//! survives configuration changes. A name therefore never belongs to another flow.

use fairlane_classify::{FlowKey, Per};

/// The most unrequested flows noted between two walks. The limit bounds the cost of a flood of flows; a heavy sender is
/// requested from then on.
pub const UNASKED: usize = 4_096;
/// Flows that can be distinguished; a power of two. Of flows whose digests share the low bits, one is requested.
const SLOTS: usize = 8_192;

/// The flow key of a digest, in classes with flows per `per`.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub per: Per,
    pub flow: u64,
    pub key: FlowKey,
}

/// Notes that the forwarding thread makes between two walks, with space for all of them.
#[derive(Debug)]
pub struct Naming {
    /// By the low bits of the digest: the flow to be named regardless of the limit, and the flow named last.
    wanted: Vec<u64>,
    noted: Vec<u64>,
    pub notes: Vec<Note>,
    /// Number of notes of unrequested flows.
    unasked: usize,
}

fn slot(flow: u64) -> usize {
    flow as usize & (SLOTS - 1)
}

impl Naming {
    /// Creates the notes for these requested flows; of two that share a place, the later one is kept.
    pub fn of(flows: impl IntoIterator<Item = u64>) -> Naming {
        let mut wanted = vec![0; SLOTS];
        for flow in flows {
            wanted[slot(flow)] = flow;
        }
        let many = wanted.iter().filter(|&&flow| flow != 0).count();
        Naming {
            wanted,
            noted: vec![0; SLOTS],
            notes: Vec::with_capacity(UNASKED + many),
            unasked: 0,
        }
    }

    /// Whether a flow should be [noted](Self::note). O(1).
    pub fn wants(&self, flow: u64) -> bool {
        // A class without flows, or a frame that cannot be read.
        if flow == 0 {
            return false;
        }
        let at = slot(flow);
        self.wanted[at] == flow || self.noted[at] != flow && self.unasked < UNASKED
    }

    /// Notes the key of a flow. O(1), in preallocated space.
    pub fn note(&mut self, note: Note) {
        let at = slot(note.flow);
        if self.wanted[at] == note.flow {
            self.wanted[at] = 0;
        } else {
            self.unasked += 1;
        }
        self.noted[at] = note.flow;
        self.notes.push(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(flow: u64) -> Note {
        Note {
            per: Per::Vlan,
            flow,
            key: FlowKey::Vlan(None),
        }
    }

    #[test]
    fn a_flow_is_noted_once_and_a_flood_takes_no_more_room_than_there_is() {
        let wanted = 77 + 5 * SLOTS as u64;
        let mut naming = Naming::of([77, wanted]);
        let room = naming.notes.capacity();
        assert!(!naming.wants(0));
        for flow in 1..1_000_000 {
            for _ in 0..2 {
                if flow != wanted && naming.wants(flow) {
                    naming.note(note(flow));
                }
            }
        }
        assert_eq!(naming.notes.len(), UNASKED);
        assert!(naming.wants(wanted), "it is noted all the same");
        naming.note(note(wanted));
        assert!(!naming.wants(wanted), "and once");
        assert_eq!(naming.notes.capacity(), room);
    }
}
