//! Each error of a file is reported in one sentence, with its line and column.

mod filters;

use fairlane_config::{Site, SiteError};

/// Returns all errors of a file.
fn sentences(text: &str) -> Vec<String> {
    match Site::parse(text, "site.toml") {
        Err(SiteError::Invalid(errors)) => errors.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    }
}

#[track_caller]
pub(crate) fn refuses(text: &str, expected: &[&str]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|end| format!("site.toml:{end}"))
        .collect();
    assert_eq!(sentences(text), expected, "of\n{text}");
}

/// Checks the errors of a link of 40 Mbit/s followed by `more`, from line 5 on.
#[track_caller]
fn link_refuses(more: &str, expected: &[&str]) {
    refuses(
        &format!("[[link]]\nname = 'up'\nrate = '40mbit'\n\n{more}"),
        expected,
    );
}

/// Checks the errors of a class with `keys`, from line 7 on.
#[track_caller]
fn class_refuses(keys: &str, expected: &[&str]) {
    link_refuses(&format!("[[link.class]]\nname = 'a'\n{keys}"), expected);
}

#[test]
fn a_value_that_is_no_whole_number_names_its_key_and_range() {
    for (key, range) in [
        (
            "[attach]\nsocket = '/s'\nprocesses = ",
            "processes V: R between 1 and 65536",
        ),
        (
            "[[link.class]]\nlimit.packets = ",
            "limit packets V: R between 1 and 2147483647",
        ),
        (
            "[[link.class]]\nroom.packets = ",
            "room packets V: R between 1 and 2147483647",
        ),
        (
            "[[link.class]]\nper = 'vlan'\nflows.most = ",
            "most V: R between 1 and 4000000",
        ),
        (
            "[[link.filter]]\npriority = ",
            "priority V: R between -2147483648 and 2147483647",
        ),
        ("[[link.filter]]\nvlan = ", "vlan V: R between 1 and 4095"),
        (
            "[[link.filter]]\npid = ",
            "pid V: R between 1 and 2147483647",
        ),
    ] {
        for (value, shown) in [
            ("1.5", "1.5"),
            ("'many'", "many"),
            ("true", "true"),
            ("99999999999999999999", "99999999999999999999"),
        ] {
            let text = format!("[[link]]\nname = 'up'\nrate = '40mbit'\n{key}{value}\n");
            let text = text
                .replace("[link.class]]\n", "[link.class]]\nname = 'a'\n")
                .replace("[link.filter]]\n", "[link.filter]]\nclass = 'default'\n");
            let sentence = range
                .replace('V', &format!("'{shown}'"))
                .replace('R', "it is a whole number");
            let error = Site::parse(&text, "s").unwrap_err().to_string();
            assert!(error.contains(&sentence), "{text}{error}");
        }
    }
    for (key, sentence) in [
        ("overhead = 1.5", "overhead '1.5': it is a number of bytes"),
        (
            "[[link.filter]]\nclass = 'default'\ndscp = 1.5",
            "dscp '1.5': ",
        ),
        ("[workers]\nreceive = true", "receive true: "),
        (
            "[workers]\ncores = [1.5]",
            "cores: a core is a whole number from 0 to 65535",
        ),
    ] {
        let text = format!("[[link]]\nname = 'up'\nrate = '40mbit'\n{key}\n");
        let error = Site::parse(&text, "s").unwrap_err().to_string();
        assert!(error.contains(sentence), "{text}{error}");
    }
}

#[test]
fn longest_packets_of_classes_that_do_not_fit() {
    for longest in ["59b", "2kb"] {
        class_refuses(
            &format!("longest = '{longest}'\ndefault = true\n"),
            &[&format!(
                "7:11: longest '{longest}': out of range (from 60 bytes, the shortest frame of Ethernet, to 1522, the \
                 longest frame of the link)"
            )],
        );
    }
    class_refuses(
        "longest = '300b'\n[[link.class]]\nname = 'b'\nparent = 'a'\ndefault = true",
        &["7:11: longest: class 'a' has children, and theirs counts"],
    );
    class_refuses(
        "arrival-burst = '1kb'\ndefault = true",
        &["7:17: arrival-burst '1kb': less than the longest packet, 1522 bytes"],
    );
    class_refuses(
        "longest = '300b'\nlimit = { bytes = '200b' }\ndefault = true",
        &["8:19: limit bytes '200b': less than the longest packet, 300 bytes"],
    );
}

