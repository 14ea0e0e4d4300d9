//! Rows: the figures of all classes in one step, packed.
//!
//! A row holds only classes with a nonzero figure, ordered by class number. An entry takes one byte, which says which
//! figures are present and how far the class number is from the previous one, and 12 bits for each figure present.
//! Entries are grouped into blocks that a search can skip.

use std::collections::VecDeque;

/// Figures of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) rate_bps: f32,
    pub(super) queued: f32,
    pub(super) p99_us: f32,
    pub(super) max_us: f32,
    pub(super) drops: f32,
}

impl Figures {
    fn packed(self) -> Packed {
        let all = [
            self.rate_bps,
            self.queued,
            self.p99_us,
            self.max_us,
            self.drops,
        ];
        all.map(pack)
    }

    fn of(packed: Packed) -> Figures {
        let [rate_bps, queued, p99_us, max_us, drops] = packed.map(unpack);
        Figures {
            rate_bps,
            queued,
            p99_us,
            max_us,
            drops,
        }
    }

    /// Returns the share of one of `parts` equal parts of the step, used if the parts have no rows of their own.
    pub(super) fn part_of(self, parts: f32) -> Figures {
        let drops = self.drops / parts.max(1.0);
        Figures { drops, ..self }
    }
}

/// Accumulated figures of a step of several seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Rates are added; see [`Sum::figures`].
    figures: Figures,
    pub(super) seconds: u32,
}

impl Sum {
    pub(super) fn add(&mut self, second: Figures) {
        let sum = self.figures;
        self.seconds += 1;
        self.figures = Figures {
            rate_bps: sum.rate_bps + second.rate_bps,
            queued: sum.queued.max(second.queued),
            p99_us: sum.p99_us.max(second.p99_us),
            max_us: sum.max_us.max(second.max_us),
            drops: sum.drops + second.drops,
        };
    }

    /// Returns the mean of the rates, the maximum of queue lengths and delays, and the sum of the drops.
    pub(super) fn figures(&self) -> Figures {
        Figures {
            rate_bps: self.figures.rate_bps / self.seconds.max(1) as f32,
            ..self.figures
        }
    }
}

/// Bits of a packed figure: six of exponent, six of mantissa.
const BITS: u32 = 12;
const MOST: u32 = (1 << BITS) - 1;
/// Low bits of an `f32` that are dropped.
const CUT: u32 = 17;
/// Offset subtracted from the `f32` exponent so that it fits six bits: 2^-15 to 2^49.
const LEAST: u32 = (127 - 15) << (23 - CUT);

/// Figures in 12 bits each.
type Packed = [u16; 5];

const NOTHING: Packed = [0; 5];

/// Packs a figure to one part in 128. Values that are too small, negative or NaN become 0.
fn pack(figure: f32) -> u16 {
    let rounded = (figure.max(0.0).to_bits() + (1 << (CUT - 1))) >> CUT;
    rounded.saturating_sub(LEAST).min(MOST) as u16
}

fn unpack(packed: u16) -> f32 {
    match packed {
        0 => 0.0,
        _ => f32::from_bits((u32::from(packed) + LEAST) << CUT),
    }
}

/// Classes in a block.
const BLOCK: usize = 64;
/// Bits of an entry's first byte that say which figures are present. The bits above them hold the number of class
/// numbers skipped since the previous entry, or [`FAR`] if that number follows in four bytes.
const FIGURES: u32 = 5;
const FAR: u32 = 7;

/// Returns the number of bytes that the figures of an entry take.
fn length(head: u8) -> usize {
    let there = (head & ((1 << FIGURES) - 1)).count_ones();
    (there * BITS).div_ceil(8) as usize
}

/// Writes the entry of a class, `skipped` class numbers after the previous one.
fn write(row: &mut Vec<u8>, skipped: u32, packed: Packed) {
    let (mut there, mut bits, mut used) = (0, 0_u64, 0);
    for (at, figure) in packed.into_iter().enumerate().filter(|&(_, it)| it > 0) {
        there |= 1 << at;
        bits |= u64::from(figure) << used;
        used += BITS;
    }
    let head = (skipped.min(FAR) << FIGURES) as u8 | there;
    row.push(head);
    if skipped >= FAR {
        row.extend(skipped.to_le_bytes());
    }
    row.extend(&bits.to_le_bytes()[..length(head)]);
}

