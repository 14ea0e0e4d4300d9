//! Precedence of sessions, where the kernel divides processors among sessions before it divides them among the
//! threads of each (`autogroup`, on by default in most kernels of distributions).
//!
//! A thread's priority then counts within its session alone: however high it is, it competes with busy programs
//! of other sessions only by its session's share of a processor.

use std::fs;
use std::io;

use nix::unistd::{getpid, getsid};

/// The file with this process's session, and the weight of the session.
const FILE: &str = "/proc/self/autogroup";
/// As `nice` counts: before all others.
const FIRST: &str = "-20";

/// Gives the session of this process precedence over all others, if the process leads it, as a service does:
/// the setting then ends with the process. The session of a shell is left unchanged. Needs the privilege that
/// raising a thread's priority needs. Returns whether the session has precedence now.
///
/// # Errors
///
/// The kernel does not allow it. No error where it does not divide processors by session.
pub fn before_all_others() -> io::Result<bool> {
    // Of a session that is led from outside this process namespace the number is 0.
    if getsid(None)? != getpid() {
        return Ok(false);
    }
    match fs::write(FILE, FIRST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
