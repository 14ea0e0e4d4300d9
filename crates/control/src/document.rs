//! Edits of a configuration's text. Unchanged parts keep their comments, order and layout.
//!
//! The result is text, to be read and checked as any file is: an edit only looks up the tables that it names.

use serde::Serialize;
use serde_json::{Map, Value as Json};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use crate::view::Place;

/// A failed edit of a configuration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The table to change does not exist.
    #[error("{0}")]
    Missing(String),
    /// The table to add exists, or the table to remove is needed.
    #[error("{0}")]
    Conflict(String),
    /// A value that no key of the file can have.
    #[error("{0}")]
    Value(String),
}

impl EditError {
    /// Adds the position of the change, from 0, to an error of one of several changes.
    pub(crate) fn of(self, place: usize, all: usize) -> EditError {
        let named = |sentence| format!("change {} of {all}: {sentence}", place + 1);
        match self {
            EditError::Missing(sentence) => EditError::Missing(named(sentence)),
            EditError::Conflict(sentence) => EditError::Conflict(named(sentence)),
            EditError::Value(sentence) => EditError::Value(named(sentence)),
        }
    }
}

/// A filter of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilterText {
    /// Its link.
    pub link: String,
    /// Its place among the filters of the link, from 0.
    pub number: usize,
    /// The class that it leads to.
    pub class: String,
    /// Its conditions, as `key=value` with spaces between.
    #[serde(rename = "match")]
    pub matches: String,
}

/// A table in any notation.
type Fields = dyn TableLike + 'static;

type Result<T> = std::result::Result<T, EditError>;

/// Keys and values as in a class of the file; null removes a key.
pub type Keys = Map<String, Json>;