/// Reads the figures of an entry.
fn read(head: u8, bytes: &[u8]) -> Packed {
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    let mut bits = u64::from_le_bytes(eight);
    let mut packed = NOTHING;
    for (at, figure) in packed.iter_mut().enumerate() {
        if head & (1 << at) != 0 {
            *figure = bits as u16 & MOST as u16;
            bits >>= BITS;
        }
    }
    packed
}

/// Returns the row of a step, ordered by class number.
pub(super) fn row(figures: impl Iterator<Item = (u32, Figures)>) -> Box<[u8]> {
    let packed = figures.map(|(class, figures)| (class, figures.packed()));
    let mut told: Vec<_> = packed.filter(|(_, packed)| *packed != NOTHING).collect();
    told.sort_unstable_by_key(|&(class, _)| class);
    let mut row = Vec::with_capacity(told.len() * 8);
    let mut entries = Vec::new();
    for block in told.chunks(BLOCK) {
        let (first, _) = block[0];
        let mut next = first;
        entries.clear();
        for &(class, packed) in block {
            write(&mut entries, class.wrapping_sub(next), packed);
            next = class.wrapping_add(1);
        }
        row.extend(first.to_le_bytes());
        row.extend((entries.len() as u16).to_le_bytes());
        row.append(&mut entries);
    }
    row.into()
}

/// Returns the figures of a class in a row. O(classes / 64).
pub(super) fn find(mut row: &[u8], class: u32) -> Figures {
    let (mut block, mut next) = (&[][..], 0);
    // The last block whose first class is not above `class`.
    while let Some((&[a, b, c, d, e, f], rest)) = row.split_first_chunk::<6>() {
        let first = u32::from_le_bytes([a, b, c, d]);
        if first > class {
            break;
        }
        (block, row) = rest.split_at(u16::from_le_bytes([e, f]).into());
        next = first;
    }
    while let Some((&head, mut rest)) = block.split_first() {
        let mut skipped = u32::from(head) >> FIGURES;
        if let (FAR, Some((far, behind))) = (skipped, rest.split_first_chunk::<4>()) {
            (skipped, rest) = (u32::from_le_bytes(*far), behind);
        }
        let at = next.wrapping_add(skipped);
        let (figures, behind) = rest.split_at(length(head));
        if at >= class {
            return match at == class {
                true => Figures::of(read(head, figures)),
                false => Figures::default(),
            };
        }
        (block, next) = (behind, at.wrapping_add(1));
    }
    Figures::default()
}

/// Memory of a row in addition to its bytes.
const BESIDE: usize = size_of::<Box<[u8]>>() + 16;

