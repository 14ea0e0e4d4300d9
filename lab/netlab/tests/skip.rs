//! A test that is skipped is seen in a plain `cargo test`, and fails where nothing may be skipped.

use std::process::{Command, Output};

use fairlane_netlab::{LabError, or_skip, skip_unsupported};

const CHILD: &str = "FAIRLANE_TEST_OF_SKIPPING";

/// Runs the test below as the harness does: what passing tests print is kept.
fn child(nothing_may_be_skipped: bool, what: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_test_that_lacks_something"]);
    command.env(CHILD, what).env_remove("FAIRLANE_NO_SKIP");
    if nothing_may_be_skipped {
        command.env("FAIRLANE_NO_SKIP", "1");
    }
    command.output().unwrap()
}

#[test]
fn a_test_that_lacks_something() {
    match std::env::var(CHILD).as_deref() {
        Ok("program") => {
            let program = "nosuch".to_owned();
            assert!(or_skip("a lack", Err::<(), _>(LabError::Missing { program })).is_none());
        }
        Ok("kernel") => skip_unsupported("a lack", "this kernel cannot"),
        _ => {}
    }
}

#[test]
fn a_skipped_test_is_named_with_the_reason_though_it_passes() {
    for (what, reason) in [
        ("program", "nosuch is not installed"),
        ("kernel", "this kernel cannot"),
    ] {
        let output = child(false, what);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let start = format!("skipped a_test_that_lacks_something: a lack: {reason}");
        assert!(said.starts_with(&start), "{said}");
    }
}

#[test]
fn where_nothing_may_be_skipped_a_lack_of_privilege_or_program_fails() {
    assert!(!child(true, "program").status.success());
    // A general lack of support is no failure.
    assert!(child(true, "kernel").status.success());
}
