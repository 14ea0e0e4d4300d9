//! The display and the keys, on terminals of many sizes.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use serde_json::{Value as Json, json};

use super::app::{Action, App, Mode, Reply, Stage};
use super::ask::{Ask, Refusal};
use super::draw;
use super::look::TerminalStyle;
use super::rows::Place;
use super::state::State;

const MONOCHROME: TerminalStyle = TerminalStyle {
    colours: false,
    unicode: true,
};

/// Returns a class of a site's state; `more` overrides its figures.
fn class(name: &str, parent: Option<&str>, rate: f64, more: Json) -> Json {
    let mut class = json!({
        "name": name, "parent": parent, "kind": "leaf", "weight": 1,
        "guaranteed_bps": 2_000_000, "ceil_bps": null, "bound_us": 9_000.0, "no_bound": null,
        "queued_packets": 0, "queued_bytes": 0, "flows": 0, "offered_bytes": 0,
        "drops": {"full": 0, "managed": 0, "early": 0}, "marked": 0,
        "delay_us": {"p50": 900.0, "p99": 4_000.0, "max": 8_500.0},
        "recent": {
            "sent_bps": rate, "share": rate / 20e6, "overlimits": 0,
            "late_packets": 0, "violations": 0,
            "delay_us": {"p50": 800.0, "p99": 3_000.0, "max": 4_500.0},
        },
    });
    merge(&mut class, more);
    class
}

fn merge(into: &mut Json, more: Json) {
    match more {
        Json::Object(keys) => keys
            .into_iter()
            .for_each(|(key, value)| merge(&mut into[key], value)),
        value => *into = value,
    }
}

fn site(seconds: f64, classes: Vec<Json>) -> State {
    State::of(&json!({
        "seconds": seconds, "recent_seconds": 1.0,
        "interfaces": [
            {"name": "lan0", "backend": "xdp", "lost": 0, "recent_lost": 0, "early_drops": 0},
            {"name": "wan0", "backend": "packet", "lost": 0, "recent_lost": 0, "early_drops": 0},
        ],
        "links": [{
            "name": "up", "to": "wan0", "rate_bps": 20_000_000, "recent_bps": 15e6,
            "queued_packets": 34, "oversized": 0, "classes": classes,
        }],
    }))
}

fn usual(seconds: f64) -> State {
    site(
        seconds,
        vec![
            class("voice", None, 1e6, json!({})),
            class(
                "business",
                None,
                9e6,
                json!({"kind": "inner", "guaranteed_bps": 8_000_000}),
            ),
            class("mail", Some("business"), 3e6, json!({"queued_packets": 7})),
            class("web", Some("business"), 6e6, json!({"weight": 3})),
            class(
                "bulk",
                None,
                5e6,
                json!({"drops": {"full": (seconds * 40.0) as u64}}),
            ),
        ],
    )
}

fn app() -> App {
    let mut app = App::new("/run/fairlane.sock".to_owned());
    app.on_state(usual(3_725.0));
    app
}

/// Returns the lines of a terminal of this size.
fn lines(app: &mut App, (width, height): (u16, u16), look: TerminalStyle) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let drawn = terminal.draw(|frame| {
        let (height, most_scroll) = draw::sizes(app, frame.area());
        app.fit(height, most_scroll);
        draw::draw(frame, app, look);
    });
    drawn.unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(usize::from(width).max(1));
    lines
        .map(|line| line.iter().map(|cell| cell.symbol()).collect())
        .collect()
}

fn text(app: &mut App) -> String {
    lines(app, (80, 24), MONOCHROME).join("\n")
}