/// The text of a configuration, for edits.
#[derive(Clone, Debug)]
pub struct Document(DocumentMut);

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Document {
    /// Parses the text of a valid configuration.
    ///
    /// # Errors
    ///
    /// The text is not TOML.
    pub fn new(text: &str) -> Result<Document> {
        let parsed = text.parse::<DocumentMut>();
        let document = parsed.map_err(|error| EditError::Value(error.to_string()))?;
        Ok(Document(document))
    }

    /// Returns the name of each link.
    #[must_use]
    pub fn links(&mut self) -> Vec<String> {
        let links = list(self.0.as_table_mut(), "link", false);
        links.texts("name").into_iter().map(str::to_owned).collect()
    }

    /// Returns link and name of each class in the text.
    #[must_use]
    pub fn places(mut self) -> Vec<Place> {
        let mut places = Vec::new();
        for link in self.links() {
            if let Ok(mut tables) = self.link(&link) {
                let classes = tables.list("class");
                let named = classes.texts("name").into_iter();
                places.extend(named.map(|class| (link.clone(), class.to_owned())));
            }
        }
        places
    }

    /// Returns the filters of all links, in order.
    #[must_use]
    pub fn filters(mut self) -> Vec<FilterText> {
        let mut all = Vec::new();
        for link in self.links() {
            let Ok(mut tables) = self.link(&link) else {
                continue;
            };
            let filters = tables.list("filter");
            all.extend((0..filters.len()).filter_map(|number| {
                let filter = filters.get(number)?;
                let keys = filter.iter().filter(|(key, _)| *key != "class");
                let pairs = keys.map(|(key, item)| match item.as_str() {
                    Some(text) => format!("{key}={text}"),
                    None => format!("{key}={}", item.to_string().trim()),
                });
                Some(FilterText {
                    link: link.clone(),
                    number,
                    class: text_of(filter, "class").unwrap_or_default().to_owned(),
                    matches: pairs.collect::<Vec<_>>().join(" "),
                })
            }));
        }
        all
    }

    /// Returns the class of each filter of a link; none for an unknown link.
    pub(crate) fn classes_of_filters(&mut self, link: &str) -> Vec<String> {
        let Ok(mut tables) = self.link(link) else {
            return Vec::new();
        };
        let filters = tables.list("filter");
        let classes = filters.texts("class").into_iter();
        classes.map(str::to_owned).collect()
    }

    /// Sets the interface of a role (`outside`, `inside`, `tap`).
    ///
    /// # Errors
    ///
    /// The configuration has no `[interfaces]`.
    pub fn name_interface(&mut self, role: &str, name: &str) -> Result<()> {
        let fields: &mut Fields = match self.0.get_mut("interfaces") {
            Some(Item::Table(table)) => table,
            Some(Item::Value(Value::InlineTable(table))) => table,
            _ => {
                let sentence = "the configuration has no [interfaces]";
                return Err(EditError::Missing(sentence.to_owned()));
            }
        };
        if text_of(fields, role) != Some(name) {
            assign(fields, role, name.into());
        }
        Ok(())
    }

    /// Changes keys of a link, such as its rate.
    ///
    /// # Errors
    ///
    /// There is no such link, or TOML has no such value.
    pub fn change_link(&mut self, link: &str, keys: &Keys) -> Result<()> {
        refuse_lists(keys)?;
        set(self.link(link)?.fields, keys)
    }

    /// Adds a class to a link, after all others. Its keys are those of the file, `name` among them.
    ///
    /// # Errors
    ///
    /// There is no such link, the class exists already, or TOML has no such value.
    pub fn add_class(&mut self, link: &str, keys: &Keys) -> Result<()> {
        let Some(Json::String(name)) = keys.get("name") else {
            return Err(EditError::Value("a class needs a 'name'".to_owned()));
        };
        let mut tables = self.link(link)?;
        let mut classes = tables.list("class");
        if classes.find("name", name).is_some() {
            return Err(EditError::Conflict(format!(
                "link '{link}' has a class '{name}' already"
            )));
        }
        classes.push(keys)
    }

    /// Changes keys of a class. With a new `name` also updates its children and filters.
    ///
    /// # Errors
    ///
    /// There is no such link or class, or TOML has no such value.
    pub fn change_class(&mut self, link: &str, class: &str, keys: &Keys) -> Result<()> {
        let mut tables = self.link(link)?;
        let mut classes = tables.list("class");
        let Some(at) = classes.find("name", class) else {
            return Err(no_class(link, class, &classes));
        };
        set(classes.table(at), keys)?;
        match keys.get("name") {
            Some(Json::String(name)) if name != class => {
                rename(&mut classes, "parent", class, name);
                rename(&mut tables.list("filter"), "class", class, name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Removes a class and its filters.
    ///
    /// # Errors
    ///
    /// There is no such link or class, or the class has children.
    pub fn remove_class(&mut self, link: &str, class: &str) -> Result<()> {
        let mut tables = self.link(link)?;
        let mut classes = tables.list("class");
        let Some(at) = classes.find("name", class) else {
            return Err(no_class(link, class, &classes));
        };
        if let Some(below) = classes.find("parent", class) {
            let below = text_of(classes.table(below), "name").unwrap_or_default();
            return Err(EditError::Conflict(format!(
                "class '{class}' has class '{below}' below it: remove or move that first"
            )));
        }
        classes.remove(at);
        let mut filters = tables.list("filter");
        while let Some(at) = filters.find("class", class) {
            filters.remove(at);
        }
        Ok(())
    }

    /// Adds a filter to a link, before the one at place `at` (from 0) or after all others.
    ///
    /// # Errors
    ///
    /// There is no such link, or TOML has no such value.
    pub fn add_filter(&mut self, link: &str, keys: &Keys, at: Option<usize>) -> Result<()> {
        let mut tables = self.link(link)?;
        let mut filters = tables.list("filter");
        filters.push(keys)?;
        match at {
            Some(at) => filters.move_last(at),
            None => Ok(()),
        }
    }

    /// Removes the filter at place `at` of a link, from 0.
    ///
    /// # Errors
    ///
    /// There is no such link or filter.
    pub fn remove_filter(&mut self, link: &str, at: usize) -> Result<()> {
        let mut tables = self.link(link)?;
        let mut filters = tables.list("filter");
        if at >= filters.len() {
            return Err(EditError::Missing(format!(
                "link '{link}' has {} filters: there is no number {at}, they count from 0",
                filters.len()
            )));
        }
        filters.remove(at);
        Ok(())
    }

    /// Returns the link of this name.
    fn link(&mut self, name: &str) -> Result<Link<'_>> {
        let links = list(self.0.as_table_mut(), "link", false);
        match links.find("name", name) {
            Some(at) => Ok(Link {
                in_line: matches!(links, List::Values(_)),
                fields: links.into_table(at),
            }),
            None => {
                let known = links.texts("name").join(", ");
                Err(EditError::Missing(format!(
                    "link '{name}' does not exist: there is {known}"
                )))
            }
        }
    }
}

/// A link of the text.
struct Link<'a> {
    fields: &'a mut Fields,
    /// An inline table: `link = [{ .. }]`.
    in_line: bool,
}

impl Link<'_> {
    /// Returns its classes or filters.
    fn list(&mut self, key: &str) -> List<'_> {
        list(self.fields, key, self.in_line)
    }
}

