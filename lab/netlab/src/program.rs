//! Programs that run in a namespace.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{LabError, Namespace};

/// A program that runs in a namespace. Killed when it is dropped before it has ended.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    lines: Receiver<(Instant, String)>,
    errors: Option<JoinHandle<String>>,
}

/// The result of a [`Program`].
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// The lines of standard output that were not yet read, and their times.
    pub lines: Vec<(Instant, String)>,
    /// Its standard error.
    pub errors: String,
}

impl Ended {
    /// Returns the lines, one after the other.
    pub fn output(&self) -> String {
        let lines = self.lines.iter().map(|(_, line)| line.as_str());
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Program {
    /// Starts `command` in `namespace`. It gets no input; its output is kept.
    ///
    /// # Errors
    ///
    /// If it cannot be started; [`LabError::Missing`] if there is no such program.
    pub fn start(namespace: &Namespace, command: &mut Command) -> Result<Program, LabError> {
        let name = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = namespace.run(|| command.spawn());
        let mut child = started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LabError::Missing {
                program: name.clone(),
            },
            _ => LabError::new(format!("start {name}"), error),
        })?;
        let (sender, lines) = channel();
        let output = child.stdout.take();
        let errors = child.stderr.take();
        thread::spawn(move || {
            let lines = BufReader::new(output?).lines().map_while(Result::ok);
            for line in lines {
                sender.send((Instant::now(), line)).ok()?;
            }
            Some(())
        });
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            // Output before an error counts.
            let _ = errors.map(|mut errors| errors.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Program {
            name,
            child,
            lines,
            errors: Some(errors),
        })
    }

    /// Returns the next line of its standard output, and its time; `None` on a timeout, or at its
    /// end.
    pub fn line(&self, patience: Duration) -> Option<(Instant, String)> {
        self.lines.recv_timeout(patience).ok()
    }

    /// Returns its number as a process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop, as Ctrl-C does.
    pub fn interrupt(&self) {
        // It may have ended by itself. Its number is not given away before it is waited for.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT);
    }

    /// Returns whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it ends.
    ///
    /// # Errors
    ///
    /// If it does not in time; then it is killed.
    pub fn finish(mut self, patience: Duration) -> Result<Ended, LabError> {
        let deadline = Instant::now() + patience;
        let failed = |name: &str, error| LabError::new(format!("wait for {name}"), error);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                Ok(None) => return Err(failed(&self.name, io::ErrorKind::TimedOut.into())),
                Err(error) => return Err(failed(&self.name, error)),
            }
        };
        let errors = self.errors.take().map(JoinHandle::join);
        Ok(Ended {
            status,
            lines: self.lines.iter().collect(),
            errors: errors.and_then(Result::ok).unwrap_or_default(),
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