fn press(app: &mut App, code: KeyCode) -> Option<Action> {
    app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn write(app: &mut App, text: &str) {
    for letter in text.chars() {
        assert_eq!(press(app, KeyCode::Char(letter)), None);
    }
}

#[track_caller]
fn asked(action: Option<Action>) -> (u64, Ask) {
    match action {
        Some(Action::Ask(request)) => (request.number, request.what),
        other => panic!("{other:?} asks nothing"),
    }
}

fn refusal(status: u16, sentence: &str) -> Result<Json, Refusal> {
    Err(Refusal {
        status: Some(status),
        sentence: sentence.to_owned(),
    })
}

/// Returns the names in the tree from the top.
fn names(app: &App) -> Vec<&str> {
    let state = app.state.as_ref().unwrap();
    let names = app.rows.iter().map(|row| {
        let link = &state.links[row.link];
        row.class
            .map_or(&*link.name, |class| &link.classes[class].name)
    });
    names.collect()
}

fn selected(app: &App) -> &str {
    names(app)[app.selected]
}

#[test]
fn the_tree_stands_in_80_columns() {
    let mut app = app();
    app.on_state(usual(3_726.0));
    let lines = lines(&mut app, (80, 24), MONOCHROME);
    assert!(
        lines[0].starts_with("fairlane top · up 1:02:06 · last 1.0 s · by file"),
        "{lines:#?}"
    );
    assert!(
        lines[1].starts_with("nothing lost at lan0, wan0"),
        "{lines:#?}"
    );
    assert_eq!(
        lines[2].split_whitespace().collect::<Vec<_>>().join(" "),
        "class rate share p99 max bound queued drops/s"
    );
    let expected = [
        "  ▾ up to wan0      15mbit ██████████▌                                34      40",
        "      voice          1mbit ▊│                 3ms   4.5ms     9ms      0       0",
        "    ▾ business       9mbit █████│▎            3ms   4.5ms     9ms      0       0",
        "        mail         3mbit █│▏                3ms   4.5ms     9ms      7       0",
        "        web          6mbit █│██▎              3ms   4.5ms     9ms      0       0",
        "      bulk           5mbit █│█▌               3ms   4.5ms     9ms      0      40",
    ];
    assert_eq!(lines[3..9], expected, "{lines:#?}");
    assert!(
        lines[21].starts_with("up to wan0: 15mbit of 20mbit, 34 packets queued"),
        "{lines:#?}"
    );
    assert!(lines[23].starts_with("? help  q end  s sort"), "{lines:#?}");
}

#[test]
fn wide_terminals_show_more_columns() {
    let mut app = app();
    let at = |app: &mut App, width| lines(app, (width, 50), MONOCHROME)[2].clone();
    let wide = at(&mut app, 200);
    for head in [
        "guarant.",
        "ceiling",
        "offered",
        "delay/bound",
        "worst",
        "late",
        "flows",
        "weight",
    ] {
        assert!(wide.contains(head), "{head} in {wide}");
        assert!(!at(&mut app, 80).contains(head), "{head}");
    }
}

#[test]
fn no_terminal_is_too_small_and_none_too_large() {
    let open = |code: Option<KeyCode>| {
        let mut app = app();
        press(&mut app, KeyCode::Down);
        if let Some(code) = code {
            press(&mut app, code);
        }
        app
    };
    let mut apps: Vec<App> = [None, Some('/'), Some('?'), Some('w'), Some('e'), Some('t')]
        .map(|key| open(key.map(KeyCode::Char)))
        .into();
    apps.push(App::default());
    let mut answered = open(Some(KeyCode::Char('w')));
    press(&mut answered, KeyCode::Char('5'));
    let (number, _) = asked(press(&mut answered, KeyCode::Enter));
    answered.on_answer(number, Ok(effects(400)));
    apps.push(answered);
    let mut lost = open(None);
    lost.on_lost("/run/fairlane.sock: Connection refused (os error 111)".to_owned());
    apps.push(lost);
    for app in &mut apps {
        for width in [1, 2, 3, 5, 13, 20, 29, 30, 31, 79, 80, 111, 200, 400] {
            for height in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 24, 50] {
                let lines = lines(app, (width, height), TerminalStyle::default());
                assert_eq!(lines.len(), usize::from(height));
            }
        }
    }
}

/// Returns the answer to a change with effects on this many classes.
fn effects(classes: usize) -> Json {
    let promise = |rate: u64| json!({"weight": 1, "guaranteed_bps": rate, "bound_us": 9_000.0});
    let effects = (0..classes).map(|class| {
        // The last class gets a lower guarantee.
        let after = if class + 1 == classes {
            1_000_000
        } else {
            3_000_000
        };
        json!({
            "link": "up", "class": format!("c{class}"),
            "before": promise(2_000_000), "after": promise(after),
        })
    });
    json!({"applied": false, "effects": effects.collect::<Vec<_>>(), "warnings": ["mind the gap"]})
}

