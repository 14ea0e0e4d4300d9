//! Errors of filters.

use super::*;

/// Checks the errors of a filter with `keys`, from line 8 on.
#[track_caller]
fn filter_refuses(keys: &str, expected: &[&str]) {
    link_refuses(
        &format!("class = [{{ name = 'a' }}]\n[[link.filter]]\nclass = 'a'\n{keys}"),
        expected,
    );
}

#[test]
fn an_unknown_key_of_a_filter() {
    filter_refuses(
        "sorce = '10.0.0.0/8'\n",
        &["8:1: unknown key 'sorce', did you mean 'source'?"],
    );
}

#[test]
fn filters_by_addresses_and_ports_that_say_nothing() {
    filter_refuses(
        "source='10.0.0.5/8'\n",
        &["8:8: source '10.0.0.5/8': 10.0.0.5/8 has bits beyond its length; write 10.0.0.0/8"],
    );
    filter_refuses(
        "source='10.0.0.0/33'\n",
        &["8:8: source '10.0.0.0/33': a prefix of 33 bits is longer than an address, which has 32"],
    );
    filter_refuses(
        "destination='::1/x'\n",
        &[
            "8:13: destination '::1/x': a prefix is an address, or an address and a length such as 10.0.0.0/8",
        ],
    );
    filter_refuses(
        "source-port=70000\n",
        &[
            "8:13: source-port '70000': ports are one number from 0 to 65535, or two such as 1000-2000",
        ],
    );
    filter_refuses(
        "source-port='20-10'\n",
        &["8:13: source-port '20-10': ports 20-10 go backwards; write 10-20"],
    );
    filter_refuses(
        "destination-port='http'\n",
        &[
            "8:18: destination-port 'http': ports are one number from 0 to 65535, or two such as 1000-2000",
        ],
    );
}

#[test]
fn filters_by_header_fields_that_say_nothing() {
    filter_refuses(
        "protocol='tpc'\n",
        &[
            "8:10: protocol 'tpc': a protocol is a number from 0 to 255, or a name such as tcp, udp, icmp, did you mean 'tcp'?",
        ],
    );
    filter_refuses(
        "protocol=300\n",
        &[
            "8:10: protocol '300': a protocol is a number from 0 to 255, or a name such as tcp, udp, icmp",
        ],
    );
    filter_refuses(
        "dscp='eff'\n",
        &[
            "8:6: dscp 'eff': a DSCP is a number from 0 to 63, or a name such as ef, af41, cs1, le, did you mean 'ef'?",
        ],
    );
    filter_refuses(
        "dscp='af44'\n",
        &[
            "8:6: dscp 'af44': a DSCP is a number from 0 to 63, or a name such as ef, af41, cs1, le, did you mean 'af41'?",
        ],
    );
    filter_refuses(
        "dscp=64\n",
        &["8:6: dscp '64': a DSCP is a number from 0 to 63, or a name such as ef, af41, cs1, le"],
    );
    filter_refuses(
        "vlan=4096\n",
        &["8:6: vlan 4096: it lies between 1 and 4095"],
    );
    filter_refuses("vlan=0\n", &["8:6: vlan 0: it lies between 1 and 4095"]);
    filter_refuses(
        "ingress='insde'\n",
        &["8:9: ingress 'insde' does not exist, did you mean 'inside'?"],
    );
    filter_refuses(
        "user=-1\n",
        &["8:6: user -1: it lies between 0 and 4294967295"],
    );
    filter_refuses(
        "user='no-such-user-here'\n",
        &["8:6: user 'no-such-user-here': this machine has no such user"],
    );
    filter_refuses(
        "group='no-such-group-here'\n",
        &["8:7: group 'no-such-group-here': this machine has no such group"],
    );
    filter_refuses("pid=0\n", &["8:5: pid 0: it lies between 1 and 2147483647"]);
    filter_refuses(
        "family='ipv5'\n",
        &["8:8: family 'ipv5' does not exist, did you mean 'ipv4'?"],
    );
    filter_refuses(
        "priority=3000000000\n",
        &["8:10: priority 3000000000: it lies between -2147483648 and 2147483647"],
    );
    filter_refuses(
        "fragment='yes'\n",
        &["8:10: fragment: invalid type: string \"yes\", expected a boolean"],
    );
}

#[test]
fn filters_for_no_class() {
    link_refuses(
        "[[link.class]]\nname='voice'\n[[link.filter]]\nclass='vioce'\n",
        &["8:7: class 'vioce' does not exist in this link, did you mean 'voice'?"],
    );
    link_refuses(
        "[[link.filter]]\nclass='voice'\n",
        &["6:7: class 'voice' does not exist in this link"],
    );
    link_refuses(
        "[[link.class]]\nname='a'\n[[link.class]]\nname='b'\nparent='a'\n[[link.filter]]\nclass='a'\n",
        &["11:7: class 'a' has children: packets go to a class without"],
    );
    link_refuses(
        "[[link.filter]]\nsource='10.0.0.0/8'\n",
        &["5:1: the key 'class' is missing"],
    );
}

#[test]
fn an_ingress_that_is_not_there() {
    refuses(
        "[interfaces]\noutside='w'\ninside='l'\n[[link]]\nname='a'\nrate='1mbit'\n[[link.filter]]\nclass='default'\ningress='tap'\n[[link.filter]]\nclass='default'\ningress='attached'\n",
        &[
            "9:9: ingress 'tap': [interfaces] has no 'tap'",
            "12:9: ingress 'attached': the file has no [attach]",
        ],
    );
}
