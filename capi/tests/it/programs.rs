//! C programs, with each installed compiler; also under an address sanitizer and under valgrind.

use std::path::Path;
use std::process::Command;

use fairlane_netlab::{skip, skip_unsupported};
use fairlane_testkit::long_tests;

use crate::c::{self, Library, build, compilers, is_there};

/// The programs, and their output on success.
const PROGRAMS: [(&str, &str); 4] = [
    ("examples/plain.c", "of weight 3, "),
    ("examples/burst.c", "% of weight 3"),
    ("examples/classes.c", "voice 1.0"),
    ("tests/c/misuse.c", "every misuse has its code"),
];

/// Runs a program, which must succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{complained}");
    said
}

fn check(mut program: Command, said: &str) {
    let output = run(&mut program);
    assert!(output.contains(said), "{output}");
}

/// Returns the compilers, or reports that the test is skipped if there are none.
pub(crate) fn compilers_or_skip(test: &str) -> Vec<&'static str> {
    let compilers = compilers();
    if compilers.is_empty() {
        skip(test, "there is no C compiler here");
    } else if !compilers.contains(&"clang") {
        skip(test, "with clang, which is not here");
    }
    compilers
}

#[test]
fn programs_in_c_do_what_they_say() {
    for compiler in compilers_or_skip("programs in C") {
        for (source, said) in PROGRAMS {
            let program = build(compiler, source, Library::Shared, &["-O1"]).unwrap();
            check(Command::new(program), said);
        }
    }
}

#[test]
fn a_program_needs_no_shared_object() {
    for compiler in compilers_or_skip("a program linked statically") {
        let program = build(compiler, "examples/burst.c", Library::Static, &[]).unwrap();
        check(Command::new(program), "% of weight 3");
    }
}

/// With address randomisation over too wide a range, the sanitizers' own addresses are sometimes taken.
fn at_fixed_addresses(program: &Path) -> Command {
    let fixed = |program: &Path| {
        let mut command = Command::new("setarch");
        command.arg("--addr-no-randomize").arg(program);
        command
    };
    match fixed(Path::new("true")).status() {
        Ok(status) if status.success() => fixed(program),
        _ => Command::new(program),
    }
}

#[test]
fn an_address_sanitizer_finds_nothing() {
    let test = "programs under an address sanitizer";
    for compiler in compilers_or_skip(test) {
        let flags = ["-fsanitize=address", "-g", "-O1"];
        for (source, said) in PROGRAMS {
            match build(compiler, source, Library::Shared, &flags) {
                Ok(program) => check(at_fixed_addresses(&program), said),
                // Some systems have its runtime in a separate package.
                Err(error) if error.contains("asan") => {
                    skip_unsupported(test, format_args!("{compiler} has none: {error}"));
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn valgrind_finds_nothing() {
    let test = "programs under valgrind";
    if !long_tests() {
        return skip_unsupported(test, "FAIRLANE_LONG_TESTS is not set");
    }
    if !is_there("valgrind") {
        return skip(test, "there is no valgrind here");
    }
    // The library is under test, so one compiler suffices.
    let Some(compiler) = compilers_or_skip(test).first().copied() else {
        return;
    };
    for (source, said) in PROGRAMS {
        let program = build(compiler, source, Library::Shared, &["-g", "-O1"]).unwrap();
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
            .args([
                "--errors-for-leak-kinds=definite",
                "--show-leak-kinds=definite",
            ])
            .arg(program);
        let output = run(&mut command);
        assert!(output.contains(said), "{output}");
    }
}

#[test]
fn the_header_is_one_of_cpp_too() {
    if !is_there("g++") {
        return skip("the header in C++", "there is no C++ compiler here");
    }
    let mut command = Command::new("g++");
    command
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(["-fsyntax-only", "-x", "c++"])
        .arg(c::home().join("include/fairlane.h"));
    run(&mut command);
}