#[test]
fn what_is_not_as_promised_is_marked_without_colours_too() {
    let state = |seconds: f64| {
        site(
            seconds,
            vec![
                class(
                    "late",
                    None,
                    1e6,
                    json!({"recent": {"late_packets": 3, "violations": 3}}),
                ),
                class("inner", None, 1e6, json!({"kind": "inner"})),
                // 4 Mbit/s are offered, 2 Mbit/s guaranteed, 1 Mbit/s sent.
                class(
                    "low",
                    Some("inner"),
                    1e6,
                    json!({
                        "queued_packets": 5, "offered_bytes": (seconds * 5e5) as u64,
                    }),
                ),
                // It offers no more than that.
                class(
                    "idle",
                    None,
                    1e6,
                    json!({
                        "queued_packets": 1, "offered_bytes": (seconds * 1.25e5) as u64,
                    }),
                ),
                class(
                    "held",
                    None,
                    1e6,
                    json!({
                        "queued_packets": 5, "offered_bytes": (seconds * 5e5) as u64,
                        "recent": {"overlimits": 9},
                    }),
                ),
            ],
        )
    };
    let mut app = App::new("here".to_owned());
    app.on_state(state(10.0));
    app.on_state(state(11.0));
    let signs = |app: &mut App, name: &str| {
        let lines = lines(app, (80, 24), MONOCHROME);
        let line = lines[3..].iter().find(|line| line.contains(name)).unwrap();
        line[..2].to_owned()
    };
    assert_eq!(signs(&mut app, " late"), "! ");
    assert_eq!(signs(&mut app, " low"), " <");
    assert_eq!(signs(&mut app, " inner"), "  ");
    assert_eq!(signs(&mut app, " idle"), "  ");
    assert_eq!(signs(&mut app, " held"), " ^");
    // A folded line shows the violations below it.
    press(&mut app, KeyCode::Char('-'));
    assert_eq!(signs(&mut app, " inner"), " <");
    press(&mut app, KeyCode::Enter);
    assert_eq!(names(&app), ["up"]);
    assert_eq!(signs(&mut app, "up to"), "!<");
    // A restarted site counts from zero, which is no violation.
    app.on_state(state(0.5));
    press(&mut app, KeyCode::Char('+'));
    assert_eq!(signs(&mut app, " low"), "  ");
}

#[test]
fn interface_losses_are_shown_and_recent_ones_alarm() {
    let told = |recently: u64| {
        State::of(&json!({
            "seconds": 5.0, "recent_seconds": 1.0, "links": [],
            "interfaces": [{"name": "lan0", "lost": 1_200, "recent_lost": recently, "early_drops": 7}],
        }))
    };
    let mut app = App::new("here".to_owned());
    app.on_state(told(0));
    let line = lines(&mut app, (80, 24), MONOCHROME)[1].clone();
    assert!(
        line.starts_with("lan0: 1200 lost, 7 dropped early "),
        "{line}"
    );
    app.on_state(told(30));
    let line = lines(&mut app, (80, 24), MONOCHROME)[1].clone();
    assert!(
        line.starts_with("! overload: lan0 lost 30 recently"),
        "{line}"
    );
}