#[test]
fn room_that_cannot_be_kept() {
    class_refuses(
        "default = true\nroom = { packets = 0 }\n",
        &["8:20: room packets 0: it lies between 1 and 2147483647"],
    );
    class_refuses(
        "default = true\nroom = { bytes = '1kb' }\n",
        &["8:18: room bytes '1kb': less than the longest packet, 1522 bytes"],
    );
    class_refuses(
        "default = true\nroom = { packets = 11 }\nlimit = { packets = 10 }\n",
        &[
            "8:8: room: room for 11 packets and 58kb is more than the limit of the queue, room for \
           10 packets and 2147483647b",
        ],
    );
    class_refuses(
        "room = { packets = 11 }\n[[link.class]]\nname = 'b'\nparent = 'a'\ndefault = true",
        &["7:8: room: class 'a' has children, and what is in it waits in those"],
    );
    link_refuses(
        "limit = { packets = 100 }\nclass = [{ name = 'a', room = { packets = 101 }, default = true }]",
        &[
            "5:9: limit: room for 101 packets and 58kb is kept for the classes of link 'up', so \
           that they have what they are guaranteed: its limit is no less, and no more than \
           4294967295 packets; or classes and flows have less 'room'",
        ],
    );
    let xdp = |backend| {
        format!(
            "[interfaces]\ninside = 'a'\noutside = 'b'\nbackend = '{backend}'\n[[link]]\nname = 'up'\n\
             rate = '40mbit'\nclass = [{{ name = 'a', room = {{ packets = 122369 }}, limit = \
             {{ packets = 200000 }}, default = true }}]"
        )
    };
    refuses(
        &xdp("xdp"),
        &[
            "4:11: backend 'xdp': at most 122368 packets may wait in all links, and room for 122369 \
           is kept for their classes: give classes and flows less 'room', or use the backend \
           \"packet\"",
        ],
    );
    refuses(&xdp("packet"), &[]);
    // The error suggests a reservation that fits.
    let many = |room: &str| {
        let classes =
            (0..10_000).map(|n| format!("[[link.class]]\nname = 'c{n}'\nweight = 1\n{room}\n"));
        let classes: String = classes.collect();
        "[interfaces]\ninside = 'a'\noutside = 'b'\nbackend = 'xdp'\n[[link]]\nname = 'up'\n\
         rate = '10gbit'\n"
            .to_owned()
            + &classes
            + "[[link.class]]\nname = 'rest'\nroom = { packets = 200 }\ndefault = true\n"
    };
    let sentence = Site::parse(&many(""), "site.toml").unwrap_err().to_string();
    let advice = "write room = { packets = 12 } in the 10000 classes that have more";
    assert!(sentence.contains(advice), "{sentence}");
    let site = Site::parse(&many("room = { packets = 12 }"), "site.toml").unwrap();
    assert_eq!(site.warnings.len(), 0, "{:?}", site.warnings.first());
    assert!(Site::parse(&many("room = { packets = 13 }"), "site.toml").is_err());
    // A slightly smaller one fits, and the rest is shared.
    let site = Site::parse(&xdp("xdp").replace("122369", "122000"), "site.toml").unwrap();
    assert_eq!(site.links[0].limits.packets, 122_368);
}

#[test]
fn a_file_that_is_not_toml_or_has_other_keys() {
    refuses("[[link]\n", &["1:8: unclosed array table, expected ']'"]);
    refuses(
        "[[link]]\nrate = '1mbit'\n",
        &["1:1: the key 'name' is missing"],
    );
    refuses(
        "[[link]]\nname = 'up'\nrate = 40\n",
        &["3:8: rate: invalid type: integer '40', expected a text in quotes"],
    );
    refuses(
        "[interfces]\n",
        &["1:2: unknown key 'interfces', did you mean 'interfaces'?"],
    );
    refuses(
        "[[link]]\nname = 'up'\nrat = '1mbit'\n",
        &["3:1: unknown key 'rat', did you mean 'rate'?"],
    );
    refuses(
        "colour = 1\n",
        &[
            "1:1: unknown key 'colour': the keys here are interfaces, attach, control, workers, link",
        ],
    );
    refuses(
        "",
        &["1:1: there is no [[link]]: at least one direction is shaped"],
    );
    refuses(
        "link = 5\n",
        &["1:8: link: invalid type: integer '5', expected tables in double brackets"],
    );
    refuses(
        "[[link]]\nname = 5\n",
        &["2:8: name: invalid type: integer '5', expected a text in quotes"],
    );
    refuses(
        "name = 'a'\nname = 'b'\n",
        &["2:1: the key 'name' is given twice"],
    );
}

