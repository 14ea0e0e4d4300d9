//! The destination of departures.

use super::*;
use crate::program;

#[test]
fn an_existing_output_is_replaced_and_keeps_its_permissions_and_links() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    let old = folder.write("old.csv", "before");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&old, folder.path("link.csv")).unwrap();
    folder
        .replay(&format!("{WITH_FLOWS} -o @link.csv"))
        .success();
    assert!(folder.read("old.csv").starts_with(HEADER));
    assert!(
        fs::symlink_metadata(folder.path("link.csv"))
            .unwrap()
            .is_symlink()
    );
    let mode = fs::metadata(&old).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // A new file has the permissions of any other file created here.
    folder
        .replay(&format!("{WITH_FLOWS} -o @new.csv"))
        .success();
    let mode = |name| {
        fs::metadata(folder.path(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("new.csv"), mode("flows.csv"));
}

#[test]
fn a_pipe_is_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    let pipe = folder.pipe("pipe");
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    let finished = folder.replay(&format!("{WITH_FLOWS} -o @pipe"));
    let kind = fs::symlink_metadata(&pipe).unwrap().file_type();
    assert!(finished.status.success() && kind.is_fifo(), "{finished:?}");
    assert!(reader.join().unwrap().starts_with(HEADER));
}

#[test]
fn an_interrupted_replay_leaves_nothing() {
    let folder = Folder::with_flows();
    folder.write("out.csv", "precious");
    // The pipe is never closed.
    let pipe = folder.pipe("arrivals.csv");
    let arguments: Vec<String> = format!("replay {WITH_FLOWS} -o @out.csv")
        .split_whitespace()
        .map(|word| folder.expand(word))
        .collect();
    for signal in ["INT", "TERM"] {
        let running = {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            program::start(&words)
        };
        let mut input = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        std::io::Write::write_all(&mut input, b"time_ns,flow,len\n0,0,1\n").unwrap();
        while folder.names().len() == 3 {
            thread::sleep(Duration::from_millis(1));
        }
        let mut running = running;
        running.signal(signal);
        let finished = running.finish();
        drop(input);
        assert_eq!(finished.status.code(), Some(130), "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(
            finished.stderr.contains("out.csv is unchanged"),
            "{finished:?}"
        );
        assert_eq!(folder.names(), ["arrivals.csv", "flows.csv", "out.csv"]);
        assert_eq!(folder.read("out.csv"), "precious");
    }
}

#[test]
fn closed_output_pipe_is_no_error() {
    let folder = Folder::with_flows();
    let many = "0,0,100\n".repeat(100_000);
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{many}"));
    let mut command = program::command();
    command.arg("replay");
    command.args(
        WITH_FLOWS
            .split_whitespace()
            .map(|word| folder.expand(word)),
    );
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"");
}

#[test]
fn what_the_system_has_no_file_for_is_named_in_its_words() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    let words = format!("replay {WITH_FLOWS} -o @out.csv");
    let arguments = words.split_whitespace().map(|word| folder.expand(word));
    // Descriptors for the three standard streams and for the arrivals.
    let limited = ["-c", "ulimit -n 4 && exec \"$@\"", "sh", program::PROGRAM];
    let output = Command::new("sh").args(limited).args(arguments).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let place = folder.path("out.csv").display().to_string();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with(&format!("fairlane: creating {place}: Too many open files")),
        "{said}"
    );
}
