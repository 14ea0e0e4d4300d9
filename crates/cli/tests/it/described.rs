//! Checks answers against an OpenAPI 3.1 description: everything in them is described, and everything described is in
//! some answer.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The keywords that a schema may use here. A schema with others needs further checks.
const KEYWORDS: [&str; 9] = [
    "additionalProperties",
    "allOf",
    "description",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "type",
];

/// A description, with a record of the parts seen in answers.
pub(crate) struct Description {
    document: Value,
    /// Methods and paths with a successful answer.
    operations: BTreeSet<String>,
    /// Statuses of all answers.
    statuses: BTreeSet<u16>,
    /// Locations of the descriptions of properties seen in answers.
    met: BTreeSet<String>,
}

/// Escapes a part of a JSON pointer.
fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// Returns a described path with these names as its variable parts.
pub(crate) fn filled(path: &str, names: &[&str]) -> String {
    let mut names = names.iter();
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => names.next().copied().expect("it has a name"),
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    let names = list.as_array().into_iter().flatten();
    names.map(|name| name.as_str().expect("a name"))
}

fn is(value: &Value, type_name: &str) -> bool {
    match type_name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type {other}"),
    }
}

impl Description {
    pub(crate) fn new(document: &str) -> Description {
        Description {
            document: serde_json::from_str(document).unwrap(),
            operations: BTreeSet::new(),
            statuses: BTreeSet::new(),
            met: BTreeSet::new(),
        }
    }

    /// Returns the location of the description of an answer to this method and path (with its variable parts), with
    /// this status.
    fn response(&self, (method, path): (&str, &str), status: u16) -> String {
        let operation = format!("/paths/{}/{}", escaped(path), method.to_lowercase());
        self.resolved(format!("{operation}/responses/{status}"))
    }

    /// Returns whether such an answer is described without a body.
    fn is_bare(&self, operation: (&str, &str), status: u16) -> bool {
        let response = self.document.pointer(&self.response(operation, status));
        response.is_some_and(|response| response["content"].is_null())
    }

    /// Returns the location of the schema of such an answer with this media type.
    fn schema(
        &self,
        operation: (&str, &str),
        status: u16,
        media_type: &str,
    ) -> Result<String, String> {
        let response = self.response(operation, status);
        let schema = format!("{response}/content/{}/schema", escaped(media_type));
        match self.document.pointer(&schema) {
            Some(_) => Ok(schema),
            None => Err(format!("{status} as {media_type} is not described")),
        }
    }

    /// Returns the location after following references.
    fn resolved(&self, at: String) -> String {
        let here = self.document.pointer(&at);
        match here.and_then(|here| here["$ref"].as_str()) {
            Some(other) => self.resolved(other.trim_start_matches('#').to_owned()),
            None => at,
        }
    }

    fn at(&self, at: &str) -> &Value {
        let here = self.document.pointer(at);
        here.unwrap_or_else(|| panic!("there is no {at}"))
    }

    /// Returns the errors of an answer, one sentence each.
    pub(crate) fn hold(
        &mut self,
        operation: (&str, &str),
        status: u16,
        media_type: &str,
        answer: &Value,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        match self.schema(operation, status, media_type) {
            _ if self.is_bare(operation, status) && answer == "" => {}
            Ok(schema) => self.value(&schema, answer, "", &mut wrong),
            Err(sentence) => wrong.push(sentence),
        }
        self.statuses.insert(status);
        if status == 200 {
            let (method, path) = operation;
            self.operations.insert(format!("{method} {path}"));
        }
        wrong
    }