#[test]
fn an_unknown_key_of_a_class_or_a_table_in_it() {
    class_refuses(
        "celi = '1mbit'\n",
        &["7:1: unknown key 'celi', did you mean 'ceil'?"],
    );
    class_refuses(
        "limit = { packet = 5 }\n",
        &["7:11: unknown key 'packet', did you mean 'packets'?"],
    );
    class_refuses(
        "queue = { kind = 'codel', tagret = '5ms' }\n",
        &["7:27: unknown key 'tagret', did you mean 'target'?"],
    );
    class_refuses(
        "flows = { mots = 1 }\n",
        &["7:11: unknown key 'mots', did you mean 'most'?"],
    );
    class_refuses(
        "limit = 5\n",
        &["7:9: limit: invalid type: integer '5', expected a table"],
    );
    class_refuses(
        "queue = 5\n",
        &["7:9: queue: invalid type: integer '5', expected a text such as \"codel\", or a table"],
    );
}

#[test]
fn places_to_be_asked_that_cannot_be() {
    for (control, sentence) in [
        (
            "",
            "[control] needs 'socket', as in \"/run/fairlane.sock\", or 'http'",
        ),
        ("socket = ''", "socket: a path is needed"),
        (
            "socket = 's'\nsocket-mode = '0888'",
            "socket-mode '0888': three octal digits",
        ),
        (
            "socket = 's'\nsocket-mode = '+660'",
            "socket-mode '+660': three octal digits",
        ),
        (
            "socket = \"/run/\\u0000s\"",
            "the path of a socket has at most 107 bytes",
        ),
        ("http = '0.0.0.0:80'", "0.0.0.0 is no loopback address"),
        (
            "http = 'localhost'",
            "address and port are needed, as in \"127.0.0.1:7172\"",
        ),
        (
            "socket = 's'\ntoken = 't'",
            "token: it is for 'http', which is not given",
        ),
        (
            "http = '127.0.0.1:80'\nsocket-mode = '0600'",
            "socket-mode: it is for 'socket', which is not given",
        ),
        ("port = 80", "unknown key 'port'"),
    ] {
        let file = format!("[control]\n{control}\n[[link]]\nname='a'\nrate='1mbit'\n");
        let error = Site::parse(&file, "site.toml").unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
}

#[test]
fn one_socket_for_processes_and_for_who_asks() {
    let link = "[[link]]\nname='a'\nrate='1mbit'\n";
    for (attach, control) in [
        ("/run/f.sock", "/run/f.sock"),
        ("/run//f.sock", "/run/f.sock"),
    ] {
        let sentence = format!(
            "2:10: socket '{attach}': it is the socket of [control] too; [attach] needs a path of its own"
        );
        refuses(
            &format!("[attach]\nsocket = '{attach}'\n[control]\nsocket = '{control}'\n{link}"),
            &[&sentence],
        );
    }
    refuses(
        &format!("[attach]\nsocket = '/run/a.sock'\n[control]\nsocket = '/run/f.sock'\n{link}"),
        &[],
    );
}

#[test]
fn interfaces_that_are_no_pair() {
    refuses(
        "[interfaces]\noutside = 'wan0'\n[[link]]\nname='a'\nrate='1mbit'\n",
        &[
            "2:11: nothing would leave by 'outside': [interfaces] needs 'inside' or 'tap' too, or the file [attach]",
        ],
    );
    refuses(
        "[interfaces]\noutside = 'wan0'\ninside = 'wan0'\n[[link]]\nname='a'\nrate='1mbit'\n",
        &["3:10: 'wan0' is outside already: the two sides are two interfaces"],
    );
    refuses(
        "[interfaces]\noutside = 'wan0'\ninside = 'lan0'\ntap = 't0'\n[[link]]\nname='a'\nrate='1mbit'\n",
        &[
            "4:7: tap: with 'inside' this is a bump in the wire, which has no tap device; leave out one of the two",
        ],
    );
    let moving = |key: &str| {
        format!("[interfaces]\noutside = 'wan0'\n{key}\n[[link]]\nname='a'\nrate='1mbit'\n")
    };
    refuses(
        &moving("inside = 'lan0'\nmove-addresses = true"),
        &["4:18: move-addresses: addresses move to a tap device, and [interfaces] has no 'tap'"],
    );
    refuses(&moving("inside = 'lan0'\nmove-addresses = false"), &[]);
    refuses(&moving("tap = 't0'\nmove-addresses = true"), &[]);
    refuses(
        "[interfaces]\noutside = 'a-name-that-is-too-long'\ninside = 'la n'\n[[link]]\nname='a'\nrate='1mbit'\n",
        &[
            "2:11: outside 'a-name-that-is-too-long': the name of an interface has 1 to 15 bytes, without spaces, '/' and ':'",
            "3:10: inside 'la n': the name of an interface has 1 to 15 bytes, without spaces, '/' and ':'",
        ],
    );
    refuses(
        "[interfaces]\noutside = 'wan0'\ninside = 'lan0'\nbackend = 'xpd'\n[[link]]\nname='a'\nrate='1mbit'\n",
        &["4:11: backend 'xpd' does not exist, did you mean 'xdp'?"],
    );
    refuses(
        "[interfaces]\noutside = 'wan0'\ninside = 'lan0'\nbackend = 'dpdk'\n[[link]]\nname='a'\nrate='1mbit'\n",
        &["4:11: backend 'dpdk' does not exist: it is one of packet, xdp"],
    );
    refuses(
        "[interfaces]\noutside = 'wan0'\ninside = 'lan0'\n[[link]]\nname='a'\nto='tap'\nrate='1mbit'\n",
        &["6:4: to 'tap': [interfaces] has no 'tap'"],
    );
    refuses(
        "[[link]]\nname='a'\nto='inisde'\nrate='1mbit'\n",
        &["3:4: to 'inisde' does not exist, did you mean 'inside'?"],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\n[[link]]\nname='a'\nrate='1mbit'\n",
        &[
            "5:6: name 'a': another link has it already",
            "5:6: link 'a' leaves by outside already",
        ],
    );
}

#[test]
fn sockets_and_quotas_of_attach_that_are_none() {
    refuses(
        "[attach]\nsocket=''\n[[link]]\nname='a'\nrate='1mbit'\n",
        &["2:8: socket: a path is needed, as in \"/run/fairlane-attach.sock\""],
    );
    refuses("[attach]\n", &["1:1: the key 'socket' is missing"]);
    for (keys, sentence) in [
        (
            "processes=0",
            "3:11: processes 0: it lies between 1 and 65536",
        ),
        (
            "processes=65537",
            "3:11: processes 65537: it lies between 1 and 65536",
        ),
        (
            "processes-per-user=257",
            "3:20: processes-per-user 257: it lies between 1 and 256",
        ),
        (
            "processes-per-user=0",
            "3:20: processes-per-user 0: it lies between 1 and 256",
        ),
        (
            "memory='64'",
            "3:8: memory '64': a size needs one of the units b, kb, mb, gb (bytes; 1kb is 1024b), as in 64kb",
        ),
        (
            "memory='384kb'",
            "3:8: memory '384kb': less than the 393344 bytes of one mailbox, which has room for 256 frames of 1522 bytes",
        ),
    ] {
        refuses(
            &format!("[attach]\nsocket='s'\n{keys}\n[[link]]\nname='a'\nrate='1mbit'\n"),
            &[sentence],
        );
    }
}

#[test]
fn numbers_of_a_link_that_are_none() {
    refuses(
        "[[link]]\nname='a'\nrate='40'\n",
        &[
            "3:6: rate '40': a rate needs one of the units bit, kbit, mbit, gbit, tbit, as in 100mbit",
        ],
    );
    refuses(
        "[[link]]\nname='a'\nrate='2tbit'\n",
        &["3:6: rate '2tbit': a rate lies between 1kbit and 1tbit"],
    );
    refuses(
        "[[link]]\nname=''\nrate='1mbit'\n",
        &["2:6: name: a link needs one that is not empty"],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\noverhead=-1\n",
        &["4:10: overhead '-1': it is a number of bytes from 0 to 65534, or \"ethernet\" for 24"],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\noverhead='atm'\n",
        &["4:10: overhead 'atm': it is a number of bytes from 0 to 65534, or \"ethernet\" for 24"],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\noverhead=24\nlongest='64kb'\n",
        &[
            "5:9: longest '64kb': it is from 60 bytes, the shortest frame of Ethernet, to 65511: \
           with 24 bytes of overhead, a packet has up to 65535",
        ],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\nlongest='59b'\n",
        &[
            "4:9: longest '59b': it is from 60 bytes, the shortest frame of Ethernet, to 65535: \
           with 0 bytes of overhead, a packet has up to 65535",
        ],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\nlimit={packets=0}\n",
        &["4:16: limit packets 0: it lies between 1 and 4294967295"],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\nlimit={bytes='1kb'}\n",
        &["4:14: limit bytes '1kb': less than the longest packet, 1522 bytes"],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\nalgorithm='qfqq'\n",
        &["4:11: algorithm 'qfqq' does not exist, did you mean 'qfq'?"],
    );
    refuses(
        "[[link]]\nname='a'\nrate='1mbit'\nalgorithm='hfsc'\n",
        &[
            "4:11: algorithm 'hfsc' does not exist: it is one of fifo, drr, wfq, wf2q, wf2q+, scfq, qfq, qfq+, s-kps, gfq, priority, sfq, wf2q++, s-kps+, gfq+, drr+, cbq",
        ],
    );
}

#[test]
fn rates_and_ceilings_that_contradict_each_other() {
    class_refuses(
        "rate = '2mbit'\nceil = '1mbit'\n",
        &["8:8: ceil '1mbit': less than the rate of class 'a', 2mbit"],
    );
    class_refuses(
        "rate = '41mbit'\n",
        &[
            "7:8: rate: the rates below link 'up' add up to 41mbit, more than the 40mbit that it has",
        ],
    );
    // One bit/s more than the rest, and a part of a rate.
    class_refuses(
        "rate = '40.000001mbit'\n",
        &[
            "7:8: rate: the rates below link 'up' add up to 40000001bit, more than the 40mbit that it has",
        ],
    );
    class_refuses(
        "rate = '40.0000001mbit'\n",
        &["7:8: rate '40.0000001mbit': a rate is a whole number of bits a second"],
    );
    class_refuses(
        "ceil = '1kbit'\n",
        &["7:8: ceil '1kbit': less than one packet of 1522 bytes a second, which is 12176bit"],
    );
    class_refuses(
        "burst = '16kb'\n",
        &["7:9: burst: it is how far 'ceil' is stretched, which is not given"],
    );
    class_refuses(
        "ceil='1mbit'\nburst='1kb'\n",
        &["8:7: burst '1kb': less than the longest packet, 1522 bytes"],
    );
    class_refuses(
        "rate='fast'\nceil='1'\n",
        &[
            "7:6: rate 'fast': a rate starts with a number, as in 100mbit",
            "8:6: ceil '1': a rate needs one of the units bit, kbit, mbit, gbit, tbit, as in 100mbit",
        ],
    );
    class_refuses(
        "rate='20mbit'\n[[link.class]]\nname='b'\nrate='21mbit'\n",
        &[
            "10:6: rate: the rates below link 'up' add up to 41mbit, more than the 40mbit that it has",
        ],
    );
    class_refuses(
        "rate='20mbit'\n[[link.class]]\nname='b'\nparent='a'\nrate='15mbit'\n[[link.class]]\nname='c'\nparent='a'\nrate='6mbit'\n[[link.class]]\nname='d'\nrate='20mbit'\n",
        &[
            "15:6: rate: the rates below class 'a' add up to 21mbit, more than the 20mbit that it has",
        ],
    );
    class_refuses(
        "ceil='10mbit'\n[[link.class]]\nname='b'\nparent='a'\nrate='15mbit'\n",
        &[
            "11:6: rate: the rates below class 'a' add up to 15mbit, more than the 10mbit that it has",
        ],
    );
}

#[test]
fn weights_levels_and_limits_out_of_range() {
    class_refuses(
        "weight = 0\n",
        &["7:10: weight 0: it lies between 1 and 1000000"],
    );
    class_refuses(
        "weight = 1000001\n",
        &["7:10: weight 1000001: it lies between 1 and 1000000"],
    );
    class_refuses(
        "priority = 3\n",
        &[
            "7:12: priority: it counts below algorithm \"priority\" and in \"cbq\", not below \"qfq\"",
        ],
    );
    class_refuses(
        "limit = { packets = 0 }\n",
        &["7:21: limit packets 0: it lies between 1 and 2147483647"],
    );
    class_refuses(
        "limit = { bytes = '0b' }\n",
        &["7:19: limit bytes '0b': less than the longest packet, 1522 bytes"],
    );
    class_refuses(
        "limit = { bytes = '3gb' }\n",
        &["7:19: limit bytes '3gb': it is at most 2147483647b"],
    );
    class_refuses(
        "limit = { packets = 4294967296 }\n",
        &["7:21: limit packets 4294967296: it lies between 1 and 2147483647"],
    );
}

#[test]
fn classes_that_are_no_tree() {
    class_refuses(
        "parent = 'b'\n",
        &["7:10: parent 'b' does not exist in this link"],
    );
    class_refuses(
        "parent='offices'\n[[link.class]]\nname='office'\n",
        &["7:8: parent 'offices' does not exist in this link, did you mean 'office'?"],
    );
    class_refuses(
        "parent='b'\n[[link.class]]\nname='b'\nparent='c'\n[[link.class]]\nname='c'\nparent='b'\n",
        &["10:8: class 'b' is its own ancestor: b < c < b"],
    );
    class_refuses(
        "parent='a'\n",
        &["7:8: class 'a' is its own ancestor: a < a"],
    );
    class_refuses(
        "[[link.class]]\nname = 'a'\n",
        &["8:8: name 'a': another class has it already"],
    );
    class_refuses(
        "[[link.class]]\nname = ''\n",
        &["8:8: name: a class needs one that is not empty"],
    );
    class_refuses(
        "default=true\n[[link.class]]\nname='b'\ndefault=true\n",
        &["10:9: default: class 'a' is it already, and a link has one"],
    );
    class_refuses(
        "default=true\n[[link.class]]\nname='b'\nparent='a'\n",
        &["7:9: default: class 'a' has children, and packets go to a class without"],
    );
    class_refuses(
        "[[link.class]]\nname='default'\n[[link.class]]\nname='b'\nparent='default'\n",
        &["8:6: class 'default' has children: another class needs 'default = true'"],
    );
}

#[test]
fn keys_that_do_not_go_together() {
    class_refuses(
        "per='source-ip'\n[[link.class]]\nname='b'\nparent='a'\n",
        &["7:5: per: class 'a' has children, and a class has either children or flows"],
    );
    class_refuses(
        "limit={packets=1}\nqueue='red'\n[[link.class]]\nname='b'\nparent='a'\n",
        &[
            "7:7: limit: class 'a' has children, and what is in it waits in those",
            "8:7: queue: class 'a' has children, and what is in it waits in those",
        ],
    );
    class_refuses(
        "flows={most=5}\n",
        &["7:7: flows: class 'a' has none without 'per'"],
    );
    class_refuses(
        "algorithm='drr'\n",
        &["7:11: algorithm: class 'a' has neither children nor flows to choose among"],
    );
    class_refuses(
        "borrow=true\n",
        &["7:8: borrow: only a link of algorithm \"cbq\" has it"],
    );
    class_refuses(
        "per='source'\n",
        &[
            "7:5: per 'source': flows are per source-ip, destination-ip, 5-tuple, source-subnet/N, destination-subnet/N (N from 1 to 128), vlan, dscp or owner",
        ],
    );
    class_refuses(
        "per='source-ip'\nflows={most=0}\n",
        &["8:13: most 0: it lies between 1 and 4000000"],
    );
    class_refuses(
        "per='source-ip'\nflows={forget='10'}\n",
        &["8:15: forget '10': a time needs one of the units ns, us, ms, s, min, h, as in 5ms"],
    );
    class_refuses(
        "per='source-ip'\nalgorithm='sfq'\nflows={ceil='1mbit'}\n",
        &["9:13: ceil: algorithm \"sfq\" follows every packet, so its flows cannot have a ceiling"],
    );
    class_refuses(
        "per='source-ip'\nflows={most=5000000, burst='1mb'}\n",
        &[
            "8:13: most 5000000: it lies between 1 and 4000000",
            "8:28: burst: it is how far 'ceil' is stretched, which is not given",
        ],
    );
}

#[test]
fn queue_management_out_of_range() {
    class_refuses(
        "queue='coddle'\n",
        &["7:7: queue 'coddle' does not exist, did you mean 'codel'?"],
    );
    class_refuses(
        "queue='fq'\n",
        &["7:7: queue 'fq' does not exist: it is one of tail-drop, red, codel"],
    );
    class_refuses(
        "queue={target='5ms'}\n",
        &["7:7: queue: the key 'kind' is missing"],
    );
    class_refuses(
        "queue={kind='codel', target='100ms', interval='5ms'}\n",
        &["7:29: target '100ms': it lies above 0 and below the interval, 5ms"],
    );
    class_refuses(
        "queue={kind='codel', interval='5s'}\n",
        &["7:31: interval '5s': it lies between 10us and 4s"],
    );
    class_refuses(
        "queue={kind='codel', target='5'}\n",
        &["7:29: target '5': a time needs one of the units ns, us, ms, s, min, h, as in 5ms"],
    );
    class_refuses(
        "queue={kind='red', target='5ms'}\n",
        &["7:27: target: a queue of kind 'red' has none"],
    );
    class_refuses(
        "queue={kind='tail-drop', ecn=true}\n",
        &["7:30: ecn: a queue of kind 'tail-drop' has none"],
    );
    class_refuses(
        "queue={kind='red', min=30, max=10}\n",
        &["7:32: queue: RED's upper threshold of 10 must lie above the lower one of 30"],
    );
    class_refuses(
        "queue={kind='red', min=0, max=10}\n",
        &["7:24: queue: RED's lower threshold must be at least 1, it is 0"],
    );
    class_refuses(
        "queue={kind='red', min=5}\n",
        &["7:24: queue: 'min' and 'max' are given together, in one unit"],
    );
    class_refuses(
        "queue={kind='red', min=5, max='30kb'}\n",
        &["7:31: queue: 'min' and 'max' are both packets, as in 30, or both bytes, as in \"30kb\""],
    );
    class_refuses(
        "queue={kind='red', max-p=1.5}\n",
        &["7:26: max-p 1.5: it lies between 0 and 1"],
    );
    class_refuses(
        "queue={kind='red', max-p=0.0}\n",
        &["7:26: queue: RED's max-p must be above 0, or it never drops below the upper threshold"],
    );
    class_refuses(
        "queue={kind='red', weight=-1}\n",
        &["7:27: weight -1: it lies between 1 and 16"],
    );
    class_refuses(
        "queue={kind='red', min=1, max=5000000000}\n",
        &["7:31: max '5000000000': it lies between 1 and 1073741823"],
    );
    class_refuses(
        "queue={kind='red', min='x', max=3}\n",
        &["7:24: min 'x': a size starts with a number, as in 64kb"],
    );
}

#[test]
fn below_strict_priority() {
    link_refuses(
        "algorithm='priority'\n[[link.class]]\nname='high'\npriority=1\nceil='30mbit'\n[[link.class]]\nname='low'\nrate='11mbit'\ndefault=true\n",
        &[
            "12:6: rate: class 'low' is promised 11mbit, and the ceilings of the classes beside and above it leave 10mbit of the 40mbit that link 'up' has",
        ],
    );
    link_refuses(
        "algorithm='priority'\n[[link.class]]\nname='high'\npriority=1\nceil='30mbit'\n[[link.class]]\nname='low'\nrate='11mbit'\n",
        &[
            "12:6: rate: class 'low' is promised 11mbit, and the ceilings of the classes beside and above it leave 0bit of the 40mbit that link 'up' has",
        ],
    );
    link_refuses(
        "algorithm='priority'\n[[link.class]]\nname='high'\npriority=1\n[[link.class]]\nname='low'\nrate='1mbit'\nweight=2\n",
        &["12:8: weight: algorithm \"priority\" knows none"],
    );
    link_refuses(
        "algorithm='priority'\n[[link.class]]\nname='high'\npriority=256\n",
        &["8:10: priority 256: it lies between 0 and 255"],
    );
}

#[test]
fn below_algorithms_without_shares() {
    link_refuses(
        "algorithm='fifo'\n[[link.class]]\nname='a'\nrate='1mbit'\nweight=1\n",
        &[
            "8:6: rate: below algorithm \"fifo\" no class is guaranteed anything",
            "9:8: weight: algorithm \"fifo\" knows none",
        ],
    );
    link_refuses(
        "algorithm='sfq'\n[[link.class]]\nname='a'\nceil='1mbit'\n",
        &[
            "8:6: class 'a': algorithm \"sfq\" follows every packet, so a class below it cannot have a ceiling",
        ],
    );
    link_refuses(
        "algorithm='wf2q'\n[[link.class]]\nname='a'\nper='vlan'\n[[link.class]]\nname='b'\n[[link.class]]\nname='c'\nparent='b'\n",
        &[
            "8:5: class 'a': algorithm \"wf2q\" follows every packet, so a class below it cannot have flows",
            "10:6: class 'b': algorithm \"wf2q\" follows every packet, so a class below it cannot have children",
        ],
    );
    link_refuses(
        "algorithm='wf2q'\n[[link.class]]\nname='a'\nqueue='codel'\n",
        &[
            "8:7: queue: algorithm \"wf2q\" cannot order a queue that drops packets as they leave (use \"tail-drop\" \
             or \"red\", or another algorithm)",
        ],
    );
}

#[test]
fn in_cbq() {
    link_refuses(
        "algorithm='cbq'\n[[link.class]]\nname='a'\n",
        &["7:6: class 'a': in cbq every class has a rate"],
    );
    link_refuses(
        "algorithm='cbq'\n[[link.class]]\nname='a'\nrate='40mbit'\n",
        &[
            "2:8: link 'up' leaves no rate for a default class: one of its classes needs 'default = true'",
        ],
    );
    link_refuses(
        "algorithm='cbq'\n[[link.class]]\nname='a'\nrate='1mbit'\nceil='2mbit'\nweight=1\nper='vlan'\nalgorithm='drr'\npriority=8\nburst='1kb'\n",
        &[
            "9:6: ceil: in cbq a class has its rate, and more only with 'borrow = true'",
            "10:8: weight: in cbq the rates are the shares",
            "11:5: per: cbq knows the classes of the file only",
            "13:10: priority 8: it lies between 0 and 7",
            "14:7: burst '1kb': less than the longest packet, 1522 bytes",
        ],
    );
    link_refuses(
        "algorithm='cbq'\n[[link.class]]\nname='a'\nrate='1mbit'\npriority=2\n[[link.class]]\nname='b'\nparent='a'\nrate='2mbit'\n",
        &["9:10: priority: class 'a' has children, and in cbq theirs count"],
    );
}

#[test]
fn several_errors_are_listed_together() {
    link_refuses(
        "limit = { packets = 0 }\n[[link.class]]\nname='a'\nrate='x'\nweight=0\nper='y'\n[[link.class]]\nname='b'\nqueue='z'\n",
        &[
            "5:21: limit packets 0: it lies between 1 and 4294967295",
            "8:6: rate 'x': a rate starts with a number, as in 100mbit",
            "9:8: weight 0: it lies between 1 and 1000000",
            "10:5: per 'y': flows are per source-ip, destination-ip, 5-tuple, source-subnet/N, destination-subnet/N (N from 1 to 128), vlan, dscp or owner",
            "13:7: queue 'z' does not exist: it is one of tail-drop, red, codel",
        ],
    );
}

/// Returns classes nested to a depth of `levels`.
fn nested(levels: usize) -> String {
    let mut text = "[[link]]\nname='up'\nrate='40mbit'\n".to_owned();
    for level in 1..=levels {
        text += &format!("[[link.class]]\nname='c{level}'\n");
        if level > 1 {
            text += &format!("parent='c{}'\n", level - 1);
        }
    }
    text
}

#[test]
fn classes_are_nested_as_deep_as_is_said_and_no_deeper() {
    assert!(Site::parse(&nested(64), "site.toml").is_ok());
    for levels in [65, 60_000] {
        refuses(
            &nested(levels),
            &["197:8: class 'c65' is 65 levels below its link: 64 are the most"],
        );
    }
}

#[test]
fn processes_that_attach_have_a_way_out() {
    refuses(
        "[interfaces]\noutside='o'\ninside='i'\n[attach]\nsocket='s'\n\
         [[link]]\nname='a'\nto='inside'\nrate='1mbit'\n",
        &[
            "5:8: socket: processes that attach send by the interface outside, and no link has to = \"outside\"",
        ],
    );
}

#[test]
fn a_quantum_belongs_to_drr_and_lies_in_its_range() {
    let only = "quantum: only algorithm \"drr\" has one (write algorithm = \"drr\", or leave out 'quantum')";
    let range = "it lies between 64b and 65535b";
    let link = |keys: &str, expected: &str| {
        link_refuses(keys, &[&format!("5:11: {expected}")]);
    };
    link("quantum = '500b'", only);
    link(
        "quantum = '63b'\nalgorithm = 'drr'",
        &format!("quantum '63b': {range}"),
    );
    link(
        "quantum = '64kb'\nalgorithm = 'drr'",
        &format!("quantum '64kb': {range}"),
    );
    let of_flows = format!("7:11: {only}");
    class_refuses(
        "quantum = '500b'\nper = 'source-ip'\nalgorithm = 'qfq'",
        &[&of_flows],
    );
    class_refuses(
        "quantum = '500b'",
        &["7:11: quantum: class 'a' has neither children nor flows to choose among"],
    );
    link_refuses(
        "quantum = '500b'\nalgorithm = 'cbq'\n[[link.class]]\nname = 'a'\nrate = '1mbit'\ndefault = true",
        &[&format!("5:11: {only}")],
    );
    let odd = "[[link]]\nname = 'up'\nrate = '40mbit'\nquantum = '5mbit'\nalgorithm = 'drr'";
    assert_eq!(sentences(odd).len(), 1, "{:?}", sentences(odd));
}
