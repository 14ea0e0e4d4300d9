//! The model of `top`: it takes states and keys, and returns requests to the site. It uses no terminal and no clock.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use fairlane_control::value_of;
use serde_json::Value as Json;

use super::ask::{Ask, Refusal, Request, Talker};
use super::rows::{Fold, Place, Row, View};
use super::state::{Class, Link, State};
use crate::effects::Effects;

/// Longest text that can be typed.
const MOST_TYPED: usize = 64;
/// A state is late after this many times the interval of states.
const LATE: f64 = 3.0;
/// A key with one of these is no text.
const COMMANDS: KeyModifiers = KeyModifiers::CONTROL.union(KeyModifiers::ALT);

/// An action for the caller.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    End,
    /// Ctrl-Z.
    Suspend,
    /// The terminal's contents differ from the last drawing.
    Redraw,
    Ask(Request),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply<T> {
    Asked,
    Told(T),
    Refused(String),
}

/// The progress of a change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// A value is being typed; after a refusal with its sentence.
    Typing(Option<String>),
    /// Its effects are requested.
    Looking,
    /// Its effects and warnings.
    Shown(Effects, Vec<String>),
    /// It is being applied.
    Applying,
}

/// A change of the selected link or class.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub place: Place,
    pub key: &'static str,
    pub value: String,
    pub stage: Stage,
}

/// The meaning of the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Mode {
    #[default]
    Tree,
    /// A filter is being typed; holds the previous one.
    Filter(String),
    Help,
    Explain(Place, Reply<Vec<String>>),
    /// The top talkers of a class or link, or of the site.
    Talkers(Option<Place>, Reply<Vec<Talker>>),
    Change(Change),
}

/// The state of the display.
#[derive(Debug, Default)]
pub(super) struct App {
    /// The address of the site.
    pub at: String,
    pub state: Option<State>,
    /// When the last state arrived.
    heard: Duration,
    now: Duration,
    /// The reason for the lack of a stream.
    pub lost: Option<String>,
    pub view: View,
    pub rows: Vec<Row>,
    /// The selected line.
    pub selected: usize,
    /// The selected class or link, to find it again.
    chosen: Option<Place>,
    /// The first visible line, and the number of visible lines.
    pub offset: usize,
    pub height: usize,
    pub mode: Mode,
    /// The first line of the overlay, and its highest value.
    pub scroll: usize,
    pub most_scroll: usize,
    /// The result of the last change.
    pub notice: Option<String>,
    asked: u64,
    /// A request without an answer yet.
    waiting: Option<u64>,
    /// A change that is being applied, in words.
    making: Option<(u64, String)>,
}

impl App {
    pub(super) fn new(at: String) -> App {
        App {
            at,
            ..App::default()
        }
    }

    /// Sets the time since the start.
    pub(super) fn tick(&mut self, now: Duration) {
        self.now = now;
    }

    /// Returns the age of the figures, if they are out of date.
    pub(super) fn stale(&self) -> Option<Duration> {
        let age = self.now.saturating_sub(self.heard);
        let usual = self
            .state
            .as_ref()
            .map_or(0.0, |state| state.recent_seconds);
        let late = age.as_secs_f64() > LATE * usual.max(1.0);
        (self.lost.is_some() || late).then_some(age)
    }

    /// Handles a new state of the site.
    pub(super) fn on_state(&mut self, mut state: State) -> Option<Action> {
        state.follow(self.state.as_ref());
        self.state = Some(state);
        self.heard = self.now;
        self.lost = None;
        self.arrange();
        let Mode::Talkers(only, _) = &self.mode else {
            return None;
        };
        let only = only.clone();
        self.waiting.is_none().then(|| self.ask(Ask::Talkers(only)))
    }

    /// Handles the loss of the stream of states.
    pub(super) fn on_lost(&mut self, reason: String) {
        self.lost = Some(reason);
    }