    fn value(&mut self, at: &str, value: &Value, place: &str, wrong: &mut Vec<String>) {
        let at = self.resolved(at.to_owned());
        let schema = self.at(&at);
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            several => names(several).collect(),
        };
        if !types.is_empty() && !types.iter().any(|one| is(value, one)) {
            wrong.push(format!("{place} is no {}: {value}", types.join(" or ")));
        } else if schema["enum"].is_array() && !names(&schema["enum"]).any(|one| value == one) {
            wrong.push(format!("{place} is {value}, which is not described"));
        } else if let Value::Array(items) = value {
            for (number, item) in items.iter().enumerate() {
                let place = format!("{place}/{number}");
                self.value(&format!("{at}/items"), item, &place, wrong);
            }
        } else if let Value::Object(keys) = value {
            self.object(&at, keys, place, wrong);
        }
    }

    fn object(
        &mut self,
        at: &str,
        keys: &Map<String, Value>,
        place: &str,
        wrong: &mut Vec<String>,
    ) {
        let parts = self.parts(at);
        let described = |key: &str| {
            let of_part = |part: &String| format!("{part}/properties/{}", escaped(key));
            let mut all = parts.iter().map(of_part);
            all.find(|property| self.document.pointer(property).is_some())
        };
        let missing = parts
            .iter()
            .flat_map(|part| names(&self.at(part)["required"]));
        let missing = missing.filter(|name| !keys.contains_key(*name));
        wrong.extend(missing.map(|name| format!("{place} has no {name}")));
        let is_free = parts.iter().all(|part| {
            let schema = self.at(part);
            let is_open = schema["type"].is_null() || schema["additionalProperties"] == true;
            schema["properties"].is_null() && is_open
        });
        let mut found = Vec::new();
        for (key, value) in keys {
            match described(key) {
                Some(property) => found.push((property, value, format!("{place}/{key}"))),
                None if is_free => {}
                None => wrong.push(format!("{place}/{key} is not described")),
            }
        }
        for (property, value, place) in found {
            self.value(&property, value, &place, wrong);
            self.met.insert(property);
        }
    }

    /// Returns the locations of the schemas that together describe an object.
    fn parts(&self, at: &str) -> Vec<String> {
        let at = self.resolved(at.to_owned());
        let count = self.at(&at)["allOf"].as_array().map_or(0, Vec::len);
        let below = (0..count).flat_map(|number| self.parts(&format!("{at}/allOf/{number}")));
        let below: Vec<String> = below.collect();
        [at].into_iter().chain(below).collect()
    }

    /// Returns each method and path that is described.
    pub(crate) fn described(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (path, methods) in self.at("/paths").as_object().unwrap() {
            let methods = methods.as_object().unwrap().keys();
            all.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
        }
        all
    }

    /// Returns the statuses of its answers.
    fn statuses(&self, (method, path): (&str, &str)) -> Vec<u16> {
        let operation = format!("/paths/{}/{}", escaped(path), method.to_lowercase());
        let responses = self.at(&operation)["responses"].as_object().unwrap().keys();
        responses.map(|status| status.parse().unwrap()).collect()
    }

    /// Returns each described status that was in no answer, except for success.
    pub(crate) fn unmet_statuses(&self) -> BTreeSet<u16> {
        let all = self.described();
        let all = all
            .iter()
            .flat_map(|(method, path)| self.statuses((method, path)));
        let refused: BTreeSet<u16> = all.filter(|&status| status != 200).collect();
        refused.difference(&self.statuses).copied().collect()
    }

    /// Returns the described operations and properties that were in no answer.
    pub(crate) fn unmet(&self) -> Vec<String> {
        let mut operations = BTreeSet::new();
        let (mut properties, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for (method, path) in self.described() {
            let operation = (&*method, &*path);
            for status in self.statuses(operation) {
                let content = format!("{}/content", self.response(operation, status));
                let content = self.document.pointer(&content).and_then(Value::as_object);
                for media_type in content.into_iter().flat_map(Map::keys) {
                    let schema = self.schema(operation, status, media_type).unwrap();
                    self.properties(&schema, &mut properties, &mut seen);
                }
            }
            operations.insert(format!("{method} {path}"));
        }
        let operations = operations.difference(&self.operations).cloned();
        operations
            .chain(properties.difference(&self.met).cloned())
            .collect()
    }

    /// Collects all properties of a schema, and of those that it refers to.
    fn properties(&self, at: &str, properties: &mut BTreeSet<String>, seen: &mut BTreeSet<String>) {
        let at = self.resolved(at.to_owned());
        if !seen.insert(at.clone()) {
            return;
        }
        let schema = self.at(&at).as_object().unwrap();
        let unknown = schema.keys().find(|key| !KEYWORDS.contains(&key.as_str()));
        assert_eq!(unknown, None, "{at}: nobody looks at it");
        for part in self.parts(&at).into_iter().skip(1) {
            self.properties(&part, properties, seen);
        }
        if schema.contains_key("items") {
            self.properties(&format!("{at}/items"), properties, seen);
        }
        let names = schema.get("properties").and_then(Value::as_object);
        for name in names.into_iter().flat_map(Map::keys) {
            let property = format!("{at}/properties/{}", escaped(name));
            self.properties(&property, properties, seen);
            properties.insert(property);
        }
    }
}

