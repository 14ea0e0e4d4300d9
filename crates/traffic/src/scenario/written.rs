//! The tables and keys of a scenario file.

use std::fmt;
use std::ops::Range;

use fairlane_config::{At, Scalar, Tables, Text, Whole};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Scenario {
    pub site: Option<At<Place>>,
    pub link: Option<Text>,
    #[serde(default)]
    pub node: Vec<Node>,
    #[serde(default)]
    pub wire: Vec<Wire>,
    pub seconds: Option<At<f64>>,
    pub warm_up: Option<Text>,
    pub seed: Option<At<Whole>>,
    #[serde(default)]
    pub source: Vec<At<Source>>,
}

/// A host or a router of a network.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Node {
    pub name: Text,
    pub algorithm: Option<Text>,
    pub quantum: Option<Text>,
    pub limit: Option<Limit>,
}

/// The link between two nodes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Wire {
    pub from: Text,
    pub to: Text,
    pub rate: Text,
    pub delay: Text,
    pub algorithm: Option<Text>,
    pub quantum: Option<Text>,
    pub limit: Option<Limit>,
    #[serde(default)]
    pub one_way: bool,
}

/// The limits of the queue at an output port.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Limit {
    pub packets: Option<At<Whole>>,
    pub bytes: Option<Text>,
}

/// Where the site is.
#[derive(Debug)]
pub(super) enum Place {
    /// In a separate file.
    File(String),
    /// Here.
    Here(Box<Tables>),
}

impl<'de> Deserialize<'de> for Place {
    /// Written by hand: an untagged enum would lose the positions of nested values.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Place, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Place;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("the name of a site's file, or a table with its keys")
            }

            fn visit_str<E>(self, name: &str) -> Result<Place, E> {
                Ok(Place::File(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Place, A::Error> {
                let tables = Tables::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Place::Here(Box::new(tables)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A source, or `count` sources that are alike.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Source {
    pub name: Option<Text>,
    pub count: Option<At<Whole>>,
    pub from: Option<Text>,
    pub to: Option<Text>,
    pub weight: Option<At<Whole>>,
    pub class: Option<Text>,
    pub source: Option<Text>,
    pub destination: Option<Text>,
    pub protocol: Option<At<Scalar>>,
    pub source_port: Option<At<Scalar>>,
    pub destination_port: Option<At<Scalar>>,
    pub dscp: Option<At<Scalar>>,
    pub vlan: Option<At<Whole>>,
    pub ingress: Option<Text>,
    pub user: Option<At<Whole>>,
    pub group: Option<At<Whole>>,
    pub pid: Option<At<Whole>>,
    pub traffic: Text,
    pub rate: Option<Text>,
    pub on: Option<Text>,
    pub off: Option<Text>,
    pub window: Option<At<Whole>>,
    pub rtt: Option<Text>,
    pub length: Option<At<Scalar>>,
    pub start: Option<Text>,
    pub stop: Option<Text>,
    pub ecn: Option<At<bool>>,
}

impl Source {
    /// Returns the keys that filters use, with their positions.
    pub(super) fn headers(&self) -> [(&'static str, Option<Range<usize>>); 11] {
        let text = |at: &Option<Text>| at.as_ref().map(At::span);
        let scalar = |at: &Option<At<Scalar>>| at.as_ref().map(At::span);
        let number = |at: &Option<At<Whole>>| at.as_ref().map(At::span);
        [
            ("source", text(&self.source)),
            ("destination", text(&self.destination)),
            ("protocol", scalar(&self.protocol)),
            ("source-port", scalar(&self.source_port)),
            ("destination-port", scalar(&self.destination_port)),
            ("dscp", scalar(&self.dscp)),
            ("vlan", number(&self.vlan)),
            ("ingress", text(&self.ingress)),
            ("user", number(&self.user)),
            ("group", number(&self.group)),
            ("pid", number(&self.pid)),
        ]
    }
}
