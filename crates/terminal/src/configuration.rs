//! The running configuration compared with its file, in words.

use serde_json::Value as Json;

/// Returns notes for an operator, one sentence each: changes that are not in the file, and a rejected reload.
pub(crate) fn notes(state: &Json) -> Vec<String> {
    let configuration = &state["configuration"];
    let unsaved = match configuration["unsaved_changes"].as_u64() {
        None | Some(0) => None,
        Some(1) => Some("1 change not in the file: fairlane ctl save writes it".to_owned()),
        Some(many) => Some(format!(
            "{many} changes not in the file: fairlane ctl save writes them"
        )),
    };
    let refused = configuration["last_reload_error"].as_str();
    let refused = refused.map(|error| format!("last reload refused: {error}"));
    unsaved.into_iter().chain(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unsaved_changes_and_a_refused_reload_are_reported() {
        let of = |unsaved: u64, error: Option<&str>| {
            notes(
                &json!({"configuration": {"unsaved_changes": unsaved, "last_reload_error": error}}),
            )
        };
        assert!(of(0, None).is_empty() && notes(&json!({})).is_empty());
        assert_eq!(
            of(3, Some("site.toml:1:1: rate is missing")),
            [
                "3 changes not in the file: fairlane ctl save writes them",
                "last reload refused: site.toml:1:1: rate is missing",
            ]
        );
        assert!(of(1, None)[0].starts_with("1 change not in the file"));
    }
}
