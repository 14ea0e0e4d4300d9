//! A scenario as text, a line for each part: the form in which a search prints it and a test keeps it.
//!
//! ```text
//! run packets=200 seed=7
//! class parent=0 weight=2 ceiling=150
//! flows count=3 class=1 weight=1 longest=1500 first=4 then=1 lengths=1500,64 vary=0 cue=own:0 after=0 jitter=0 start=0 apart=1
//! ```
//!
//! A run ends after `packets` packets. Class n is the nth line of its kind, 0 the root, and a ceiling is in percent of
//! the guaranteed rate. Each of `count` flows has `first` packets at `start`, and those of the next flow arrive `apart`
//! later; lengths are those of the first packet of a burst and of the others, each less by up to `vary`. Bursts of
//! `then` packets arrive `after` bytes of the link from their cue, and up to `jitter` more: `own:n`, a packet of the
//! flow is served and leaves n or fewer; `other:n`, one of the nth line of flows (from 0) is served, for an idle flow;
//! `share:n`, n percent of the time that a burst takes at the flow's share has passed.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::scenario::{Class, Cue, Scenario, Senders};

impl Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "run packets={} seed={}", self.packets, self.seed)?;
        for Class {
            parent,
            weight,
            ceiling,
        } in &self.classes
        {
            write!(f, "class parent={parent} weight={weight}")?;
            match ceiling {
                Some(percent) => writeln!(f, " ceiling={percent}")?,
                None => writeln!(f)?,
            }
        }
        for senders in &self.senders {
            let Senders {
                count,
                class,
                weight,
                longest,
                ..
            } = senders;
            write!(
                f,
                "flows count={count} class={class} weight={weight} longest={longest}"
            )?;
            let [first, others] = senders.lengths;
            write!(f, " first={} then={}", senders.at_first, senders.burst)?;
            write!(f, " lengths={first},{others} vary={} cue=", senders.vary)?;
            match senders.cue {
                Cue::Own(left) => write!(f, "own:{left}")?,
                Cue::Other(kind) => write!(f, "other:{kind}")?,
                Cue::Share(part) => write!(f, "share:{part}")?,
            }
            let Senders {
                after,
                jitter,
                start,
                apart,
                ..
            } = senders;
            writeln!(
                f,
                " after={after} jitter={jitter} start={start} apart={apart}"
            )?;
        }
        Ok(())
    }
}

/// The words of a line after the first.
struct Line<'a>(&'a str);

impl Line<'_> {
    fn word(&self, key: &str) -> Result<&str, String> {
        let words = self.0.split_whitespace();
        let mut values = words.filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        values
            .next()
            .ok_or_else(|| format!("{}: {key}= is missing", self.0))
    }

    fn number<T: FromStr>(&self, key: &str) -> Result<T, String> {
        self.parsed(self.word(key)?)
    }

    fn parsed<T: FromStr>(&self, word: &str) -> Result<T, String> {
        word.parse()
            .map_err(|_| format!("{}: {word:?} is no number", self.0))
    }

    fn pair(&self, key: &str, between: char) -> Result<(&str, &str), String> {
        let word = self.word(key)?.split_once(between);
        word.ok_or_else(|| format!("{}: {key}= needs two parts with {between:?}", self.0))
    }

    fn senders(&self) -> Result<Senders, String> {
        let (first, others) = self.pair("lengths", ',')?;
        let cue = match self.pair("cue", ':')? {
            ("own", left) => Cue::Own(self.parsed(left)?),
            ("other", kind) => Cue::Other(self.parsed(kind)?),
            ("share", part) => Cue::Share(self.parsed(part)?),
            _ => return Err(format!("{}: cue= is own, other or share", self.0)),
        };
        Ok(Senders {
            count: self.number("count")?,
            class: self.number("class")?,
            weight: self.number("weight")?,
            longest: self.number("longest")?,
            burst: self.number("then")?,
            at_first: self.number("first")?,
            lengths: [self.parsed(first)?, self.parsed(others)?],
            vary: self.number("vary")?,
            cue,
            after: self.number("after")?,
            jitter: self.number("jitter")?,
            start: self.number("start")?,
            apart: self.number("apart")?,
        })
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Scenario, String> {
        let mut scenario = Scenario {
            classes: Vec::new(),
            senders: Vec::new(),
            packets: 0,
            seed: 0,
        };
        for text in text.lines().filter(|line| !line.is_empty()) {
            let line = Line(text);
            match text.split_whitespace().next() {
                Some("run") => {
                    scenario.packets = line.number("packets")?;
                    scenario.seed = line.number("seed")?;
                }
                Some("class") => scenario.classes.push(Class {
                    parent: line.number("parent")?,
                    weight: line.number("weight")?,
                    ceiling: line
                        .word("ceiling")
                        .ok()
                        .map(|word| line.parsed(word))
                        .transpose()?,
                }),
                Some("flows") => scenario.senders.push(line.senders()?),
                _ => return Err(format!("{text}: a line begins with run, class or flows")),
            }
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Space;
    use super::*;
    use crate::flows::Random;

    #[test]
    fn a_scenario_is_read_as_it_was_written() {
        let mut random = Random(1);
        let space = Space {
            classes: 3,
            ceilings: true,
        };
        for _ in 0..100 {
            let scenario = Scenario::random(&mut random, space).mutated(&mut random, space);
            assert_eq!(scenario.to_string().parse(), Ok(scenario));
        }
        for wrong in [
            "run packets=1",
            "flow",
            "class parent=0 weight=x",
            "flows count=1",
        ] {
            assert!(wrong.parse::<Scenario>().is_err(), "{wrong}");
        }
    }
}
