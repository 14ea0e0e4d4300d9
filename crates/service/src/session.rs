//! Which sessions come first, where the kernel divides processors among sessions before it divides them among
//! the threads of each (`autogroup`, on by default in most kernels of distributions).
//!
//! There the priority of a thread counts within its session alone: however high it is, beside other sessions
//! with programs that never sleep it has its session's part of a processor.

use std::fs;
use std::io;

use nix::unistd::{getpid, getsid};

/// What this process's session is, and how many times more than another it gets.
const FILE: &str = "/proc/self/autogroup";
/// As `nice` counts: before all others.
const FIRST: &str = "-20";

/// Puts the session of this process before all others, if the process leads it, as a service does: then it ends
/// with the process. Of a session that belongs to a shell nothing is changed. Needs what a thread needs to go
/// before others. Returns whether the session goes before others now.
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
