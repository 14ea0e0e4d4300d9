//! Valid settings that are probably unintended give a warning, and have no other effect.

use fairlane_config::{LongestBy, Site};

#[track_caller]
fn warns(text: &str, expected: &[&str]) {
    let site = Site::parse(text, "site.toml").unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<_> = site.warnings.iter().map(ToString::to_string).collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|end| format!("site.toml:{end}"))
        .collect();
    assert_eq!(warnings, expected, "of\n{text}");
}

/// Checks the warnings of a link of 40 Mbit/s followed by `more`, from line 5 on.
#[track_caller]
fn link_warns(more: &str, expected: &[&str]) {
    let text = format!("[[link]]\nname = 'up'\nrate = '40mbit'\n\n{more}");
    // The warning about an implicit default class has its own test.
    let made = "2:8: link 'up': packets that no filter matches are of a class 'default' that is \
                made for them";
    let site = Site::parse(&text, "site.toml").unwrap_or_else(|error| panic!("{error}"));
    let warnings = site.warnings.iter().map(ToString::to_string);
    let mut warnings: Vec<_> = warnings.collect();
    warnings.retain(|warning| !warning.starts_with(&format!("site.toml:{made}")));
    let expected: Vec<_> = expected
        .iter()
        .map(|end| format!("site.toml:{end}"))
        .collect();
    assert_eq!(warnings, expected, "of\n{text}");
}

#[test]
fn a_default_class_that_is_made_and_takes_what_the_weights_share() {
    let link = "[[link]]\nname = 'up'\nrate = '40mbit'\n";
    let made = |percent| {
        format!(
            "2:8: link 'up': packets that no filter matches are of a class 'default' that is made \
             for them with weight 1, and is guaranteed {percent}% of the link; give a class \
             'default = true', or write one of that name"
        )
    };
    warns(&format!("{link}class = [{{ name = 'a' }}]"), &[&made(50)]);
    let three = "class = [{ name = 'a', rate = '20mbit' }, { name = 'b', weight = 3 }]";
    warns(&format!("{link}{three}"), &[&made(12)]);
    // A small weight compared with the others; the rest that the rates leave; a default class in the file.
    for class in [
        "class = [{ name = 'a', weight = 100 }]",
        "class = [{ name = 'a', rate = '20mbit' }]",
        "class = [{ name = 'a' }, { name = 'default' }]",
        "class = [{ name = 'a', default = true }]",
        "",
    ] {
        warns(&format!("{link}{class}"), &[]);
    }
}

#[test]
fn room_that_is_too_little_for_the_guarantee() {
    let class = "class = [{ name = 'a', rate = '2mbit', limit = { packets = 6 }, default = true }]";
    link_warns(
        class,
        &[
            "5:48: class 'a' may lose packets though it keeps to its guarantee: it, or one of its \
           flows, is sure of room for 6 packets and 58kb, and needs room for 7 packets and 10712b",
        ],
    );
    link_warns(&class.replace("6 }", "7 }"), &[]);
    let own = class.replace("limit", "room");
    let sentence = "class 'a' may lose packets though";
    let site = Site::parse(
        &format!("[[link]]\nname = 'up'\nrate = '40mbit'\n{own}"),
        "s",
    );
    assert!(site.unwrap().warnings[0].to_string().contains(sentence));
    link_warns(&own.replace("6 }", "7 }"), &[]);
}

#[test]
fn a_filter_behind_one_that_takes_all_its_packets() {
    link_warns(
        "class = [{ name = 'a' }, { name = 'b' }]\nfilter = [\n\
         { class = 'a', source = '10.0.0.0/8' },\n\
         { class = 'b', source = '10.1.0.0/16', protocol = 'tcp' },\n]\n",
        &[
            "8:11: this filter never matches: filter number 0, for class 'a', takes all its \
           packets before",
        ],
    );
    // A filter of a higher priority precedes others, whatever its index.
    link_warns(
        "class = [{ name = 'a' }, { name = 'b' }]\nfilter = [\n\
         { class = 'a', source = '10.0.0.0/8' },\n\
         { class = 'b', source = '10.1.0.0/16', priority = 1 },\n]\n",
        &[],
    );
}

#[test]
fn a_filter_that_two_others_cover_together() {
    link_warns(
        "class = [{ name = 'a' }]\nfilter = [\n\
         { class = 'a', source = '10.0.0.0/9' },\n\
         { class = 'a', source = '10.128.0.0/9' },\n\
         { class = 'a', source = '10.0.0.0/8' },\n]\n",
        &["9:11: this filter never matches: filters number 0, 1 take all its packets before"],
    );
}

#[test]
fn a_filter_that_no_packet_can_match() {
    link_warns(
        "class = [{ name = 'a' }]\nfilter = [\n\
         { class = 'a', source = '10.0.0.0/8', destination = '2001:db8::/32' },\n]\n",
        &["7:11: this filter never matches: no packet is all that it asks for"],
    );
}

#[test]
fn a_filter_for_what_does_not_come_that_way() {
    let interfaces = "[interfaces]\ninside = 'lan0'\noutside = 'wan0'\n";
    warns(
        &format!(
            "{interfaces}[[link]]\nname = 'a'\nrate = '1mbit'\n[[link.filter]]\nclass = 'default'\ningress = 'outside'\n"
        ),
        &["9:11: this filter never matches: what leaves by outside does not come from outside"],
    );
    warns(
        &format!(
            "{interfaces}[[link]]\nname = 'a'\nrate = '1mbit'\n[[link.filter]]\nclass = 'default'\nuser = 0\n"
        ),
        &["9:8: user: this filter never matches, without [attach] no process sends"],
    );
}

