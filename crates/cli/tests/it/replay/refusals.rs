//! Bad input causes one sentence and leaves no file.

use super::captures::{capture, frames, header, udp};
use super::*;

#[test]
fn a_bad_row_of_arrivals_is_named() {
    for (rows, line, says) in [
        ("", "", &["empty", "time_ns,flow,len"][..]),
        ("time_ns,flow,len\n0,0,1:\n", ":2:", &["len '1:'"]),
        ("\n\n", "", &["empty"]),
        ("time_ns,flow\n1,1\n", ":1:", &["lacks", "len"]),
        ("time_ns,flow,len,x\n", ":1:", &["extra column 'x'"]),
        ("flow,time_ns,len\n", ":1:", &["order"]),
        ("0,0,100\n", ":1:", &["lacks", "time_ns"]),
        (
            "time_ns,flow,len\n0,0,100\n5,0\n",
            ":3:",
            &["len", "missing"],
        ),
        ("time_ns,flow,len\n\n\n5,0\n", ":4:", &["len", "missing"]),
        (
            "time_ns,flow,len\r\n0,0,1\r\n5,0,1,9\r\n",
            ":3:",
            &["'9'", "extra"],
        ),
        (
            "time_ns,flow,len\n0,0,x\n",
            ":2:",
            &["len 'x'", "whole number"],
        ),
        (
            "time_ns,flow,len\n-1,0,1\n",
            ":2:",
            &["time_ns '-1'", "0 to"],
        ),
        ("time_ns,flow,len\n,0,1\n", ":2:", &["time_ns ''"]),
        ("time_ns,flow,len\n1.5,0,1\n", ":2:", &["time_ns '1.5'"]),
        (
            "time_ns,flow,len\n18446744073709551616,0,1\n",
            ":2:",
            &["18446744073709551615"],
        ),
        (
            "time_ns,flow,len\n1000007,0,1\n1000007,0,1\n6,0,1\n",
            ":4:",
            &["time_ns 6", "before the 1000007", "up to 1 ms"],
        ),
        ("time_ns,flow,len\n0,2,1\n", ":2:", &["flow '2'", "0 to 1"]),
        (
            "time_ns,flow,len\n0,4294967296,1\n",
            ":2:",
            &["flow '4294967296'", "0 to 1"],
        ),
        (
            "time_ns,flow,len\n0,0,0\n",
            ":2:",
            &["len '0'", "1 to 65535"],
        ),
        (
            "time_ns,flow,len\n0,1,1001\n",
            ":2:",
            &["len 1001", "flow 1", "1000"],
        ),
        (
            "time_ns,flow,len\n0,0,4294967297\n",
            ":2:",
            &["len '4294967297'", "1 to 65535"],
        ),
    ] {
        let folder = Folder::with_flows();
        folder.write("arrivals.csv", rows);
        refuses(&folder, WITH_FLOWS, &format!("@arrivals.csv{line}"), says);
    }
}

#[test]
fn a_bad_row_after_many_good_ones_leaves_no_output() {
    let folder = Folder::with_flows();
    let good = "1000001,0,100\n".repeat(50_000);
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{good}0,0,100\n"));
    refuses(&folder, WITH_FLOWS, "@arrivals.csv:50002:", &["time_ns 0"]);
}

#[test]
fn departure_beyond_the_time_range_is_rejected() {
    let folder = Folder::with_flows();
    let last = u64::MAX;
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{last},1,1\n"));
    refuses(&folder, WITH_FLOWS, "", &["flow 1", &last.to_string()]);
}