#[test]
fn siblings_are_sorted_and_the_selection_stays_with_its_class() {
    let mut app = app();
    app.on_state(usual(3_726.0));
    assert_eq!(
        names(&app),
        ["up", "voice", "business", "mail", "web", "bulk"]
    );
    press(&mut app, KeyCode::Down);
    assert_eq!(selected(&app), "voice");
    press(&mut app, KeyCode::Char('s'));
    assert_eq!(
        names(&app),
        ["up", "business", "web", "mail", "bulk", "voice"]
    );
    assert_eq!(selected(&app), "voice");
    assert!(text(&mut app).contains("by rate"));
    press(&mut app, KeyCode::Char('S'));
    assert_eq!(
        names(&app),
        ["up", "voice", "bulk", "business", "mail", "web"]
    );
    press(&mut app, KeyCode::Char('S'));
    for (sort, first) in [
        ("delay of bound", "voice"),
        ("drops", "bulk"),
        ("queue", "voice"),
    ] {
        press(&mut app, KeyCode::Char('s'));
        assert!(text(&mut app).contains(sort), "{sort}");
        assert_eq!(names(&app)[1], first, "{sort}");
    }
    press(&mut app, KeyCode::Char('s'));
    assert_eq!(
        names(&app),
        ["up", "bulk", "business", "mail", "web", "voice"]
    );
    press(&mut app, KeyCode::Char('s'));
    assert!(text(&mut app).contains("by file"));
    // The selection stays on the line if its class is removed.
    press(&mut app, KeyCode::End);
    assert_eq!(selected(&app), "bulk");
    app.on_state(site(3_727.0, vec![class("voice", None, 1e6, json!({}))]));
    assert_eq!(selected(&app), "voice");
}

#[test]
fn branches_are_folded_and_a_filter_shows_what_it_finds() {
    let mut app = app();
    for code in [KeyCode::Down, KeyCode::Down, KeyCode::Enter] {
        press(&mut app, code);
    }
    assert_eq!(names(&app), ["up", "voice", "business", "bulk"]);
    assert!(text(&mut app).contains("▸ business"));
    press(&mut app, KeyCode::Char('/'));
    write(&mut app, "WE");
    assert_eq!(
        names(&app),
        ["up", "business", "web"],
        "also what is folded away"
    );
    assert_eq!(selected(&app), "web");
    assert!(text(&mut app).contains("/WE_"));
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.mode, Mode::Tree);
    assert_eq!(press(&mut app, KeyCode::Esc), None, "the filter goes first");
    assert_eq!(names(&app), ["up", "voice", "business", "bulk"]);
    press(&mut app, KeyCode::Char('/'));
    write(&mut app, "zq");
    assert_eq!(names(&app), ["up"], "a q is a letter there");
    press(&mut app, KeyCode::Esc);
    assert_eq!(names(&app).len(), 4);
    press(&mut app, KeyCode::Home);
    for code in [KeyCode::Down, KeyCode::Down, KeyCode::Right, KeyCode::Down] {
        press(&mut app, code);
    }
    assert_eq!(selected(&app), "mail");
    press(&mut app, KeyCode::Left);
    assert_eq!(
        selected(&app),
        "business",
        "what has nothing to fold leads upwards"
    );
    press(&mut app, KeyCode::Left);
    assert_eq!(names(&app).len(), 4);
}

#[test]
fn the_selected_line_is_seen_however_low_the_terminal() {
    let many = (0..300).map(|n| class(&format!("class{n}"), None, 0.0, json!({})));
    let mut app = App::new("here".to_owned());
    app.on_state(site(1.0, many.collect()));
    for code in [
        KeyCode::End,
        KeyCode::PageUp,
        KeyCode::Up,
        KeyCode::Home,
        KeyCode::PageDown,
        KeyCode::PageDown,
        KeyCode::Char('G'),
    ] {
        press(&mut app, code);
        for size in [(80, 24), (60, 7), (200, 50)] {
            let name = selected(&app).to_owned() + " ";
            let seen = lines(&mut app, size, MONOCHROME).join("\n");
            assert!(seen.contains(&name), "{name} at {size:?} in {seen}");
        }
    }
    let all = lines(&mut app, (80, 400), MONOCHROME);
    assert!(
        all[3].contains("up to wan0"),
        "nothing is above while there is room"
    );
}

