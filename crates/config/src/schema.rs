//! The file's schema.

/// Returns the file's schema (JSON Schema, 2020-12), with a description of each key.
pub const fn schema() -> &'static str {
    include_str!("../site.schema.json")
}

#[cfg(test)]
pub(crate) use from_tables::{RATE, SIZE, TIME, of_class, of_link};

/// Generates the schema from the tables that are parsed. It is generated here and not in the program because it would
/// lengthen the program's build by a quarter.
#[cfg(test)]
mod from_tables {
    use std::path::Path;
    use std::{env, fs};

    use fairlane_core::sched::Algorithm;
    use schemars::generate::SchemaSettings;
    use schemars::transform::{RecursiveTransform, Transform};
    use serde_json::Value;

    use crate::file::File;
    use crate::site::LinkAlgorithm;

    fn made() -> Value {
        let settings = SchemaSettings::draft2020_12();
        let mut schema = settings.into_generator().into_root_schema_for::<File>();
        RecursiveTransform(|schema: &mut schemars::Schema| {
            if let Some(fields) = schema.as_object_mut() {
                as_toml(fields);
            }
        })
        .transform(&mut schema);
        schema.to_value()
    }

    /// Adapts the schema to TOML, which has no null: an optional key is left out. Lines are joined for the schema's
    /// readers.
    fn as_toml(schema: &mut serde_json::Map<String, Value>) {
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|kind| kind != "null");
            if let [one] = &types[..] {
                let one = one.clone();
                schema.insert("type".to_owned(), one);
            }
        }
        if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
            choices.retain(|choice| choice["type"] != "null");
            if let [one] = &choices[..]
                && let Value::Object(one) = one.clone()
            {
                schema.remove("anyOf");
                for (key, value) in one {
                    schema.entry(key).or_insert(value);
                }
            }
        }
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        schema.retain(|key, value| key != "default" || !value.is_null());
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = text.replace('\n', " ");
        }
    }

    /// Returns the names of all algorithms, including CBQ.
    pub(crate) fn of_link() -> Vec<&'static str> {
        let mut names = of_class();
        names.push(LinkAlgorithm::CBQ);
        names
    }

    /// Returns the names of all algorithms.
    pub(crate) fn of_class() -> Vec<&'static str> {
        let all = Algorithm::ALL.iter().copied();
        all.map(Algorithm::name).collect()
    }

    /// Patterns of a rate, a size and a time.
    pub(crate) const RATE: &str = r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kKmMgGtT]?[bB][iI][tT])\s*$";
    pub(crate) const SIZE: &str = r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kKmMgG]?[bB])\s*$";
    pub(crate) const TIME: &str =
        r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([nN][sS]|[uU][sS]|[mM][sS]|[sS]|[mM][iI][nN]|[hH])\s*$";

    #[test]
    fn the_schema_is_that_of_the_tables() {
        let made = made();
        if env::var_os("FAIRLANE_WRITE_SCHEMA").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("site.schema.json");
            fs::write(file, format!("{made:#}\n")).unwrap();
            return;
        }
        assert!(
            made == serde_json::from_str::<Value>(super::schema()).unwrap(),
            "the tables have changed: FAIRLANE_WRITE_SCHEMA=1 cargo test -p fairlane-config schema"
        );
    }
}
