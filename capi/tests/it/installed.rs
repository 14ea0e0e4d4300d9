//! The installation by `cargo cinstall`, if cargo-c is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use fairlane_netlab::skip_unsupported;
use fairlane_testkit::long_tests;

use crate::c;
use crate::programs::run;

/// Returns a command that finds the library below `root`, as a user's would below /.
fn below(root: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .env("PKG_CONFIG_LIBDIR", root.join("opt/lib/pkgconfig"))
        .env("LD_LIBRARY_PATH", root.join("opt/lib"));
    command
}

#[test]
fn a_program_finds_the_installed_library_by_pkg_config_and_needs_it_by_its_soname() {
    let test = "what cargo-c installs";
    if !long_tests() {
        return skip_unsupported(test, "FAIRLANE_LONG_TESTS is not set");
    }
    let mut asked = Command::new(env!("CARGO"));
    let asked = asked.args(["cinstall", "--version"]).output().unwrap();
    if !asked.status.success()
        || !["cc", "pkg-config", "readelf"]
            .iter()
            .all(|of| c::is_there(of))
    {
        return skip_unsupported(test, "there is no cargo-c here, or no pkg-config");
    }
    let root = tempfile::tempdir().unwrap();
    let mut install = Command::new(env!("CARGO"));
    install
        .args([
            "cinstall",
            "--profile",
            "dev",
            "--prefix=/opt",
            "--libdir=lib",
        ])
        .arg("--destdir")
        .arg(root.path())
        .arg("--target-dir")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cargo-c"))
        .current_dir(c::home());
    run(&mut install);

    let header = root.path().join("opt/include/fairlane.h");
    let own = c::home().join("include/fairlane.h");
    assert_eq!(fs::read(header).unwrap(), fs::read(own).unwrap());
    let flags = run(below(root.path(), "pkg-config").args(["--cflags", "--libs", "fairlane"]));
    let program = root.path().join("plain");
    let mut compile = Command::new("cc");
    compile
        .arg(c::home().join("examples/plain.c"))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program);
    run(&mut compile);
    let needed = run(Command::new("readelf").arg("-d").arg(&program));
    assert!(needed.contains("[libfairlane.so.0.1]"), "{needed}");
    let said = run(&mut below(root.path(), &program.to_string_lossy()));
    assert!(said.contains("of weight 3, "), "{said}");
}
