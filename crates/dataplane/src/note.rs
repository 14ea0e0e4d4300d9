//! The classification of a frame by a receive worker, as it passes to the forwarding thread.
//!
//! A worker classifies with an immutable, numbered copy of the filters. If a frame's number differs from that of the
//! filters in force when it is queued, the frame is classified again there.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use fairlane_classify::{Found, LinkClassifier};
use fairlane_core::Nanos;
use fairlane_core::tree::{ClassFlow, ClassId};
use fairlane_runtime::bridge::Came;

use crate::frame::Frame;
use crate::threads::lock;

/// Number of distinct table numbers that fit into a worker's note.
pub const NUMBERS: u32 = 1 << (u32::BITS - TABLE);

/// Bits of a note below the table's number.
const TABLE: u32 = 1 + Found::BITS;

/// The filters that workers use.
pub struct Table {
    /// 1 and more.
    pub number: u32,
    pub filters: LinkClassifier,
}

/// Location of the filters for the workers at one interface: those of the link that its frames go to.
#[derive(Default)]
pub struct SharedFilters {
    /// The table's number; 0 without a table.
    pub number: AtomicU32,
    table: Mutex<Option<Arc<Table>>>,
}

impl fmt::Debug for SharedFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFilters")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl SharedFilters {
    /// Makes workers use these filters from now on. Returns the number that their notes carry. O(classes).
    pub fn publish(&self, filters: &LinkClassifier) -> u32 {
        let filters = filters.clone();
        let mut table = lock(&self.table);
        let number = self.number.load(Ordering::Relaxed) % (NUMBERS - 1) + 1;
        *table = Some(Arc::new(Table { number, filters }));
        self.number.store(number, Ordering::Release);
        number
    }

    /// Updates `known` if the table has changed. One load if it has not.
    pub fn renew(&self, known: &mut Option<Arc<Table>>) {
        let number = known.as_ref().map_or(0, |known| known.number);
        if self.number.load(Ordering::Acquire) != number {
            known.clone_from(&lock(&self.table));
        }
    }
}

/// A worker's classification of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The number of the table used; 0 for none, with no class.
    pub table: u32,
    pub to: ClassFlow,
    pub found: Found,
}

impl Note {
    /// The note without a table.
    pub const NONE: Note = Note {
        table: 0,
        to: ClassFlow {
            class: ClassId::ROOT,
            flow: 0,
        },
        found: Found::FILTER,
    };
}

/// A received frame with the worker's note, as it passes through the mailbox.
#[derive(Debug)]
pub struct ClassifiedFrame {
    pub frame: Frame,
    came: Nanos,
    flow: u64,
    class: ClassId,
    /// The table's number, the findings, and whether others were lost meanwhile.
    packed: u32,
}

/// One to a line of the mailbox.
const _: () = assert!(size_of::<ClassifiedFrame>() <= 56);

impl ClassifiedFrame {
    pub fn new(frame: Frame, came: Came, note: Note) -> ClassifiedFrame {
        ClassifiedFrame {
            frame,
            came: came.at,
            flow: note.to.flow,
            class: note.to.class,
            packed: note.table << TABLE
                | u32::from(note.found.to_bits()) << 1
                | u32::from(came.losing),
        }
    }

    pub fn came(&self) -> Came {
        Came {
            at: self.came,
            losing: self.packed & 1 != 0,
        }
    }

    pub fn note(&self) -> Note {
        Note {
            table: self.packed >> TABLE,
            to: ClassFlow {
                class: self.class,
                flow: self.flow,
            },
            found: Found::from_bits((self.packed >> 1) as u8),
        }
    }
}
