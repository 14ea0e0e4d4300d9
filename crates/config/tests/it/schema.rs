//! The schema and the documentation describe every key.

use serde_json::Value;

fn schema() -> Value {
    serde_json::from_str(fairlane_config::schema()).unwrap()
}

fn for_each_property(schema: &Value, meet: &mut impl FnMut(&str, &Value)) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get("properties") {
                for (key, value) in properties {
                    meet(key, value);
                }
            }
            fields
                .values()
                .for_each(|value| for_each_property(value, meet));
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| for_each_property(value, meet)),
        _ => (),
    }
}

#[test]
fn every_key_is_described_and_none_is_ever_null() {
    let schema = schema();
    let mut keys = 0;
    for_each_property(&schema, &mut |key, value| {
        let description = value["description"].as_str().unwrap_or_default();
        assert!(
            description.len() > 10 && !description.contains('\n'),
            "{key}: {value}"
        );
        keys += 1;
    });
    assert!(keys > 50, "only {keys} keys");
    assert!(!schema.to_string().contains("null"), "{schema}");
}

#[test]
fn tables_have_the_keys_of_the_schema_and_no_others() {
    let mut schema = schema();
    let tables = schema["$defs"].as_object_mut().unwrap();
    for name in [
        "attach",
        "class",
        "filter",
        "flows",
        "interfaces",
        "limit",
        "link",
    ] {
        assert_eq!(tables[name]["additionalProperties"], false, "{name}");
    }
    assert_eq!(tables["class"]["required"], serde_json::json!(["name"]));
    assert_eq!(tables["class"]["properties"]["rate"]["type"], "string");
    let algorithms = &tables["link"]["properties"]["algorithm"]["enum"];
    let algorithms = algorithms.as_array().unwrap();
    assert!(algorithms.contains(&"qfq+".into()) && algorithms.contains(&"cbq".into()));
}

#[test]
fn the_documentation_has_every_key() {
    let text = include_str!("../../../../docs/configuration.md");
    for_each_property(&schema(), &mut |key, _| {
        let named = [format!("`{key}`"), format!("[{key}]")];
        let found = named.iter().any(|name| text.contains(name));
        assert!(found, "{key} is not in docs/configuration.md");
    });
}

#[test]
fn the_files_in_the_documentation_are_sound() {
    let text = include_str!("../../../../docs/configuration.md");
    let mut files = 0;
    for block in text.split("```toml\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        let site = fairlane_config::Site::parse(block, "docs/configuration.md");
        site.unwrap_or_else(|error| panic!("{error}\n{block}"));
        files += 1;
    }
    assert!(files >= 3);
}