    /// Handles the answer to a request.
    pub(super) fn on_answer(&mut self, number: u64, answer: Result<Json, Refusal>) {
        if self.waiting == Some(number) {
            self.waiting = None;
        }
        if let Some((_, words)) = self.making.take_if(|(making, _)| *making == number) {
            self.made(words, answer);
            return;
        }
        if number != self.asked {
            return;
        }
        match &mut self.mode {
            Mode::Explain(_, told) => {
                *told = match answer {
                    Ok(answer) => {
                        let mut all = sentences(&answer["because"]);
                        let advice = sentences(&answer["advice"]).into_iter();
                        all.extend(advice.map(|advice| format!("-> {advice}")));
                        Reply::Told(all)
                    }
                    Err(refusal) => Reply::Refused(refusal.sentence),
                }
            }
            Mode::Talkers(only, told) => {
                *told = match answer {
                    Ok(answer) => Reply::Told(Talker::all(&answer)),
                    Err(Refusal {
                        status: Some(404), ..
                    }) if only.is_none() => {
                        Reply::Refused("this site does not report top talkers".to_owned())
                    }
                    Err(refusal) => Reply::Refused(refusal.sentence),
                }
            }
            Mode::Change(change) if change.stage == Stage::Looking => {
                change.stage = match answer {
                    Ok(answer) => Stage::Shown(
                        worst_first(Effects::of(&answer)),
                        sentences(&answer["warnings"]),
                    ),
                    Err(refusal) => Stage::Typing(Some(refusal.sentence)),
                }
            }
            _ => {}
        }
    }

    /// Handles the result of an applied change.
    fn made(&mut self, words: String, answer: Result<Json, Refusal>) {
        match (&mut self.mode, answer) {
            (Mode::Change(change), Ok(_)) if change.stage == Stage::Applying => {
                self.notice = Some(format!("changed: {words}"));
                self.go(Mode::Tree);
            }
            (Mode::Change(change), Err(refusal)) if change.stage == Stage::Applying => {
                change.stage = Stage::Typing(Some(refusal.sentence));
            }
            // The operator has closed the dialog.
            (_, Ok(_)) => self.notice = Some(format!("changed: {words}")),
            (_, Err(refusal)) => {
                self.notice = Some(format!("not changed: {words}: {}", refusal.sentence));
            }
        }
    }

