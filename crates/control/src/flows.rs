//! Top talkers: a request for them, and the answer.

use fairlane_daemon::{FlowReport, TopFlows};
use serde::Serialize;

/// Default and maximum number of flows in an answer.
const USUAL: usize = 20;
const MOST: usize = 1_000;

/// A request for top talkers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Restricts the answer to this link.
    pub(crate) link: Option<String>,
    /// Restricts the answer to this class.
    pub(crate) class: Option<String>,
    /// Number of flows.
    top: usize,
}

/// The requested flows that sent most.
#[derive(Debug, Serialize)]
pub(crate) struct Answer<'a> {
    seconds: f64,
    flows: Vec<&'a FlowReport>,
}

impl Question {
    /// Parses the parameters of a request.
    ///
    /// # Errors
    ///
    /// One sentence that names the invalid parameter.
    pub(crate) fn of(parameters: &[(String, String)]) -> Result<Question, String> {
        let mut question = Question {
            link: None,
            class: None,
            top: USUAL,
        };
        for (key, value) in parameters {
            match key.as_str() {
                "link" => question.link = Some(value.clone()),
                "class" => question.class = Some(value.clone()),
                "top" => match value.parse() {
                    Ok(top @ 1..=MOST) => question.top = top,
                    _ => {
                        return Err(format!("top={value}: it is a number from 1 to {MOST}"));
                    }
                },
                _ => {
                    return Err(format!(
                        "there is no parameter '{key}': there are link, class and top"
                    ));
                }
            }
        }
        Ok(question)
    }

    /// Returns the busiest of the requested flows.
    pub(crate) fn answer<'a>(&self, top: &'a TopFlows) -> Answer<'a> {
        let asked_for = |flow: &&FlowReport| {
            is(self.link.as_ref(), &flow.link) && is(self.class.as_ref(), &flow.class)
        };
        Answer {
            seconds: top.seconds,
            flows: top.flows.iter().filter(asked_for).take(self.top).collect(),
        }
    }
}

fn is(asked: Option<&String>, name: &str) -> bool {
    asked.is_none_or(|asked| asked == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(parameters: &[(&str, &str)]) -> Result<Question, String> {
        let owned = parameters.iter();
        let owned = owned.map(|&(key, value)| (key.to_owned(), value.to_owned()));
        Question::of(&owned.collect::<Vec<_>>())
    }

    #[test]
    fn only_what_there_is_can_be_asked_for() {
        assert_eq!(question(&[]).unwrap().top, USUAL);
        for top in ["1", "1000"] {
            assert_eq!(question(&[("top", top)]).unwrap().top.to_string(), top);
        }
        for top in ["0", "1001", "-1", "many", ""] {
            let refused = question(&[("top", top)]);
            let Err(sentence) = refused else {
                panic!("{top}: {refused:?}");
            };
            assert!(sentence.contains("from 1 to 1000"), "{sentence}");
        }
        let refused = question(&[("dry-run", "true")]);
        assert!(matches!(refused, Err(sentence) if sentence.contains("'dry-run'")));
    }

    #[test]
    fn the_answer_has_the_first_of_those_asked_for() {
        let flow = |link: &str, class: &str, bps| FlowReport {
            link: link.into(),
            class: class.into(),
            flow: format!("{bps}"),
            offered_packets: 1,
            offered_bytes: 100,
            offered_bps: bps,
            packets: 1,
            bytes: 100,
            bps,
            share: 0.1,
            rtt_us: None,
            retransmits: 0,
            ecn_ce: 0,
        };
        let top = TopFlows {
            seconds: 1.0,
            flows: vec![
                flow("up", "a", 9.0),
                flow("down", "a", 8.0),
                flow("up", "b", 7.0),
                flow("up", "a", 6.0),
            ],
        };
        let rates = |parameters: &[(&str, &str)]| {
            let question = question(parameters).unwrap();
            let flows = question.answer(&top).flows;
            flows.iter().map(|flow| flow.bps).collect::<Vec<_>>()
        };
        assert_eq!(rates(&[]), [9.0, 8.0, 7.0, 6.0]);
        assert_eq!(rates(&[("top", "2")]), [9.0, 8.0]);
        assert_eq!(rates(&[("link", "up"), ("class", "a")]), [9.0, 6.0]);
        assert_eq!(rates(&[("class", "a"), ("top", "2")]), [9.0, 8.0]);
    }
}
