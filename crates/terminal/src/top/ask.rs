//! Requests to the site other than for states, and their answers.

use fairlane_control::{Client, ClientError, Method, encoded};
use serde_json::{Map, Value as Json};

use super::rows::Place;
use crate::connection::{of_class, of_link};

/// Maximum number of talkers in an answer, and of effects of a change.
const TALKERS: usize = 100;
const EFFECTS: usize = 100;

/// A request, with a number that its answer repeats.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub number: u64,
    pub what: Ask,
}

/// The kind of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// The reasons why packets of a class are queued.
    Explain(Place),
    /// The top talkers of a class, a link or the site.
    Talkers(Option<Place>),
    /// A new value for a key of a link or class; `dry` only asks for the effects.
    Change {
        place: Place,
        key: &'static str,
        value: Json,
        dry: bool,
    },
}

/// A failed request.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// The status, if the site answered.
    pub status: Option<u16>,
    pub sentence: String,
}

/// A top talker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Talker {
    pub link: String,
    pub class: String,
    pub flow: String,
    /// Rates of arrivals and of departures.
    pub offered_bps: f64,
    pub bps: f64,
    /// Its share of what its class sends.
    pub share: f64,
    pub packets: u64,
    /// The median round trip of its TCP in microseconds, if any was seen.
    pub rtt_us: Option<f64>,
    /// TCP segments retransmitted, and marked as congestion experienced.
    pub retransmits: u64,
    pub marked: u64,
}

impl Ask {
    fn request(&self) -> (Method, String, String) {
        let nothing = String::new();
        match self {
            Ask::Explain(place) => (Method::GET, format!("{}/explain", path(place)), nothing),
            Ask::Talkers(only) => {
                let mut path = format!("/v1/flows?top={TALKERS}");
                if let Some((link, class)) = only {
                    path += &format!("&link={}", encoded(link));
                    if let Some(class) = class {
                        path += &format!("&class={}", encoded(class));
                    }
                }
                (Method::GET, path, nothing)
            }
            Ask::Change {
                place,
                key,
                value,
                dry,
            } => {
                let keys = Map::from_iter([((*key).to_owned(), value.clone())]);
                let path = format!("{}?dry-run={dry}&effects={EFFECTS}", path(place));
                (Method::PATCH, path, Json::Object(keys).to_string())
            }
        }
    }

    /// Sends the request and waits for the answer.
    pub(super) fn send(&self, client: &Client) -> Result<Json, Refusal> {
        let (method, path, body) = self.request();
        client.json(method, &path, body).map_err(Refusal::from)
    }
}

fn path((link, class): &Place) -> String {
    match class {
        Some(class) => of_class(link, class),
        None => of_link(link),
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Refusal {
        let status = match &error {
            ClientError::Refused { status, .. } => Some(*status),
            _ => None,
        };
        Refusal {
            status,
            sentence: error.to_string(),
        }
    }
}

impl Talker {
    /// Parses the talkers of an answer, in its order.
    pub(super) fn all(answer: &Json) -> Vec<Talker> {
        let flows = answer["flows"].as_array().into_iter().flatten();
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let count = |value: &Json| value.as_u64().unwrap_or(0);
        let talkers = flows.map(|flow| Talker {
            link: text(&flow["link"]),
            class: text(&flow["class"]),
            flow: text(&flow["flow"]),
            offered_bps: flow["offered_bps"].as_f64().unwrap_or(0.0),
            bps: flow["bps"].as_f64().unwrap_or(0.0),
            share: flow["share"].as_f64().unwrap_or(0.0),
            packets: count(&flow["packets"]),
            rtt_us: flow["rtt_us"]["p50"].as_f64(),
            retransmits: count(&flow["retransmits"]),
            marked: count(&flow["ecn_ce"]),
        });
        talkers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_out_of_their_place_in_a_path() {
        let class = ("up/../x".to_owned(), Some("a?b&c".to_owned()));
        let (_, path, _) = Ask::Explain(class.clone()).request();
        assert_eq!(path, "/v1/links/up%2F%2E%2E%2Fx/classes/a%3Fb%26c/explain");
        let (_, path, _) = Ask::Talkers(Some(class)).request();
        assert_eq!(
            path,
            "/v1/flows?top=100&link=up%2F%2E%2E%2Fx&class=a%3Fb%26c"
        );
        let change = Ask::Change {
            place: ("up".to_owned(), None),
            key: "rate",
            value: "3mbit".into(),
            dry: true,
        };
        let (method, path, body) = change.request();
        assert_eq!(
            (method, &*path),
            (Method::PATCH, "/v1/links/up?dry-run=true&effects=100")
        );
        assert_eq!(body, r#"{"rate":"3mbit"}"#);
    }
}