fn no_class(link: &str, class: &str, classes: &List<'_>) -> EditError {
    if class == "default" {
        return EditError::Missing(format!(
            "class 'default' is not in the file: link '{link}' has it for what no filter matches; add a \
             class with default = true in its place"
        ));
    }
    let names = classes.texts("name");
    let near = fairlane_config::suggestion(class, names.iter().copied());
    EditError::Missing(format!(
        "class '{class}' does not exist in link '{link}'{near}"
    ))
}

/// Tables of one kind: `[[link.class]]`, or `class = [{ .. }]`.
enum List<'a> {
    Tables(&'a mut ArrayOfTables),
    Values(&'a mut Array),
}

/// Returns the tables of `key`, possibly none yet, which are inline tables if the table itself is.
fn list<'a>(table: &'a mut Fields, key: &str, in_line: bool) -> List<'a> {
    let item = table.entry(key).or_insert(Item::None);
    if !item.is_array() && !item.is_array_of_tables() {
        *item = match in_line {
            true => Item::Value(Value::Array(Array::new())),
            false => Item::ArrayOfTables(ArrayOfTables::new()),
        };
    }
    match item {
        Item::ArrayOfTables(tables) => List::Tables(tables),
        Item::Value(Value::Array(values)) => List::Values(values),
        _ => unreachable!("it is one of both"),
    }
}

fn text_of<'a>(table: &'a Fields, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Item::as_str)
}

impl<'a> List<'a> {
    fn len(&self) -> usize {
        match self {
            List::Tables(tables) => tables.len(),
            List::Values(values) => values.len(),
        }
    }

    fn get(&self, at: usize) -> Option<&Fields> {
        match self {
            List::Tables(tables) => tables.get(at).map(|table| table as &dyn TableLike),
            List::Values(values) => {
                let table = values.get(at)?.as_inline_table()?;
                Some(table as &dyn TableLike)
            }
        }
    }

    /// Returns the tables' texts for a key.
    fn texts(&self, key: &str) -> Vec<&str> {
        let tables = (0..self.len()).filter_map(|at| self.get(at));
        tables.filter_map(|table| text_of(table, key)).collect()
    }

    /// Returns the first table with this text for a key.
    fn find(&self, key: &str, text: &str) -> Option<usize> {
        let is = |&at: &usize| self.get(at).and_then(|table| text_of(table, key)) == Some(text);
        (0..self.len()).find(is)
    }

    /// Returns the table at a place that was found before.
    fn table(&mut self, at: usize) -> &mut Fields {
        let here = match self {
            List::Tables(tables) => List::Tables(tables),
            List::Values(values) => List::Values(values),
        };
        here.into_table(at)
    }