#[test]
fn a_bad_row_of_flows_is_named() {
    for (rows, line, says) in [
        ("", "", &["empty", "flow,weight,max_len"][..]),
        ("flow,weight,max_len\n", "", &["no flow"]),
        ("flow,weight\n0,1\n", ":1:", &["lacks", "max_len"]),
        (
            "flow,weight,max_len,name\n",
            ":1:",
            &["extra column 'name'"],
        ),
        ("flow,weight,max_len\n0,1\n", ":2:", &["max_len", "missing"]),
        ("flow,weight,max_len\n0,1,9,9\n", ":2:", &["'9'", "extra"]),
        (
            "flow,weight,max_len\n0,1.5x,9\n",
            ":2:",
            &["weight '1.5x'", "from 0.000001 to 1000000"],
        ),
        (
            "flow,weight,max_len\n0,0,9\n",
            ":2:",
            &["weight '0'", "1 to 1000000"],
        ),
        (
            "flow,weight,max_len\n0,1000000,9\n1,1000001,9\n",
            ":3:",
            &["weight '1000001'", "1 to 1000000"],
        ),
        (
            "flow,weight,max_len\n0,1,0\n",
            ":2:",
            &["max_len '0'", "1 to 65535"],
        ),
        (
            "flow,weight,max_len\n0,1,65536\n",
            ":2:",
            &["max_len '65536'", "1 to 65535"],
        ),
        (
            "flow,weight,max_len\n0,1,9\n1,1,9\n0,1,9\n",
            ":4:",
            &["flow 0", "line 2"],
        ),
        (
            "flow,weight,max_len\n0,1,9\n2,1,9\n",
            ":3:",
            &["flow 2", "0 to 1"],
        ),
        ("flow,weight,max_len\n1,1,9\n", ":2:", &["flow 1", "gap"]),
    ] {
        let folder = Folder::new();
        folder.write("flows.csv", rows);
        folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
        refuses(&folder, WITH_FLOWS, &format!("@flows.csv{line}"), says);
    }
}

#[test]
fn a_packet_with_its_overhead_is_no_longer_than_packets_are() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n0,1,65535\n");
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,65511\n0,0,65512\n");
    refuses(
        &folder,
        &format!("{WITH_FLOWS} --overhead 24"),
        "@arrivals.csv:3:",
        &["len 65512", "overhead of 24", "65535"],
    );
}

#[test]
fn a_bad_capture_is_named_with_the_packet() {
    let good = capture(
        header(),
        &[
            (1000, 42, udp(1, 5)),
            (1000, 42, udp(2, 5)),
            (2000, 42, udp(1, 5)),
        ],
    );
    let record = 16 + 42;
    let changed = |at: usize, bytes: &[u8]| {
        let mut capture = good.clone();
        capture[at..at + bytes.len()].copy_from_slice(bytes);
        capture
    };
    let second = 24 + record;
    for (capture, place, says) in [
        (good[..0].to_vec(), "", &["header", "cut off"][..]),
        (good[..3].to_vec(), "", &["header", "cut off"]),
        (good[..23].to_vec(), "", &["header", "cut off"]),
        (good[..25].to_vec(), " packet 1", &["cut off"]),
        (good[..second + 15].to_vec(), " packet 2", &["cut off"]),
        (good[..good.len() - 1].to_vec(), " packet 3", &["cut off"]),
        (changed(0, b"time"), "", &["not a pcap"]),
        (changed(4, &[0, 3]), "", &["version 3"]),
        (
            changed(20, &[0, 0, 0, 147]),
            "",
            &["link type 147", "Ethernet"],
        ),
        // The second packet is a second early.
        (
            changed(24, &[0, 0, 0, 1]),
            " packet 2",
            &["0.000001000", "1.000001000", "up to 1 ms"],
        ),
        (changed(second + 4, &[0xff; 4]), " packet 2", &["999999999"]),
        (changed(second + 8, &[0xff; 4]), " packet 2", &["cut off"]),
        (
            changed(second + 12, &[0, 0, 0, 41]),
            " packet 2",
            &["of 41"],
        ),
        (changed(0, &[0x0a, 0x0d, 0x0d, 0x0a]), "", &["file header"]),
    ] {
        let folder = Folder::new();
        folder.write("in.pcap", capture);
        refuses(
            &folder,
            "--alg drr --rate 1gbit @in.pcap",
            &format!("@in.pcap:{place}"),
            says,
        );
    }
    let folder = Folder::new();
    folder.write("in.pcap", &good[..good.len() - 1]);
    let finished = folder.replay("--alg drr --rate 1gbit @in.pcap -o @out.pcap");
    assert_eq!(finished.status.code(), Some(2));
    assert_eq!(folder.names(), ["in.pcap"]);
}

