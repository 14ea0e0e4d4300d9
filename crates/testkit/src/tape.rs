//! Adversaries whose decisions are a short list of numbers, and a search for the list that does most harm.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::flows::Random;

/// Maximum length of a tape.
const LONGEST: usize = 96;
/// Random tapes of which the worst is the start of a climb.
const STARTS: u32 = 8;
/// Consecutive changes without improvement after which the search starts again.
const PATIENCE: u32 = 40;
/// Maximum number of tapes played to simplify one.
const SIMPLIFYING: u32 = 2_000;

/// The decisions of an adversary: numbers that a play draws one by one.
///
/// A play draws its setting first, and then marks the [loop](Self::repeat): at the end of the tape, reading continues
/// there. So a short tape is a strategy that repeats, such as "after each packet of mine, leave and come back".
///
/// ```
/// use fairlane_testkit::tape::Tape;
///
/// let mut tape = Tape::of(vec![7, 1, 2]);
/// let flows = tape.below(5);
/// tape.repeat();
/// let turns: Vec<u32> = (0..4).map(|_| tape.below(flows)).collect();
/// assert_eq!((flows, turns), (2, vec![1, 0, 1, 0]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    numbers: Vec<u32>,
    at: usize,
    start: usize,
}

impl Tape {
    /// Returns a tape of these numbers.
    pub fn of(numbers: Vec<u32>) -> Tape {
        Tape {
            numbers,
            at: 0,
            start: 0,
        }
    }

    /// Returns the next decision: 0 to `count` - 1. On an empty tape it is 0.
    pub fn below(&mut self, count: u32) -> u32 {
        if self.at >= self.numbers.len() {
            self.at = self.start;
        }
        let number = self.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        number % count.max(1)
    }

    /// Returns an element of a list.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    /// Starts the loop at the next number.
    pub fn repeat(&mut self) {
        self.start = self.at.min(self.numbers.len());
    }

    fn random(random: &mut Random) -> Tape {
        let length = 8 + random.below(LONGEST as u32 - 8);
        Tape::of((0..length).map(|_| draw(random)).collect())
    }

    /// Returns the tape with up to three changes.
    fn mutated(&self, random: &mut Random) -> Tape {
        let mut numbers = self.numbers.clone();
        for _ in 0..1 + random.below(3) {
            let length = numbers.len() as u32;
            let at = random.below(length + 1) as usize;
            match (random.below(8), at < numbers.len()) {
                (0, _) if numbers.len() < LONGEST => numbers.insert(at, draw(random)),
                (1, true) => drop(numbers.remove(at)),
                (2, true) => numbers.truncate(at.max(8)),
                (3, true) => numbers[at] = numbers[at].wrapping_add(1),
                (4, true) => numbers[at] = numbers[at].wrapping_sub(1),
                (5, true) => numbers[at] = numbers[random.below(length) as usize],
                (_, true) => numbers[at] = draw(random),
                _ => {}
            }
        }
        Tape::of(numbers)
    }

    /// Returns simpler tapes, the simplest first.
    fn simpler(self) -> impl Iterator<Item = Tape> {
        let numbers = self.numbers;
        let shorter = [2, 8].map(|part| numbers.len() - numbers.len() / part);
        let cuts = shorter.into_iter().map(|length| (length, None));
        let places = 0..numbers.len();
        let without = places.clone().map(|at| (at, Some(None)));
        let smaller = places.flat_map(|at| (0..3).map(move |how| (at, Some(Some(how)))));
        let all = cuts.chain(without).chain(smaller);
        all.filter_map(move |(at, change)| {
            let mut less = numbers.clone();
            match change {
                None => less.truncate(at),
                Some(None) => drop(less.remove(at)),
                Some(Some(how)) => {
                    let number = less[at];
                    less[at] = [0, number / 2, number.saturating_sub(1)][how];
                }
            }
            (less != numbers).then(|| Tape::of(less))
        })
    }
}