    fn into_table(self, at: usize) -> &'a mut Fields {
        match self {
            List::Tables(tables) => tables.get_mut(at).expect("it was found"),
            List::Values(values) => {
                let value = values.get_mut(at).expect("it was found");
                value.as_inline_table_mut().expect("it was found")
            }
        }
    }

    fn push(&mut self, keys: &Keys) -> Result<()> {
        // The name comes first; the other keys keep their order.
        let named = |(key, _): &(&String, &Json)| key.as_str() == "name";
        let name: Keys = keys.iter().filter(named).map(owned).collect();
        match self {
            List::Tables(tables) => {
                let mut table = Table::new();
                set(&mut table, &name)?;
                set(&mut table, keys)?;
                // Position after the last table, which may itself be moved.
                table.set_position(tables.iter().last().and_then(last_position));
                tables.push(table);
            }
            List::Values(values) => {
                let mut table = InlineTable::new();
                set(&mut table, &name)?;
                set(&mut table, keys)?;
                // On a line of its own where the others are; a comment there is about another.
                let mut value = Value::InlineTable(table);
                let before = values.iter().last().and_then(|last| last.decor().prefix());
                if let Some(before) = before.and_then(toml_edit::RawString::as_str) {
                    let line = before.rfind('\n').map_or(0, |at| at);
                    value.decor_mut().set_prefix(&before[line..]);
                }
                values.push_formatted(value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, at: usize) {
        match self {
            List::Tables(tables) => {
                tables.remove(at);
            }
            List::Values(values) => {
                values.remove(at);
            }
        }
    }

    /// Moves the last table to place `at`.
    fn move_last(&mut self, at: usize) -> Result<()> {
        let last = self.len() - 1;
        if at > last {
            return Err(EditError::Missing(format!(
                "there are {last} filters: a new one has a place from 0 to {last}"
            )));
        }
        match self {
            List::Tables(tables) => {
                let mut all: Vec<Table> = tables.iter().cloned().collect();
                let mut moved = all.remove(last);
                // Tables are written in the order of their positions, which is that of the text; of two
                // with the same, the first first.
                if let Some(next) = all.get(at) {
                    moved.set_position(next.position());
                }
                all.insert(at, moved);
                tables.clear();
                tables.extend(all);
            }
            List::Values(values) => {
                let moved = values.remove(last);
                values.insert_formatted(at, moved);
            }
        }
        Ok(())
    }
}

/// Returns the position of the last table that is part of this one, or its own.
fn last_position(table: &Table) -> Option<isize> {
    let below = table.iter().flat_map(|(_, item)| match item {
        Item::Table(table) => vec![last_position(table)],
        Item::ArrayOfTables(tables) => tables.iter().map(last_position).collect(),
        _ => Vec::new(),
    });
    below.chain([table.position()]).max().flatten()
}

/// Replaces the text `from` of a key by `to` in every table.
fn rename(tables: &mut List<'_>, key: &str, from: &str, to: &str) {
    for at in 0..tables.len() {
        let table = tables.table(at);
        if text_of(table, key) == Some(from) {
            assign(table, key, to.into());
        }
    }
}

fn owned((key, json): (&String, &Json)) -> (String, Json) {
    (key.clone(), json.clone())
}

/// Sets keys of a table; null removes one.
fn set(table: &mut Fields, keys: &Keys) -> Result<()> {
    for (key, json) in keys {
        match json {
            Json::Null => {
                table.remove(key);
            }
            _ => assign(table, key, value(key, json)?),
        }
    }
    Ok(())
}

/// Sets a key and keeps the text around its value, such as a comment.
fn assign(table: &mut Fields, key: &str, mut value: Value) {
    match table.get_mut(key) {
        Some(Item::Value(former)) => {
            *value.decor_mut() = former.decor().clone();
            *former = value;
        }
        Some(item) => *item = Item::Value(value),
        None => {
            table.insert(key, Item::Value(value));
        }
    }
}

/// Rejects lists: the classes and filters of a link are changed one by one.
fn refuse_lists(keys: &Keys) -> Result<()> {
    match keys.keys().find(|key| *key == "class" || *key == "filter") {
        Some(key) => Err(EditError::Value(format!(
            "{key}: classes and filters of a link are added, changed and removed one by one"
        ))),
        None => Ok(()),
    }
}

/// Returns the value of a text after `key =`: a TOML value if it is one, else the text as a string, and null for an
/// empty text.
#[must_use]
pub fn value_of(written: &str) -> Json {
    if written.is_empty() {
        return Json::Null;
    }
    let parsed = written.parse::<Value>().ok();
    parsed
        .as_ref()
        .and_then(json_of)
        .unwrap_or_else(|| written.into())
}

/// Returns a TOML value as JSON; `None` if JSON has no such value.
fn json_of(value: &Value) -> Option<Json> {
    Some(match value {
        Value::String(text) => text.value().as_str().into(),
        Value::Integer(whole) => (*whole.value()).into(),
        Value::Float(real) => serde_json::Number::from_f64(*real.value())?.into(),
        Value::Boolean(flag) => (*flag.value()).into(),
        Value::Datetime(_) => return None,
        Value::Array(items) => Json::Array(items.iter().map(json_of).collect::<Option<_>>()?),
        Value::InlineTable(table) => {
            let keys = table
                .iter()
                .map(|(key, value)| Some((key.to_owned(), json_of(value)?)));
            Json::Object(keys.collect::<Option<_>>()?)
        }
    })
}

/// Returns keys and values, one per line.
pub(crate) fn lines(keys: &Keys) -> Result<String> {
    let mut table = DocumentMut::new();
    for (key, json) in keys {
        table.insert(key, Item::Value(value(key, json)?));
    }
    Ok(table.to_string())
}

/// Returns a JSON value as TOML.
fn value(key: &str, json: &Json) -> Result<Value> {
    let unfit = |what: &str| EditError::Value(format!("{key}: {what}"));
    Ok(match json {
        Json::Null => {
            return Err(unfit(
                "null is not allowed inside a value (only as the whole value)",
            ));
        }
        Json::Bool(flag) => (*flag).into(),
        Json::String(text) => text.into(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(real)) if number.is_f64() => real.into(),
            _ => return Err(unfit(&format!("{number} is out of range"))),
        },
        Json::Array(items) => {
            let items = items.iter().map(|item| value(key, item));
            Value::Array(items.collect::<Result<Array>>()?)
        }
        Json::Object(keys) => {
            let mut table = InlineTable::new();
            for (key, json) in keys {
                table.insert(key, value(key, json)?);
            }
            Value::InlineTable(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SITE: &str = r#"# A house.
[[link]]
name = "up"   # to the provider
rate = "20mbit"

# Calls.
[[link.class]]
name = "voice"
rate = "2mbit"  # enough for twenty
ceil = "4mbit"

[[link.class]]
name = "web"
weight = 3
parent = "voice"

[[link.filter]]
class = "voice"
dscp = 46

[[link.filter]]
class = "web"
"#;

    fn keys(json: Json) -> Keys {
        json.as_object().unwrap().clone()
    }

    fn edited(text: &str, edit: impl FnOnce(&mut Document) -> Result<()>) -> Result<String> {
        let mut document = Document::new(text)?;
        edit(&mut document).map(|()| document.to_string())
    }

    #[test]
    fn only_what_is_changed_is_another_text() {
        let change = keys(json!({"rate": "3mbit", "ceil": null, "weight": 2}));
        let text = edited(SITE, |site| site.change_class("up", "voice", &change)).unwrap();
        let expected = SITE
            .replace("rate = \"2mbit\"  #", "rate = \"3mbit\"  #")
            .replace("ceil = \"4mbit\"\n", "weight = 2\n");
        assert_eq!(text, expected);
        let text = edited(SITE, |site| {
            site.change_link("up", &keys(json!({"rate": "9mbit"})))
        });
        assert_eq!(text.unwrap(), SITE.replace("20mbit", "9mbit"));
    }

    #[test]
    fn an_interface_has_another_name_where_it_is_named() {
        let site = "[interfaces]\noutside = 'eth0'  # fibre\ninside = \"eth1\"\n";
        let text = edited(site, |site| site.name_interface("outside", "eth0"));
        assert_eq!(text.unwrap(), site);
        let text = edited(site, |site| site.name_interface("outside", "eth3"));
        assert_eq!(text.unwrap(), site.replace("'eth0'", "\"eth3\""));
        let refused = edited(SITE, |site| site.name_interface("outside", "eth3"));
        assert!(matches!(refused, Err(EditError::Missing(_))), "{refused:?}");
    }

    #[test]
    fn children_and_filters_follow_a_new_name() {
        let change = keys(json!({"name": "calls"}));
        let text = edited(SITE, |site| site.change_class("up", "voice", &change)).unwrap();
        assert_eq!(text, SITE.replace("\"voice\"", "\"calls\""));
    }

    #[test]
    fn class_is_added_and_removed_with_its_filters() {
        let class = keys(json!({"name": "bulk", "limit": {"packets": 50}}));
        let mut site = Document::new(SITE).unwrap();
        site.add_class("up", &class).unwrap();
        let filter = keys(json!({"class": "bulk", "destination-port": [80, 443]}));
        site.add_filter("up", &filter, Some(0)).unwrap();
        let text = site.to_string();
        assert!(
            text.contains("name = \"bulk\"\nlimit = { packets = 50 }"),
            "{text}"
        );
        let (first, second) = (text.find("443").unwrap(), text.find("dscp").unwrap());
        assert!(first < second, "{text}");
        site.remove_class("up", "bulk").unwrap();
        let text = site.to_string();
        assert!(
            !text.contains("bulk") && text.contains("dscp = 46"),
            "{text}"
        );
    }

    #[test]
    fn tables_in_a_line_are_changed_in_it() {
        let site = "[[link]]\nname = \"up\"\nclass = [\n  # Two.\n  { name = \"a\", weight = 1 },\n  \
                    { name = \"b\" },\n]\n";
        let text = edited(site, |site| {
            site.change_class("up", "a", &keys(json!({"weight": 4})))?;
            site.add_class("up", &keys(json!({"name": "c"})))?;
            site.remove_class("up", "b")
        });
        let text = text.unwrap();
        assert!(
            text.contains("# Two.\n  { name = \"a\", weight = 4 },"),
            "{text}"
        );
        assert!(
            text.contains("\n  { name = \"c\" }") && !text.contains("\"b\""),
            "{text}"
        );
    }

    #[test]
    fn a_link_in_a_line_gets_its_first_class_and_filter_there() {
        let site = "link = [{ name = \"up\", rate = \"1mbit\" }]\n";
        let text = edited(site, |site| {
            site.add_class("up", &keys(json!({"name": "a"})))?;
            site.add_filter("up", &keys(json!({"class": "a", "dscp": 46})), None)
        });
        let text = text.unwrap();
        assert!(text.contains("class = [{ name = \"a\" }]"), "{text}");
        assert!(
            text.contains("filter = [{ class = \"a\", dscp = 46 }]"),
            "{text}"
        );
        let places = Document::new(&text).unwrap().places();
        assert_eq!(places, [("up".to_owned(), "a".to_owned())]);
    }

    #[test]
    fn what_is_written_as_a_value_is_one_and_all_else_is_a_text() {
        for (written, expected) in [
            ("3mbit", json!("3mbit")),
            ("\"3\"", json!("3")),
            ("3", json!(3)),
            ("true", json!(true)),
            ("[80, 443]", json!([80, 443])),
            ("{ packets = 50 }", json!({"packets": 50})),
            ("", Json::Null),
            ("10.0.0.0/8", json!("10.0.0.0/8")),
            ("1979-05-27", json!("1979-05-27")),
        ] {
            assert_eq!(value_of(written), expected, "{written}");
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        let none = Keys::new();
        let refused = |edit: &dyn Fn(&mut Document) -> Result<()>| {
            edited(SITE, edit).unwrap_err().to_string()
        };
        for (sentence, names) in [
            (
                refused(&|site| site.change_link("down", &none)),
                "link 'down' does not exist: there is up",
            ),
            (
                refused(&|site| site.change_class("up", "default", &none)),
                "add a class with default = true",
            ),
            (
                refused(&|site| site.change_class("up", "voize", &none)),
                "'voice'",
            ),
            (
                refused(&|site| site.remove_class("up", "voice")),
                "class 'web' below it",
            ),
            (
                refused(&|site| site.add_class("up", &none)),
                "needs a 'name'",
            ),
            (
                refused(&|site| site.add_class("up", &keys(json!({"name": "web"})))),
                "already",
            ),
            (
                refused(&|site| site.remove_filter("up", 2)),
                "has 2 filters",
            ),
            (
                refused(&|site| site.add_filter("up", &none, Some(7))),
                "from 0 to 2",
            ),
            (
                refused(&|site| site.change_link("up", &keys(json!({"class": []})))),
                "one by one",
            ),
            (
                refused(&|site| site.change_class("up", "web", &keys(json!({"weight": [null]})))),
                "weight: null",
            ),
        ] {
            assert!(
                sentence.contains(names) && !sentence.contains('\n'),
                "{sentence}"
            );
        }
    }
}