#[test]
fn change_is_previewed_and_applied_by_a_second_enter() {
    let mut app = app();
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Char('w'));
    write(&mut app, "57");
    press(&mut app, KeyCode::Backspace);
    assert!(text(&mut app).contains("weight = 5_") && text(&mut app).contains("now 1"));
    let (number, what) = asked(press(&mut app, KeyCode::Enter));
    let change = |value: Json, dry| Ask::Change {
        place: ("up".to_owned(), Some("voice".to_owned())),
        key: "weight",
        value,
        dry,
    };
    assert_eq!(what, change(json!(5), true));
    assert_eq!(
        press(&mut app, KeyCode::Enter),
        None,
        "nothing is made that was not seen"
    );
    app.on_answer(number, Ok(effects(2)));
    let shown = text(&mut app);
    for words in [
        "Preview, nothing applied yet",
        "warning: mind the gap",
        "! 1 of 2 are guaranteed less than now",
        "! up/c1  2mbit -> 1mbit",
        "up/c0  2mbit -> 3mbit",
    ] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    let (number, what) = asked(press(&mut app, KeyCode::Enter));
    assert_eq!(what, change(json!(5), false));
    assert_eq!(press(&mut app, KeyCode::Enter), None, "it is made once");
    app.on_answer(number, Ok(json!({"applied": true, "effects": []})));
    assert_eq!(app.mode, Mode::Tree);
    assert!(text(&mut app).contains("changed: up/voice weight=5"));
}

#[test]
fn refused_change_shows_its_reason_and_can_be_edited() {
    let mut app = app();
    press(&mut app, KeyCode::Char('w'));
    assert!(text(&mut app).contains("a link has no weight"));
    press(&mut app, KeyCode::Char('r'));
    write(&mut app, "3mbits");
    let (number, what) = asked(press(&mut app, KeyCode::Enter));
    assert!(matches!(
        what,
        Ask::Change {
            place: (_, None),
            key: "rate",
            dry: true,
            ..
        }
    ));
    app.on_answer(number, refusal(422, "'3mbits' is no rate"));
    assert!(text(&mut app).contains("'3mbits' is no rate"));
    press(&mut app, KeyCode::Backspace);
    assert!(text(&mut app).contains("rate = 3mbit_"));
    let (number, _) = asked(press(&mut app, KeyCode::Enter));
    app.on_answer(number, Ok(effects(0)));
    assert!(text(&mut app).contains("no guarantees would change"));
    // Editing the value again requires a new preview.
    press(&mut app, KeyCode::Backspace);
    let Mode::Change(change) = &app.mode else {
        panic!("{:?}", app.mode);
    };
    assert_eq!(change.stage, Stage::Typing(None));
    let (number, _) = asked(press(&mut app, KeyCode::Enter));
    app.on_answer(number, Ok(effects(0)));
    let (number, _) = asked(press(&mut app, KeyCode::Enter));
    // The result of a change is shown even if its dialog was closed.
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.mode, Mode::Tree);
    app.on_answer(number, refusal(403, "a token is needed"));
    assert!(text(&mut app).contains("not changed: up rate=3mbit: a token is needed"));
    // The answer to a closed dialog is ignored.
    press(&mut app, KeyCode::Char('r'));
    let (number, _) = asked(press(&mut app, KeyCode::Enter));
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Char('r'));
    app.on_answer(number, Ok(effects(1)));
    assert!(text(&mut app).contains("rate = _"));
}

#[test]
fn a_class_is_explained_in_the_words_of_the_site() {
    let mut app = app();
    press(&mut app, KeyCode::Char('e'));
    assert!(text(&mut app).contains("a class is explained: select one"));
    press(&mut app, KeyCode::Down);
    let (number, what) = asked(press(&mut app, KeyCode::Char('e')));
    assert_eq!(
        what,
        Ask::Explain(("up".to_owned(), Some("voice".to_owned())))
    );
    assert!(text(&mut app).contains("asking the site"));
    app.on_answer(
        number,
        Ok(json!({"because": ["nothing waits in class 'voice' now"]})),
    );
    assert!(text(&mut app).contains("nothing waits in class 'voice' now"));
    assert_eq!(press(&mut app, KeyCode::Char('q')), None, "back first");
    assert_eq!(press(&mut app, KeyCode::Char('q')), Some(Action::End));
}