#[test]
fn what_is_not_described_or_not_answered_is_found() {
    const DOCUMENT: &str = r##"{
        "paths": {
            "/a/{b}": {"get": {"responses": {
                "200": {"content": {"application/json": {"schema": {"allOf": [
                    {"$ref": "#/components/schemas/One"},
                    {"type": "object", "required": ["more"], "properties": {"more": {"type": "array",
                        "items": {"type": ["integer", "null"]}}}}
                ]}}}},
                "304": {"description": "none"},
                "404": {"$ref": "#/components/responses/Refused"}
            }}},
            "/c": {"put": {"responses": {"200": {"content": {"text/plain": {"schema": {"type": "string"}}}}}}}
        },
        "components": {
            "responses": {"Refused": {"content": {"application/json": {"schema": {"type": "object",
                "properties": {"error": {"type": "string"}, "best": {"type": "object", "additionalProperties": true},
                "grants": {"type": "object"}}}}}}},
            "schemas": {"One": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "enum": ["x", "y"]}, "rate": {"type": "number"}}}}
        }
    }"##;
    let mut description = Description::new(DOCUMENT);
    let mut wrong = |status: u16, answer: Value| {
        let operation = ("GET", "/a/{b}");
        let mut wrong = description.hold(operation, status, "application/json", &answer);
        wrong.sort();
        wrong
    };
    let none: [&str; 0] = [];
    assert_eq!(wrong(200, json!({"name": "x", "more": [1, null]})), none);
    assert_eq!(
        wrong(200, json!({"name": "z", "more": [0.5], "speed": 1})),
        [
            "/more/0 is no integer or null: 0.5",
            "/name is \"z\", which is not described",
            "/speed is not described",
        ]
    );
    assert_eq!(wrong(200, json!({"more": []})), [" has no name"]);
    assert_eq!(wrong(404, json!({"error": 1})), ["/error is no string: 1"]);
    assert_eq!(wrong(404, json!({"best": {"whatever": 1}})), none);
    assert_eq!(
        wrong(404, json!({"grants": {"whatever": 1}})),
        ["/grants/whatever is not described"]
    );
    let sentence = "409 as application/json is not described";
    assert_eq!(wrong(409, json!({})), [sentence]);
    assert_eq!(description.unmet_statuses(), BTreeSet::from([304]));
    let mut bare = |body: &str| description.hold(("GET", "/a/{b}"), 304, "text/html", &body.into());
    assert_eq!(bare("more"), ["304 as text/html is not described"]);
    assert_eq!(bare(""), none);
    assert_eq!(description.unmet_statuses(), BTreeSet::new());
    assert_eq!(
        description.unmet(),
        ["PUT /c", "/components/schemas/One/properties/rate"]
    );
}