/// Consecutive rows of one step length.
#[derive(Debug)]
pub(super) struct Rows {
    /// Maximum number of rows.
    most: u64,
    /// The number of the oldest row kept.
    first: u64,
    rows: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Rows {
    pub(super) fn new(most: u64) -> Rows {
        Rows {
            most,
            first: 0,
            rows: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Appends a row and evicts the oldest ones while all of them exceed `most_bytes`. A row that alone exceeds the
    /// limit is stored empty, as if nothing were known.
    pub(super) fn push(&mut self, row: Box<[u8]>, most_bytes: usize) {
        let row = match row.len() + BESIDE > most_bytes {
            true => Box::default(),
            false => row,
        };
        self.bytes += row.len() + BESIDE;
        self.rows.push_back(row);
        while self.bytes > most_bytes || self.rows.len() as u64 > self.most {
            let Some(oldest) = self.rows.pop_front() else {
                return;
            };
            self.bytes -= oldest.len() + BESIDE;
            self.first += 1;
        }
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number after that of the last row.
    pub(super) fn end(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    pub(super) fn get(&self, at: u64) -> Option<&[u8]> {
        let at = at.checked_sub(self.first)?;
        self.rows.get(at as usize).map(|row| &**row)
    }

    /// Returns the bytes that all rows take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let each = self.rows.iter().map(|row| row.len() + BESIDE);
        assert_eq!(each.sum::<usize>(), self.bytes);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    #[test]
    fn a_figure_is_kept_to_one_part_in_a_hundred_from_a_nanosecond_to_a_petabit() {
        for exponent in -14..=48 {
            for part in 0..1_000_u16 {
                let figure = 2_f32.powi(exponent) * (1.0 + f32::from(part) / 1_000.0);
                let off = (unpack(pack(figure)) - figure).abs();
                assert!(off <= figure / 128.0, "{figure}");
            }
        }
        // Small counts are exact.
        for count in 0..=128_u16 {
            assert_eq!(unpack(pack(f32::from(count))), f32::from(count));
        }
    }

    #[test]
    fn a_figure_beyond_what_is_kept_is_the_least_or_the_most() {
        for nothing in [0.0, -1.0, f32::NAN, 1e-9, f32::NEG_INFINITY] {
            assert_eq!(pack(nothing), 0, "{nothing}");
        }
        assert_eq!(unpack(0), 0.0);
        for much in [1e15, f32::MAX, f32::INFINITY] {
            assert_eq!(pack(much), MOST as u16, "{much}");
        }
        assert!(unpack(MOST as u16).is_finite());
    }

    /// Figures whose values and whose present fields differ between classes.
    fn figures(class: u32) -> Figures {
        let some = |bit: u32, figure: f32| if class & bit == 0 { figure } else { 0.0 };
        let number = (class % 60) as f32;
        Figures {
            rate_bps: number + 1.0,
            queued: some(1, number + 2.0),
            p99_us: some(2, number + 3.0),
            max_us: some(4, number + 4.0),
            drops: some(8, number + 5.0),
        }
    }

    #[test]
    fn each_class_has_its_own_figures_whatever_its_number_and_however_far_apart_they_are() {
        for step in [1, 2, 7, 8, 9, 1_000, 70_000] {
            let classes = (0..1_000_u32).map(|at| 3 + at * step);
            // Any order of input is accepted.
            let told = row(classes.clone().rev().map(|class| (class, figures(class))));
            for class in classes {
                assert_eq!(find(&told, class), figures(class), "{class} of {step}");
                if step > 1 {
                    assert_eq!(find(&told, class + 1), Figures::default());
                }
            }
            for class in [0, 2, 3 + 1_000 * step, u32::MAX] {
                assert_eq!(find(&told, class), Figures::default(), "{class} of {step}");
            }
        }
        let last = row([(u32::MAX, figures(0)), (u32::MAX - 9, figures(1))].into_iter());
        assert_eq!(find(&last, u32::MAX), figures(0));
        assert_eq!(find(&last, u32::MAX - 9), figures(1));
        assert_eq!(find(&row(std::iter::empty()), 0), Figures::default());
    }

    #[test]
    fn what_does_nothing_takes_no_place_and_what_does_little_takes_little() {
        let all = |figures: Figures| row((0..6_400).map(|class| (class, figures))).len() / 6_400;
        assert_eq!(all(Figures::default()), 0);
        let some = Figures {
            rate_bps: 1e6,
            p99_us: 300.0,
            max_us: 900.0,
            ..Figures::default()
        };
        assert_eq!(all(some), 6);
        assert_eq!(
            all(Figures {
                queued: 9.0,
                ..some
            }),
            7
        );
    }

    #[test]
    fn a_row_that_is_larger_than_the_budget_is_not_kept_and_breaks_nothing() {
        let of = |classes: Range<u32>| row(classes.map(|class| (class, figures(0))));
        let budget = 2 * of(0..2).len() + 2 * BESIDE;
        let mut rows = Rows::new(100);
        rows.push(of(0..2), budget);
        rows.push(of(0..9), budget);
        rows.push(of(70_000..70_001), budget);
        let kept: Vec<_> = (0..4).map(|at| rows.get(at)).collect();
        let last = of(70_000..70_001);
        assert_eq!(kept, [None, Some(&[][..]), Some(&last[..]), None]);
        assert_eq!((rows.first(), rows.end()), (1, 3));
        assert!(rows.bytes() <= budget);
    }
}
