//! `fairlane-lab sim`: what it draws beside what `fairlane sim` says.

use std::fs;

use crate::program::fairlane;

const SCENARIO: &str = "\
seconds = 1
[[site.link]]
name = \"up\"
rate = \"10mbit\"
algorithm = \"qfq\"
[[site.link.class]]
name = \"a\"
rate = \"1mbit\"
[[site.link.class]]
name = \"b\"
rate = \"1mbit\"
[[source]]
class = \"a\"
traffic = \"backlogged\"
";

#[test]
fn a_plot_has_a_line_for_each_class_that_sent() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name| temporary.path().join(name).display().to_string();
    let (scenario, plot) = (path("scenario.toml"), path("rates.svg"));
    fs::write(&scenario, SCENARIO).unwrap();
    let printed = fairlane(&["sim", &scenario, "--plot", &plot]).success();
    assert!(printed.contains("carried"), "{printed}");
    let drawn = fs::read_to_string(&plot).unwrap();
    assert!(drawn.contains(">a<") && !drawn.contains(">b<"));
    let refused = fairlane(&["sim", &scenario, "--plot", "rates.txt"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains(".svg or .png"), "{refused:?}");
}
