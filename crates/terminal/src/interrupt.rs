//! Ctrl-C and other signals that ask a program to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// The signals that ask a program to end.
const ENDS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Returns a flag that becomes true when the program is asked to end.
pub fn asked() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in ENDS {
        flag::register(signal, Arc::clone(&asked)).context("setting up Ctrl-C")?;
    }
    Ok(asked)
}

/// Calls `answer` whenever the program is asked to end.
pub fn answer(mut answer: impl FnMut() + Send + 'static) -> io::Result<()> {
    listen(Signals::new(ENDS)?, move |_| answer())
}

/// Calls `hear` with each of these signals, on a thread of its own.
pub fn listen(mut signals: Signals, mut hear: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || signals.forever().for_each(&mut hear))?;
    Ok(())
}
