//! `fairlane init`: a first site file for the machine's interfaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fairlane_netlab::{Link, Namespace, or_skip, veth};

use crate::program::{Finished, fairlane};
use crate::site::{Site, link, wire};

/// Runs the program in this namespace, without a default route.
fn in_namespace(namespace: &Namespace, arguments: &[&str]) -> Finished {
    namespace.run(|| fairlane(arguments))
}

/// Creates a namespace with these interfaces, if possible.
fn with_interfaces(test: &str, names: &[&str]) -> Option<(Namespace, Vec<Link>)> {
    let made = Namespace::new().and_then(|namespace| {
        let mut links = Vec::new();
        for pair in names.chunks(2) {
            let (near, far) = (pair[0], pair.get(1));
            // The peer of an unpaired interface is in another namespace.
            let elsewhere = Namespace::new()?;
            let other = far.map_or((&elsewhere, "far"), |far| (&namespace, *far));
            links.extend(<[Link; 2]>::from(veth((&namespace, near), other, 1_500)?));
        }
        Ok((namespace, links))
    });
    or_skip(test, made)
}

#[track_caller]
fn refused(finished: &Finished, names: &[&str]) {
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert_eq!(finished.stdout, "", "{finished:?}");
    let sentence = finished.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(
        sentence.starts_with("fairlane: ") && !sentence.contains('\n'),
        "{finished:?}"
    );
    for name in names {
        assert!(sentence.contains(name), "{name} is not in: {sentence}");
    }
}

/// Names of interfaces that do not exist here, since the output differs for those that do.
const NAMED: [&str; 4] = ["--outside", "out%d", "--inside", "in%d"];

fn named<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["init"], &NAMED[..], more].concat()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn the_first_file_passes_the_check_without_a_warning_whatever_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["out%d", "a\"b", "a\\b", "'", "#[x]", "größe", "\u{1b}[2J"];
    for (at, outside) in names.iter().enumerate() {
        for (turn, near) in [&["--inside", "in%d"][..], &["--tap"]].iter().enumerate() {
            let file = path(folder.path(), &format!("{at}-{turn}.toml"));
            let ends = [&["init", "--outside", outside][..], near].concat();
            let written = fairlane(&[&ends[..], &[&file, "--rate-up", "3mbit"]].concat());
            assert!(written.status.success(), "{written:?}");
            assert!(!written.stdout.contains('\u{1b}'), "{written:?}");
            assert!(!written.stderr.contains('\u{1b}'), "{written:?}");
            let checked = fairlane(&["check", &file]).success();
            for part in ["up leaves by outside at 3mbit", "at 100mbit", "everybody"] {
                assert!(checked.contains(part), "{checked}");
            }
        }
    }
}

#[test]
fn a_file_that_is_there_is_left_alone_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "site.toml");
    fs::write(&file, "mine").unwrap();
    refused(&fairlane(&named(&[&file])), &[&file, "--force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let replaced = fairlane(&named(&[&file, "--force"]));
    assert!(replaced.status.success(), "{replaced:?}");
    fairlane(&["check", &file]).success();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "it is still the owner's alone");
    let elsewhere = path(folder.path(), "none/site.toml");
    refused(
        &fairlane(&named(&[&elsewhere])),
        &[&elsewhere, "No such file"],
    );
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "nothing is left beside it");
}

#[test]
fn what_is_no_place_for_a_file_is_refused() {
    refused(
        &fairlane(&named(&["/proc/none.toml"])),
        &["/proc/none.toml"],
    );
    refused(
        &fairlane(&named(&["/dev/full", "--force"])),
        &["/dev/full", "no file"],
    );
    refused(&fairlane(&named(&["/dev/full"])), &["/dev/full", "--force"]);
}

#[test]
fn to_standard_output_goes_the_file_alone() {
    let printed = fairlane(&named(&["-"]));
    assert!(printed.status.success(), "{printed:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "site.toml");
    fs::write(&file, &printed.stdout).unwrap();
    fairlane(&["check", &file]).success();
    for part in ["SET THIS", "90 to 95%", "[control]", "/run/fairlane.sock"] {
        assert!(printed.stdout.contains(part), "{printed:?}");
    }
    for part in ["Rates: ", "examples", "fairlane check"] {
        assert!(printed.stderr.contains(part), "{printed:?}");
    }
}

#[test]
fn what_is_no_rate_or_no_name_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "site.toml");
    for (more, names) in [
        (["--rate-up", "20"], ["'20'", "--rate-up"]),
        (["--rate-down", "0mbit"], ["'0mbit'", "--rate-down"]),
        (["--rate-up", "2kbit"], ["'2kbit'", "100kbit"]),
        (["--rate-down", "2tbit"], ["'2tbit'", "--rate-down"]),
    ] {
        refused(&fairlane(&named(&[&more[..], &[&file]].concat())), &names);
    }
    for name in ["", "a b", "in/out", "sixteen-bytes-xx"] {
        let arguments = ["init", "--outside", name, &file];
        refused(&fairlane(&arguments), &["--outside", "1 to 15 bytes"]);
    }
    refused(&fairlane(&named(&["--tap", &file])), &["--tap", "--inside"]);
    let same = ["init", "--outside", "out%d", "--inside", "out%d", &file];
    refused(&fairlane(&same), &["out%d", "two interfaces"]);
    assert!(!Path::new(&file).exists());
}

#[test]
fn init_with_one_interface_or_none_suggests_what_to_do() {
    let Some((none, _)) = with_interfaces("a machine without interfaces", &[]) else {
        return;
    };
    refused(
        &in_namespace(&none, &["init", "-"]),
        &["--outside", "fairlane run"],
    );
    let Some((one, _links)) = with_interfaces("a machine with one interface", &["eth0"]) else {
        return;
    };
    refused(
        &in_namespace(&one, &["init", "-"]),
        &["\"eth0\" is the only one", "--inside", "--tap"],
    );
    let tap = in_namespace(&one, &["init", "--tap", "-"]);
    assert!(tap.status.success(), "{tap:?}");
    assert!(tap.stdout.contains("outside = \"eth0\""), "{tap:?}");
    assert!(tap.stdout.contains("move-addresses = true"), "{tap:?}");
}

#[test]
fn the_two_interfaces_that_are_there_are_found() {
    let Some((two, _links)) = with_interfaces("a machine with two interfaces", &["lan0", "eth7"])
    else {
        return;
    };
    let found = in_namespace(&two, &["init", "-"]);
    assert!(found.status.success(), "{found:?}");
    for part in ["outside = \"eth7\"", "inside = \"lan0\""] {
        assert!(found.stdout.contains(part), "{found:?}");
    }
    assert!(found.stderr.contains("a guess"), "{found:?}");
}

/// The generated file runs unchanged.
#[test]
fn a_site_runs_by_its_first_file() {
    let Some(wire) = wire("a first file that is run", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "site.toml");
    let ends = ["--outside", "outside", "--inside", "inside"];
    let made = in_namespace(wire.middle(), &[&["init"], &ends[..], &[&file]].concat());
    assert!(made.status.success(), "{made:?}");
    let socket = path(folder.path(), "ctl.sock");
    let text = fs::read_to_string(&file).unwrap();
    // A socket for this test alone.
    let text = text.replace("/run/fairlane.sock", &socket);
    let site = Site::start(&wire, &text);
    let report = site.stop();
    for name in ["up", "down"] {
        let sent = link(&report, name)["transmitted"].as_u64();
        assert!(sent > Some(0), "{report:#}");
    }
}
