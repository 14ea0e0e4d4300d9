//! What is allowed and hardly meant is told, and changes nothing.

use fairlane_config::Site;

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

/// Of a link of 40 Mbit/s with `more` behind it, from line 5 on.
#[track_caller]
fn link_warns(more: &str, expected: &[&str]) {
    warns(
        &format!("[[link]]\nname = 'up'\nrate = '40mbit'\n\n{more}"),
        expected,
    );
}

#[test]
fn a_filter_behind_one_that_takes_all_its_packets() {
    link_warns(
        "class = [{ name = 'a' }, { name = 'b' }]\nfilter = [\n\
         { class = 'a', source = '10.0.0.0/8' },\n\
         { class = 'b', source = '10.1.0.0/16', protocol = 'tcp' },\n]\n",
        &[
            "8:11: this filter never matches: filter 1 of the link, for class 'a', takes all its \
           packets before",
        ],
    );
    // A higher priority comes first, whatever its place.
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
        &["9:11: this filter never matches: filters 1, 2 of the link take all its packets before"],
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
            "9:9: class 'a' is guaranteed 1269156bit of its 20mbit: its burst of 2kb is too short to \
           wait for others, 9931b would do",
        ],
    );
    link_warns(
        "[[link.class]]\nname = 'a'\nrate = '20mbit'\nceil = '20mbit'\nburst = '9931b'\n",
        &[],
    );
}