#[test]
fn top_talkers_are_asked_for_with_each_state_and_may_not_be_there() {
    let mut app = app();
    let (first, what) = asked(press(&mut app, KeyCode::Char('t')));
    assert_eq!(what, Ask::Talkers(None));
    assert_eq!(app.on_state(usual(3_727.0)), None, "one question at a time");
    let flow = json!({
        "link": "up", "class": "web", "flow": "10.0.0.3", "offered_bps": 4e6, "bps": 3e6, "share": 0.5, "packets": 250,
        "rtt_us": { "mean": 21e3, "p50": 20_100.0, "p99": 3e4, "max": 4e4 }, "retransmits": 3,
    });
    app.on_answer(first, Ok(json!({"seconds": 1.0, "flows": [flow]})));
    let shown = text(&mut app);
    assert!(
        shown.contains(
            "10.0.0.3  4mbit    3mbit  50.0%     250      20.1ms  3            0   up/web"
        ),
        "{shown}"
    );
    let (next, _) = asked(app.on_state(usual(3_728.0)));
    assert!(
        text(&mut app).contains("10.0.0.3"),
        "the old ones stay until then"
    );
    app.on_answer(next, Ok(json!({"flows": []})));
    assert!(text(&mut app).contains("no flow sends anything"));
    press(&mut app, KeyCode::Esc);
    assert_eq!(
        app.on_state(usual(3_729.0)),
        None,
        "no view is open any more"
    );
    let refused = |app: &mut App, key, only: Option<Place>, sentence| {
        let (number, what) = asked(press(app, KeyCode::Char(key)));
        assert_eq!(what, Ask::Talkers(only));
        app.on_answer(number, refusal(404, sentence));
        let told = match &app.mode {
            Mode::Talkers(_, Reply::Refused(sentence)) => sentence.clone(),
            other => panic!("{other:?}"),
        };
        press(app, KeyCode::Esc);
        told
    };
    let missing = refused(&mut app, 't', None, "GET /v1/flows does not exist");
    assert_eq!(missing, "this site does not report top talkers");
    press(&mut app, KeyCode::Down);
    let voice = ("up".to_owned(), Some("voice".to_owned()));
    let none = refused(&mut app, 'T', Some(voice), "class 'voice' has no flows");
    assert_eq!(none, "class 'voice' has no flows");
}

#[test]
fn a_site_that_is_gone_leaves_its_last_figures_with_their_age() {
    let mut app = app();
    app.tick(Duration::from_secs(2));
    assert!(!text(&mut app).contains("no answer"));
    app.tick(Duration::from_secs(4));
    assert!(text(&mut app).contains("no answer: figures are 4 s old · nothing comes"));
    app.on_lost("/run/fairlane.sock: Connection refused".to_owned());
    app.tick(Duration::from_secs(9));
    let shown = text(&mut app);
    assert!(shown.contains("figures are 9 s old · /run/fairlane.sock: Connection refused"));
    assert!(shown.contains("15mbit"), "{shown}");
    assert_eq!(
        press(&mut app, KeyCode::Down),
        None,
        "one may still look around"
    );
    app.on_state(usual(1.0));
    assert!(!text(&mut app).contains("no answer"));
    assert!(text(&mut app).contains("up 0:00:01"));
}

#[test]
fn names_of_classes_do_nothing_to_the_terminal() {
    let hostile = "a\u{1b}]0;pwned\u{7}\u{202e}b\n";
    let mut app = App::new("here".to_owned());
    app.on_state(site(1.0, vec![class(hostile, None, 1e6, json!({}))]));
    press(&mut app, KeyCode::Down);
    let (number, what) = asked(press(&mut app, KeyCode::Char('e')));
    assert_eq!(
        what,
        Ask::Explain(("up".to_owned(), Some(hostile.to_owned())))
    );
    app.on_answer(number, Ok(json!({"because": ["\u{1b}[2J\u{9b}2J gone"]})));
    let shown = lines(&mut app, (200, 50), TerminalStyle::default()).join("");
    assert!(shown.contains("a\u{fffd}]0;pwned"), "{shown}");
    assert!(
        shown.contains("gone") && !shown.contains(char::is_control),
        "{shown}"
    );
    assert!(!shown.contains('\u{202e}'));
}