    /// Handles a key.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(Action::End),
                KeyCode::Char('l') => return Some(Action::Redraw),
                KeyCode::Char('z') => return Some(Action::Suspend),
                _ => {}
            }
        }
        match &self.mode {
            Mode::Tree => self.on_tree(key),
            Mode::Filter(_) => {
                self.on_filter(key);
                None
            }
            Mode::Change(_) => self.on_change(key),
            Mode::Help | Mode::Explain(..) | Mode::Talkers(..) => {
                match key.code {
                    KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.go(Mode::Tree),
                    code => self.on_scroll(code),
                }
                None
            }
        }
    }

    fn on_tree(&mut self, key: KeyEvent) -> Option<Action> {
        self.notice = None;
        if key.modifiers.intersects(COMMANDS) {
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(Action::End),
            KeyCode::Esc if self.view.filter.is_empty() => return Some(Action::End),
            KeyCode::Esc => self.look(|view| view.filter.clear()),
            KeyCode::Enter | KeyCode::Char(' ') => self.fold(None),
            KeyCode::Left | KeyCode::Char('h') => self.fold(Some(true)),
            KeyCode::Right | KeyCode::Char('l') => self.fold(Some(false)),
            KeyCode::Char('-') => self.fold_all(),
            KeyCode::Char('+' | '*') => self.look(|view| view.folded.clear()),
            KeyCode::Char('s') => self.look(|view| view.sort = view.sort.next()),
            KeyCode::Char('S') => self.look(|view| view.reversed = !view.reversed),
            KeyCode::Char('/') => self.go(Mode::Filter(self.view.filter.clone())),
            KeyCode::Char('?') | KeyCode::F(1) => self.go(Mode::Help),
            KeyCode::Char('w') => self.start_change("weight"),
            KeyCode::Char('r') => self.start_change("rate"),
            KeyCode::Char('e') => return self.explain(),
            KeyCode::Char('t') => return Some(self.talkers(None)),
            KeyCode::Char('T') => {
                let place = self.chosen.clone();
                return Some(self.talkers(place));
            }
            code => self.select(code),
        }
        None
    }

    fn on_filter(&mut self, key: KeyEvent) {
        let Mode::Filter(before) = &self.mode else {
            return;
        };
        match key.code {
            KeyCode::Enter => self.go(Mode::Tree),
            KeyCode::Esc => {
                let before = before.clone();
                self.look(|view| view.filter = before);
                self.go(Mode::Tree);
            }
            KeyCode::Up | KeyCode::Down => self.select(key.code),
            _ => {
                self.look(|view| typed(&mut view.filter, key));
                self.find();
            }
        }
    }

    fn on_change(&mut self, key: KeyEvent) -> Option<Action> {
        let Mode::Change(change) = &mut self.mode else {
            return None;
        };
        match (&change.stage, key.code) {
            (_, KeyCode::Esc) => self.go(Mode::Tree),
            (Stage::Typing(_), KeyCode::Enter) => {
                change.stage = Stage::Looking;
                let ask = change.ask(true);
                return Some(self.ask(ask));
            }
            (Stage::Shown(..), KeyCode::Enter) => {
                change.stage = Stage::Applying;
                let (ask, words) = (change.ask(false), change.words());
                let action = self.ask(ask);
                self.making = Some((self.asked, words));
                return Some(action);
            }
            (Stage::Typing(_), _) => typed(&mut change.value, key),
            // Editing the value invalidates the displayed effects.
            (Stage::Shown(..), KeyCode::Backspace) => change.stage = Stage::Typing(None),
            (_, code) => self.on_scroll(code),
        }
        None
    }

    fn on_scroll(&mut self, code: KeyCode) {
        let page = self.height.max(1);
        let at = match code {
            KeyCode::Up | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(page),
            KeyCode::PageDown => self.scroll + page,
            KeyCode::Home => 0,
            KeyCode::End => self.most_scroll,
            _ => self.scroll,
        };
        self.scroll = at.min(self.most_scroll);
    }

    fn go(&mut self, mode: Mode) {
        self.mode = mode;
        self.scroll = 0;
    }

    fn ask(&mut self, what: Ask) -> Action {
        self.asked += 1;
        self.waiting = Some(self.asked);
        Action::Ask(Request {
            number: self.asked,
            what,
        })
    }

    fn start_change(&mut self, key: &'static str) {
        let Some(place) = self.chosen.clone() else {
            return;
        };
        if self.making.is_some() {
            self.notice = Some("the last change is still being made".to_owned());
            return;
        }
        if place.1.is_none() && key == "weight" {
            self.notice = Some("a link has no weight: select a class".to_owned());
            return;
        }
        self.go(Mode::Change(Change {
            place,
            key,
            value: String::new(),
            stage: Stage::Typing(None),
        }));
    }

    fn explain(&mut self) -> Option<Action> {
        let place = self.chosen.clone()?;
        if place.1.is_none() {
            self.notice = Some("a class is explained: select one".to_owned());
            return None;
        }
        self.go(Mode::Explain(place.clone(), Reply::Asked));
        Some(self.ask(Ask::Explain(place)))
    }

    fn talkers(&mut self, only: Option<Place>) -> Action {
        self.go(Mode::Talkers(only.clone(), Reply::Asked));
        self.ask(Ask::Talkers(only))
    }

    /// Changes the view of the tree.
    fn look(&mut self, change: impl FnOnce(&mut View)) {
        change(&mut self.view);
        self.arrange();
    }

    /// Folds or unfolds the selected line; without `wish` toggles it. Folding a line that has nothing to fold selects
    /// its parent.
    fn fold(&mut self, wish: Option<bool>) {
        let (Some(&row), Some(place)) = (self.rows.get(self.selected), self.chosen.clone()) else {
            return;
        };
        match (row.fold, wish) {
            (Fold::Open, Some(true) | None) => self.look(|view| {
                view.folded.insert(place);
            }),
            (Fold::Closed, Some(false) | None) => self.look(|view| {
                view.folded.remove(&place);
            }),
            (Fold::Nothing | Fold::Closed, Some(true)) => {
                let above = self.rows[..self.selected].iter();
                let above = above.rev().position(|above| above.depth < row.depth);
                let up = above.map_or(0, |above| above + 1);
                self.choose(self.selected - up);
            }
            _ => {}
        }
    }

    /// Folds everything below links and their top-level classes.
    fn fold_all(&mut self) {
        let Some(state) = &self.state else {
            return;
        };
        let classes = state.links.iter().flat_map(|link| {
            let classes = link.classes.iter();
            classes.map(|class| (link.name.clone(), Some(class.name.clone())))
        });
        let folded = classes.collect();
        self.look(|view| view.folded = folded);
    }

    fn select(&mut self, code: KeyCode) {
        let (last, page) = (self.rows.len().saturating_sub(1), self.height.max(1));
        let at = match code {
            KeyCode::Up | KeyCode::Char('k') => self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected + 1,
            KeyCode::PageUp => self.selected.saturating_sub(page),
            KeyCode::PageDown => self.selected + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => self.selected,
        };
        self.choose(at);
    }

    /// Rebuilds the lines and keeps the selection if it still exists.
    fn arrange(&mut self) {
        let Some(state) = &self.state else {
            return;
        };
        self.rows = self.view.rows(state);
        let found = self.chosen.as_ref().and_then(|(link, class)| {
            let link = state.links.iter().position(|other| other.name == *link)?;
            let class = match class {
                Some(class) => Some(state.links[link].place(class)?),
                None => None,
            };
            let is = |row: &Row| row.link == link && row.class == class;
            self.rows.iter().position(is)
        });
        self.choose(found.unwrap_or(self.selected));
    }

    /// Selects the first class that matches the filter, skipping its ancestors.
    fn find(&mut self) {
        let Some(state) = &self.state else {
            return;
        };
        let found = self.rows.iter().position(|row| {
            let class = row.class.map(|class| &state.links[row.link].classes[class]);
            class.is_some_and(|class| self.view.matches(class))
        });
        self.choose(found.unwrap_or(self.selected));
    }

    /// Selects a line, or the last one if there are fewer.
    fn choose(&mut self, at: usize) {
        self.selected = at.min(self.rows.len().saturating_sub(1));
        let chosen = self.selection().map(|(link, class)| {
            let class = class.map(|class| class.name.clone());
            (link.name.clone(), class)
        });
        self.chosen = chosen;
    }

    /// Returns the selected link and class.
    pub(super) fn selection(&self) -> Option<(&Link, Option<&Class>)> {
        let row = self.rows.get(self.selected)?;
        let link = self.state.as_ref()?.links.get(row.link)?;
        Some((link, row.class.and_then(|class| link.classes.get(class))))
    }

    /// Fits the tree to `height` visible lines, and limits the overlay's first line to `most_scroll`.
    pub(super) fn fit(&mut self, height: usize, most_scroll: usize) {
        self.height = height;
        self.most_scroll = most_scroll;
        self.scroll = self.scroll.min(most_scroll);
        let last = (self.selected + 1).saturating_sub(height);
        // Leaves no empty lines at the bottom while lines above are hidden.
        let full = self.rows.len().saturating_sub(height);
        self.offset = self.offset.clamp(last, self.selected.max(last)).min(full);
    }
}