#[test]
fn a_class_that_the_rates_leave_nothing() {
    link_warns(
        "[[link.class]]\nname = 'a'\nrate = '40mbit'\n[[link.class]]\nname = 'b'\ndefault = true\n",
        &["9:8: class 'b': the rates below link 'up' leave nothing that it could be guaranteed"],
    );
}

#[test]
fn a_burst_that_is_too_short_for_the_rate() {
    link_warns(
        "[[link.class]]\nname = 'a'\nrate = '20mbit'\nceil = '20mbit'\nburst = '2kb'\n",
        &[
            "9:9: class 'a' is guaranteed 1248362bit of its 20mbit: its burst of 2kb is too short to \
           wait for others, 9951b would do",
        ],
    );
    link_warns(
        "[[link.class]]\nname = 'a'\nrate = '20mbit'\nceil = '20mbit'\nburst = '9951b'\n",
        &[],
    );
}

/// Checks the warnings on a machine with the interfaces `lan0` and `wan0` of these MTUs.
#[track_caller]
fn between(lan: u32, wan: u32, longest: &str) -> Site {
    let text = format!(
        "[interfaces]\ninside = 'lan0'\noutside = 'wan0'\n\n\
         [[link]]\nname = 'up'\nrate = '40mbit'\noverhead = 24\n{longest}\n"
    );
    let mtu = |name: &str| match name {
        "lan0" => Some(lan),
        "wan0" => Some(wan),
        _ => None,
    };
    Site::parse_for(&text, "site.toml", &mtu).unwrap_or_else(|error| panic!("{error}"))
}

fn told(site: &Site) -> Vec<String> {
    site.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_longest_packet_follows_from_the_interface_unless_the_file_says_it() {
    // Plus an Ethernet header, two VLAN tags, and the overhead.
    for (mtu, longest) in [(1_500, 1_546), (9_000, 9_046), (65_536, 65_535)] {
        let site = between(mtu, mtu, "");
        assert_eq!(site.links[0].longest.get(), longest);
        assert_eq!(site.links[0].longest_by, LongestBy::Interface { mtu });
        assert_eq!(told(&site), [""; 0]);
    }
    let site = between(1_500, 9_000, "longest = '1518b'");
    assert_eq!(site.links[0].longest.get(), 1_542);
    assert_eq!(site.links[0].longest_by, LongestBy::File);
    assert_eq!(told(&site), [""; 0]);
    let unknown = Site::parse("[[link]]\nname = 'up'\nrate = '40mbit'\n", "site.toml").unwrap();
    assert_eq!(unknown.links[0].longest.get(), 1_522);
    assert_eq!(unknown.links[0].longest_by, LongestBy::Assumed);
}

#[test]
fn frames_that_are_longer_than_the_link_carries() {
    for (lan, wan, longest, expected) in [
        (
            1_500,
            1_500,
            "longest = '1514b'",
            "site.toml:9:11: longest '1514b': inside sends frames of up to 1518 bytes with a VLAN \
             tag (its MTU is 1500), and those that are longer than this are dropped",
        ),
        (
            9_000,
            1_500,
            "",
            "site.toml:6:8: longest '1522b': inside sends frames of up to 9018 bytes with a VLAN \
             tag (its MTU is 9000), and those that are longer than this are dropped",
        ),
    ] {
        assert_eq!(told(&between(lan, wan, longest)), [expected]);
    }
}

/// Returns the warnings about filters that never match, one sentence each.
fn unmatched(text: &str) -> Vec<String> {
    let site = Site::parse(text, "s").unwrap_or_else(|error| panic!("{error}"));
    site.unmatched().iter().map(ToString::to_string).collect()
}

#[test]
fn a_filter_that_never_matches_is_told_by_place_and_with_those_that_take_its_packets() {
    let link = "[[link]]\nname = 'up'\nrate = '40mbit'\n[[link.class]]\nname = 'a'\n\
                [[link.class]]\nname = 'b'\ndefault = true\n";
    let filter = |keys: &str| format!("[[link.filter]]\n{keys}\n");
    let one = filter("class = 'a'\nsource = '10.0.0.0/9'");
    let other = filter("class = 'b'\nsource = '10.128.0.0/9'");
    let never = "the filter for class 'b' of link 'up' can never match: ";
    for (filters, expected) in [
        (one.clone() + &other, vec![]),
        (
            one.clone() + &filter("class = 'b'\nsource = '10.1.0.0/16'"),
            vec!["filter number 0, for class 'a', takes all its packets before"],
        ),
        (
            one + &other + &filter("class = 'b'\nsource = '10.0.0.0/8'"),
            vec!["filters number 0, 1 take all its packets before"],
        ),
        (
            filter("class = 'b'\nsource = '10.0.0.0/8'\ndestination = '2001:db8::/32'"),
            vec!["no packet is all that it asks for"],
        ),
        // Unreachable both by itself and because of another filter.
        (
            filter("class = 'a'") + &filter("class = 'b'\ningress = 'outside'"),
            vec!["no packet is all that it asks for"],
        ),
    ] {
        let expected: Vec<_> = expected.iter().map(|why| format!("{never}{why}")).collect();
        assert_eq!(unmatched(&format!("{link}{filters}")), expected);
    }
    let interfaces = "[interfaces]\ninside = 'lan0'\noutside = 'wan0'\n";
    let user = filter("class = 'b'\nuser = 0");
    assert!(unmatched(&format!("{link}{user}")).is_empty());
    assert_eq!(unmatched(&format!("{interfaces}{link}{user}")).len(), 1);
}
