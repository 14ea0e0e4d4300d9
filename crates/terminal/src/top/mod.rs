//! `fairlane top`: a live full-screen view of a running site.

mod app;
mod ask;
mod columns;
mod draw;
mod look;
mod over;
mod rows;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use std::{process, thread};

use anyhow::{Context, Result, bail};
use clap::Args;
use crossterm::event::{Event, KeyEvent, read};
use fairlane_control::{Client, Method, Target};
use serde_json::Value as Json;

use self::app::{Action, App};
use self::ask::{Ask, Refusal, Request};
use self::look::TerminalStyle;
use self::screen::Screen;
use self::state::State;
use crate::connection::Connection;
use crate::interrupt;

const HELP: &str = "\
The site is found as by `fairlane ctl`. The tree shows each class of each link: rate and
share with the guarantee, delays with the bound, queue and drops. `?` explains the keys and
signs. Before a change is applied, its effect on all guarantees is shown.

`fairlane ctl show` prints the state once, `fairlane ctl watch` each state as JSON.";

/// Interval at which the age of the figures is checked.
const TICK: Duration = Duration::from_secs(1);
/// Pause before reconnecting to a lost site.
const AGAIN: Duration = Duration::from_secs(1);
/// Capacity of the event queue. If the terminal blocks, the queue fills and its senders block too.
const WAITING: usize = 16;
/// Maximum number of events handled before the next drawing.
const AT_ONCE: usize = 64;

/// Time limit for ending the program: a number of intervals.
const PATIENCE: u32 = 20;
const MOMENT: Duration = Duration::from_millis(50);

/// Options of `fairlane top`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
}

/// An event.
enum News {
    State(Box<State>),
    /// The stream of states ended, with the reason.
    Lost(String),
    Answer(u64, Result<Json, Refusal>),
    Key(KeyEvent),
    /// The size of the terminal changed.
    Resized,
    /// A signal asks the program to end.
    End,
}

/// Shows a site until the operator quits.
///
/// # Errors
///
/// Standard output is not a terminal, the terminal cannot be set up or drawn on, or the site cannot be reached at the
/// start.
pub fn run(options: &Options) -> Result<()> {
    let target = options.connection.target()?;
    if !stdout().is_terminal() {
        bail!(
            "standard output is not a terminal (`fairlane ctl show` prints the state once, `fairlane ctl \
             watch` continuously)"
        );
    }
    let variable = |name: &str| std::env::var(name).ok();
    if variable("TERM").as_deref() == Some("dumb") {
        bail!("a terminal with TERM=dumb cannot be drawn on: `fairlane ctl show` prints the state");
    }
    let mut app = App::new(target.to_string());
    if let Some(state) = first(&target)? {
        app.on_state(state);
    }
    let (tell, news) = sync_channel(WAITING);
    let (ask, asked) = channel();
    let end = tell.clone();
    interrupt::answer(move || end_soon(&end)).context("setting up Ctrl-C")?;
    start("states", &tell, {
        let target = target.clone();
        move |tell| states(&target, &tell)
    })?;
    let client = Client::new(target).context("starting to wait")?;
    start("answers", &tell, move |tell| {
        answers(&client, &asked, &tell)
    })?;
    let mut screen = Screen::open()?;
    // From here on keys are events, not lines.
    start("keys", &tell, |tell| keys(&tell))?;
    show(
        &mut screen,
        &mut app,
        TerminalStyle::of(variable),
        &news,
        |request| {
            // The answering thread lives as long as the program.
            let _ = ask.send(request);
        },
    )
}

/// Ends the program even if the terminal blocks the drawing thread.
fn end_soon(tell: &SyncSender<News>) {
    for _ in 0..PATIENCE {
        // The queue may be full for a while.
        let _ = tell.try_send(News::End);
        thread::sleep(MOMENT);
    }
    screen::abandon();
    process::exit(0);
}

/// Runs a source of events on its own thread.
fn start(
    name: &str,
    tell: &SyncSender<News>,
    run: impl FnOnce(SyncSender<News>) + Send + 'static,
) -> Result<()> {
    let tell = tell.clone();
    let thread = thread::Builder::new().name(name.to_owned());
    thread
        .spawn(move || run(tell))
        .context("starting a thread")?;
    Ok(())
}

/// Draws the display and handles events until the end.
fn show(
    screen: &mut Screen,
    app: &mut App,
    look: TerminalStyle,
    news: &Receiver<News>,
    ask: impl Fn(Request),
) -> Result<()> {
    let begun = Instant::now();
    loop {
        app.tick(begun.elapsed());
        screen.draw(|frame| {
            let (height, most_scroll) = draw::sizes(app, frame.area());
            app.fit(height, most_scroll);
            draw::draw(frame, app, look);
        })?;
        let mut next = match news.recv_timeout(TICK) {
            Ok(next) => Some(next),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        app.tick(begun.elapsed());
        for _ in 0..AT_ONCE {
            let Some(happened) = next else {
                break;
            };
            let action = match happened {
                News::State(state) => app.on_state(*state),
                News::Key(key) => app.on_key(key),
                News::Lost(reason) => {
                    app.on_lost(reason);
                    None
                }
                News::Answer(number, answer) => {
                    app.on_answer(number, answer);
                    None
                }
                // The next drawing adapts to the size of the terminal.
                News::Resized => None,
                News::End => return Ok(()),
            };
            match action {
                Some(Action::End) => return Ok(()),
                Some(Action::Suspend) => screen.suspend()?,
                Some(Action::Redraw) => screen.forget()?,
                Some(Action::Ask(request)) => ask(request),
                None => {}
            }
            next = news.try_recv().ok();
        }
    }
}

/// Returns the state at the start; `None` if the site has just started. If the site cannot be reached then, its address
/// is probably wrong.
fn first(target: &Target) -> Result<Option<State>> {
    let client = Client::new(target.clone()).context("starting to wait")?;
    match client
        .json(Method::GET, "/v1/state", "")
        .map_err(Refusal::from)
    {
        Ok(told) => Ok(Some(State::of(&told))),
        Err(Refusal {
            status: Some(503), ..
        }) => Ok(None),
        Err(refusal) => bail!("{}", refusal.sentence),
    }
}

/// Sends each state as an event; reconnects after the site has ended.
fn states(target: &Target, tell: &SyncSender<News>) {
    loop {
        let mut heard = true;
        let ended = Client::new(target.clone()).map_err(|error| error.to_string());
        let ended = ended.and_then(|client| {
            let watched = client.watch(|state| {
                let state = Box::new(State::of(&state));
                heard = tell.send(News::State(state)).is_ok();
                heard
            });
            watched.map_err(|error| error.to_string())
        });
        let reason = ended
            .err()
            .unwrap_or_else(|| "the site has ended".to_owned());
        if !heard || tell.send(News::Lost(reason)).is_err() {
            return;
        }
        thread::sleep(AGAIN);
    }
}

/// Sends requests one at a time and their answers as events.
fn answers(client: &Client, asked: &Receiver<Request>, tell: &SyncSender<News>) {
    for Request { number, what } in asked {
        let answer = Ask::send(&what, client);
        if tell.send(News::Answer(number, answer)).is_err() {
            return;
        }
    }
}

/// Sends each key as an event until the terminal is closed.
fn keys(tell: &SyncSender<News>) {
    loop {
        let news = match read() {
            Ok(Event::Key(key)) => News::Key(key),
            Ok(Event::Resize(..)) => News::Resized,
            Ok(_) => continue,
            Err(_) => News::End,
        };
        let ends = matches!(news, News::End);
        if tell.send(news).is_err() || ends {
            return;
        }
    }
}