#[test]
fn a_flow_beyond_the_table_is_named() {
    let folder = Folder::with_flows();
    folder.write(
        "in.pcap",
        frames(&[udp(1, 5), udp(2, 5), udp(1, 5), udp(3, 5)]),
    );
    refuses(
        &folder,
        "--alg drr --rate 1gbit --flows @flows.csv @in.pcap",
        "@in.pcap: packet 4:",
        &["flow 2", "10.0.0.3:5 > 10.0.1.1:80 udp", "beyond the 2"],
    );
}

#[test]
fn a_bad_option_is_named() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    let input = "--flows @flows.csv @arrivals.csv";
    for (options, says) in [
        ("--alg qfq --rate 0mbit", &["--rate", "1kbit and 1tbit"][..]),
        ("--alg qfq --rate 100", &["--rate", "unit"]),
        ("--alg hfsc --rate 1mbit", &["--alg", "'hfsc'", "qfq"]),
        ("--alg qfq", &["--rate"]),
        ("--rate 1mbit", &["--alg"]),
        (
            "--alg qfq --rate 1mbit --aggregate 0",
            &["--aggregate", "'0'"],
        ),
        (
            "--alg qfq --rate 1mbit --overhead 65535",
            &["--overhead", "65534"],
        ),
        ("--alg qfq --rate 1mbit --overhead -1", &["'-1'"]),
        (
            "--alg qfq --rate 1mbit --flow-by port",
            &["--flow-by", "5-tuple, source"],
        ),
        (
            "--alg qfq --rate 1mbit --flow-by source",
            &["--flow-by", "capture"],
        ),
    ] {
        refuses(&folder, &format!("{options} {input}"), "", says);
    }
    refuses(
        &folder,
        "--alg qfq --rate 1mbit @arrivals.csv",
        "@arrivals.csv: ",
        &["--flows"],
    );
    refuses(
        &folder,
        "--alg qfq --rate 1mbit",
        "",
        &["ARRIVALS.csv|IN.pcap"],
    );
}

#[test]
fn a_missing_file_is_named() {
    let folder = Folder::with_flows();
    let missing = folder.expand("@missing.csv");
    for arguments in [
        "--flows @missing.csv @flows.csv",
        "--flows @flows.csv @missing.csv",
    ] {
        refuses(
            &folder,
            &format!("--alg qfq --rate 1mbit {arguments}"),
            "opening ",
            &[&missing, "No such file"],
        );
    }
    let folder = Folder::with_flows();
    let name = folder.0.path().to_str().unwrap();
    let arguments = format!("--alg qfq --rate 1mbit --flows @flows.csv {name}");
    refuses(&folder, &arguments, "reading ", &[name, "directory"]);
}

#[test]
fn an_output_that_cannot_be_is_named() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    std::os::unix::fs::symlink(folder.path("arrivals.csv"), folder.path("link.csv")).unwrap();
    let before = folder.names();
    let path = folder.0.path().to_str().unwrap();
    for (output, says) in [
        ("@arrivals.csv", "this is an input"),
        ("@flows.csv", "this is an input"),
        ("@link.csv", "this is an input"),
        ("@out.pcap", "takes a capture"),
        ("@none/out.csv", "creating "),
        (path, "creating "),
    ] {
        let finished = folder.replay(&format!("{WITH_FLOWS} -o {output}"));
        assert_eq!(finished.status.code(), Some(2), "{output}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(finished.stderr.contains(says), "{output}: {finished:?}");
        assert!(
            finished.stderr.contains(&folder.expand(output)),
            "{finished:?}"
        );
        assert_eq!(folder.names(), before);
    }
    assert_eq!(folder.read("arrivals.csv"), "time_ns,flow,len\n0,0,1\n");
    assert_eq!(folder.read("flows.csv"), FLOWS);
}