impl Change {
    fn ask(&self, dry: bool) -> Ask {
        Ask::Change {
            place: self.place.clone(),
            key: self.key,
            value: value_of(self.value.trim()),
            dry,
        }
    }

    fn words(&self) -> String {
        format!("{} {}={}", name(&self.place), self.key, self.value.trim())
    }
}

/// Formats the name of a link or class.
pub(super) fn name((link, class): &Place) -> String {
    match class {
        Some(class) => format!("{link}/{class}"),
        None => link.clone(),
    }
}

fn sentences(told: &Json) -> Vec<String> {
    let sentences = told.as_array().into_iter().flatten();
    sentences
        .filter_map(|sentence| sentence.as_str().map(str::to_owned))
        .collect()
}

/// Sorts effects that reduce a guarantee to the front.
fn worst_first(mut effects: Effects) -> Effects {
    effects.listed.sort_by_key(|effect| !effect.worse);
    effects
}

/// Applies a key to the typed text.
fn typed(line: &mut String, key: KeyEvent) {
    match key.code {
        KeyCode::Backspace => {
            line.pop();
        }
        KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => line.clear(),
        KeyCode::Char(letter)
            if !key.modifiers.intersects(COMMANDS)
                && !letter.is_control()
                && line.chars().count() < MOST_TYPED =>
        {
            line.push(letter);
        }
        _ => {}
    }
}