/// Returns a random number; small ones are likely.
fn draw(random: &mut Random) -> u32 {
    let most = 1 << (2 + random.below(10));
    random.below(most)
}

/// The worst case that a search found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Worst {
    /// The largest ratio of a measured index to its bound.
    pub ratio: f64,
    /// The tape that reached it.
    pub tape: Vec<u32>,
    /// Tapes played.
    pub tried: u64,
}

/// Plays `tries` tapes, and climbs from the best of some random ones by small changes to larger ratios.
///
/// `play` returns the ratio of the measured index to its bound, and an error if something else is wrong. The same seed
/// makes the same search.
///
/// # Errors
///
/// The shortest tape found with which `play` fails or returns more than 1, and the reason.
pub fn climb(
    seed: u64,
    tries: u64,
    play: impl FnMut(&mut Tape) -> Result<f64, String>,
) -> Result<Worst, String> {
    climb_from(&[], seed, tries, play)
}

/// The same; each second climb starts from the tape `known`, if it has any number.
fn climb_from(
    known: &[u32],
    seed: u64,
    tries: u64,
    mut play: impl FnMut(&mut Tape) -> Result<f64, String>,
) -> Result<Worst, String> {
    let mut random = Random(seed);
    let mut climbs_made = 0;
    let mut worst = Worst {
        ratio: f64::NEG_INFINITY,
        tape: Vec::new(),
        tried: 0,
    };
    while worst.tried < tries {
        let mut top = Tape::default();
        let (mut highest, mut in_vain) = (f64::NEG_INFINITY, 0);
        let from_known = climbs_made % 2 == 0 && !known.is_empty();
        climbs_made += 1;
        for n in 0.. {
            if worst.tried >= tries || in_vain > PATIENCE {
                break;
            }
            let climbs = n >= if from_known { 1 } else { STARTS };
            let next = match climbs {
                true => top.mutated(&mut random),
                false if from_known => Tape::of(known.to_vec()),
                false => Tape::random(&mut random),
            };
            worst.tried += 1;
            let ratio = play(&mut next.clone()).unwrap_or(f64::INFINITY);
            if is_broken(ratio) {
                return Err(simplest(next, &mut play));
            }
            in_vain = if climbs && ratio <= highest {
                in_vain + 1
            } else {
                0
            };
            if ratio >= highest {
                (highest, top) = (ratio, next);
            }
        }
        if highest > worst.ratio {
            (worst.ratio, worst.tape) = (highest, top.numbers);
        }
    }
    Ok(worst)
}

/// An attack on a promise, with the worst tape found so far in a file.
///
/// The file has two lines: the ratio of the measured index to its bound, and the numbers of the tape.
#[derive(Clone, Debug)]
pub struct Attack {
    name: String,
    file: PathBuf,
}

impl Attack {
    /// Returns the attack of this name, whose file is `folder/NAME.txt`.
    pub fn new(folder: impl AsRef<Path>, name: impl Into<String>) -> Attack {
        let name = name.into();
        let file = folder.as_ref().join(format!("{name}.txt"));
        Attack { name, file }
    }