#[test]
fn any_answer_is_shown_as_far_as_it_goes() {
    for told in [
        json!(null),
        json!([]),
        json!({"links": "none", "interfaces": [1, null]}),
        json!({"links": [{"classes": [{"parent": "x"}, {"name": "x", "parent": "x"}, 3]}]}),
        json!({"seconds": 1e300, "recent_seconds": -1.0, "links": [{"rate_bps": 0, "classes": [
            {"name": "a", "guaranteed_bps": 1e300, "bound_us": 0.0, "weight": -3,
             "recent": {"sent_bps": -1e300, "share": 1e300, "delay_us": {"p50": 0, "p99": -1, "max": 1e300}}},
        ]}]}),
    ] {
        let mut app = App::new("here".to_owned());
        app.on_state(State::of(&told));
        app.on_state(State::of(&told));
        press(&mut app, KeyCode::End);
        for width in [20, 80, 200] {
            lines(&mut app, (width, 24), TerminalStyle::default());
        }
    }
}

#[test]
fn keys_that_end_it_end_it() {
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(press(&mut app(), KeyCode::Char('q')), Some(Action::End));
    assert_eq!(press(&mut app(), KeyCode::Esc), Some(Action::End));
    for open in [None, Some('/'), Some('?'), Some('r'), Some('t')] {
        let mut app = app();
        if let Some(key) = open {
            press(&mut app, KeyCode::Char(key));
        }
        assert_eq!(app.on_key(control('l')), Some(Action::Redraw));
        assert_eq!(app.on_key(control('z')), Some(Action::Suspend));
        assert_eq!(app.on_key(control('c')), Some(Action::End), "{open:?}");
    }
}

#[test]
fn help_is_scrolled_where_it_is_longer_than_the_terminal() {
    let mut app = app();
    press(&mut app, KeyCode::Char('?'));
    let first = lines(&mut app, (60, 10), MONOCHROME).join("\n");
    assert!(
        first.contains("keys and signs") && first.contains("more lines below"),
        "{first}"
    );
    press(&mut app, KeyCode::End);
    let last = lines(&mut app, (60, 10), MONOCHROME).join("\n");
    assert!(
        last.contains("all classes below it") && !last.contains("more lines below"),
        "{last}"
    );
    press(&mut app, KeyCode::Up);
    assert_ne!(lines(&mut app, (60, 10), MONOCHROME).join("\n"), last);
}

#[test]
fn opaque_protocol_is_shown() {
    let mut app = App::new("here".to_owned());
    app.on_state(State::of(&json!({
        "interfaces": [{"name": "lan0"}, {"name": "wan0"}],
        "links": [{"name": "up", "to": "wan0", "shaped": true, "opaque_protocol": "MPLS (0x8847)", "classes": []}],
    })));
    let lines = lines(&mut app, (80, 24), MONOCHROME);
    assert!(
        lines[1].starts_with("up: filters cannot match MPLS (0x8847)"),
        "{lines:#?}"
    );
}

#[test]
fn unshaped_link_and_detached_interface_are_shown() {
    let mut app = App::new("here".to_owned());
    app.on_state(State::of(&json!({
        "interfaces": [{"name": "lan0", "lost": 3}, {"name": "wan0", "attached": false}],
        "links": [{"name": "up", "to": "wan0", "shaped": false, "classes": []}],
    })));
    let lines = lines(&mut app, (80, 24), MONOCHROME);
    assert!(
        lines[1].starts_with("! up is not shaped · lan0: 3 lost · wan0: detached"),
        "{lines:#?}"
    );
}

#[test]
fn a_bound_that_does_not_apply_and_unsaved_changes_are_shown() {
    let above = json!({"weight": null, "recent": {"bound_applies": false}});
    let mut state = site(1.0, vec![class("voice", None, 4e6, above)]);
    state.notes = vec!["3 changes not in the file".to_owned()];
    let mut app = App::new("here".to_owned());
    app.on_state(state);
    press(&mut app, KeyCode::Down);
    let shown = text(&mut app);
    for words in [
        "! 3 changes not in the file",
        "     n/a ",
        "up/voice, guaranteed 2mbit",
        "max delay 8.5ms, bound not applicable (class above its guarantee)",
    ] {
        let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words.trim()), "{words} in {shown}");
    }
    press(&mut app, KeyCode::Char('w'));
    assert!(text(&mut app).contains("no weight in the file"));
}