    /// Plays the tape of the file, which has to reach its ratio, and `tries` other tapes.
    ///
    /// With `FAIRLANE_TRIES=N` in the environment it plays N tapes, writes the worst one into the file, and prints
    /// name, tries and ratio.
    ///
    /// # Errors
    ///
    /// A tape exceeds the bound, the tape of the file does not reach its ratio, or the file cannot be read or written.
    pub fn run(
        &self,
        tries: u64,
        mut play: impl FnMut(&mut Tape) -> Result<f64, String>,
    ) -> Result<Worst, String> {
        let search = match env::var("FAIRLANE_TRIES") {
            Ok(text) => Some(text.parse::<u64>().map_err(|_| {
                format!("FAIRLANE_TRIES \"{text}\": not a number (a number of tapes)")
            })?),
            Err(_) => None,
        };
        let kept = fs::read_to_string(&self.file).ok();
        let (ratio, known) = match kept.as_deref().map(parsed) {
            Some(Some(kept)) => kept,
            Some(None) => return Err(self.at("not a ratio and a tape")),
            None if search.is_some() => (f64::NEG_INFINITY, Vec::new()),
            None => return Err(self.at("no tape yet (search with FAIRLANE_TRIES=1000)")),
        };
        let reached = match known.is_empty() {
            true => ratio,
            false => play(&mut Tape::of(known.clone())).map_err(|what| self.at(&what))?,
        };
        if search.is_none() && (reached - ratio).abs() > 1e-6 {
            let what = format!("the tape reaches {reached:.6} of the bound, not {ratio:.6}");
            return Err(self.at(&what));
        }
        let bytes = self.name.bytes();
        let seed = bytes.fold(7, |seed: u64, byte| seed.wrapping_mul(31) ^ u64::from(byte));
        let seed = seed.wrapping_add(search.unwrap_or(0));
        let tries = search.unwrap_or(tries);
        let mut worst =
            climb_from(&known, seed, tries, &mut play).map_err(|what| self.at(&what))?;
        if worst.ratio <= reached {
            (worst.ratio, worst.tape) = (reached, known);
        }
        if search.is_some() {
            println!("{}: {} tries, {:.6}", self.name, worst.tried, worst.ratio);
            let numbers: Vec<_> = worst.tape.iter().map(u32::to_string).collect();
            let text = format!("{:.6}\n{}\n", worst.ratio, numbers.join(" "));
            fs::write(&self.file, text).map_err(|error| self.at(&error.to_string()))?;
        }
        Ok(worst)
    }

    fn at(&self, what: &str) -> String {
        format!("{} ({}): {what}", self.name, self.file.display())
    }
}

/// Returns the ratio and the numbers of a file.
fn parsed(text: &str) -> Option<(f64, Vec<u32>)> {
    let (ratio, numbers) = text.split_once('\n')?;
    let numbers = numbers.split_whitespace().map(str::parse);
    Some((
        ratio.trim().parse().ok()?,
        numbers.collect::<Result<_, _>>().ok()?,
    ))
}

fn is_broken(ratio: f64) -> bool {
    ratio.is_nan() || ratio > 1.0 + 1e-9
}

fn simplest(mut tape: Tape, play: &mut impl FnMut(&mut Tape) -> Result<f64, String>) -> String {
    let mut left = SIMPLIFYING;
    let mut breaks = |tape: &Tape, play: &mut dyn FnMut(&mut Tape) -> Result<f64, String>| {
        left = left.saturating_sub(1);
        left > 0 && is_broken(play(&mut tape.clone()).unwrap_or(f64::INFINITY))
    };
    while let Some(less) = tape.clone().simpler().find(|less| breaks(less, play)) {
        tape = less;
    }
    let numbers = tape.numbers.clone();
    match play(&mut tape) {
        Ok(ratio) => format!("{ratio:.4} of the bound, with the tape {numbers:?}"),
        Err(what) => format!("{what}, with the tape {numbers:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_that_breaks_a_bound_is_found_and_shortened() {
        let play = |tape: &mut Tape| {
            let sum: u32 = (0..4).map(|_| tape.below(50)).sum();
            Ok(f64::from(sum) / 180.0)
        };
        let broken = climb(1, 20_000, play).unwrap_err();
        assert!(broken.contains("with the tape"), "{broken}");
        let within = climb(1, 300, |tape| Ok(play(tape)? * 0.9)).unwrap();
        assert!(within.ratio > 0.7 && within.tried == 300, "{within:?}");
        assert_eq!(climb(1, 300, |tape| Ok(play(tape)? * 0.9)), Ok(within));
    }
}
