//! A headless browser, driven by the DevTools protocol over two pipes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::{Namespace, skip_unsupported};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Its name on Debian.
const PROGRAM: &str = "chromium";
/// The limit of every wait, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser that is killed with all its processes when it is dropped.
pub(crate) struct Browser {
    program: Child,
    to: ChildStdin,
    messages: Receiver<Value>,
    /// Events received and not yet read.
    events: Vec<Value>,
    asked: u64,
    session: Option<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts it with an empty page, in a namespace. Returns `None`, with the reason printed, if it is not installed.
    pub(crate) fn start(test: &str, namespace: &Namespace) -> Option<Browser> {
        let there = Command::new(PROGRAM).arg("--version").output();
        if !there.is_ok_and(|output| output.status.success()) {
            // Only this test needs a browser.
            skip_unsupported(test, format!("{PROGRAM} is not installed"));
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let line = format!(
            "exec {PROGRAM} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
             --no-first-run --disable-background-networking --disable-component-update \
             --window-size=1280,900 --user-data-dir={} --remote-debugging-pipe \
             3<&0 4>&1 </dev/null >/dev/null 2>&1",
            profile.path().display()
        );
        let mut command = Command::new("sh");
        command
            .args(["-c", &line])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut program = namespace.run(|| command.spawn()).unwrap();
        let to = program.stdin.take().unwrap();
        let mut from = BufReader::new(program.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                let read = from.read_until(0, &mut message);
                if !read.is_ok_and(|length| length > 1) {
                    return;
                }
                message.pop();
                let message = serde_json::from_slice(&message).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            program,
            to,
            messages,
            events: Vec::new(),
            asked: 0,
            session: None,
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.ask(domain, &json!({}));
        }
        Some(browser)
    }

    /// Runs a method and returns its result.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        loop {
            let mut message = self.message();
            if message["id"] == self.asked {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    #[track_caller]
    fn message(&self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE);
        message.expect("the browser says nothing")
    }

    /// Returns the parameters of the events of one name, until an event of the other.
    #[track_caller]
    pub(crate) fn events_until(&mut self, wanted: &str, last: &str) -> Vec<Value> {
        let mut found = Vec::new();
        loop {
            let mut event = match self.events.is_empty() {
                true => self.message(),
                false => self.events.remove(0),
            };
            if event["method"] == *wanted {
                found.push(event["params"].take());
            } else if event["method"] == *last {
                return found;
            }
        }
    }

    /// Returns the page's complaints: uncaught errors, and violations of its content policy.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let complaints = self.events.iter().filter(|event| {
            let entry = &event["params"]["entry"];
            event["method"] == "Runtime.exceptionThrown" || entry["source"] == "security"
        });
        complaints.map(Value::to_string).collect()
    }

    pub(crate) fn open(&mut self, address: &str) {
        self.ask("Page.navigate", &json!({ "url": address }));
    }

    /// Returns the value of an expression in the page.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression,
            "returnByValue": true,
            "awaitPromise": true,
        });
        let mut told = self.ask("Runtime.evaluate", &asked);
        assert!(told["exceptionDetails"].is_null(), "{expression}: {told}");
        told["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != true {
            if begun.elapsed() > PATIENCE {
                let text = self.value("document.body.innerText");
                panic!("never: {expression}; the page says {text}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Saves a screenshot of the page in the folder that FAIRLANE_PICTURES names.
    pub(crate) fn save(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("FAIRLANE_PICTURES") else {
            return;
        };
        let taken = self.ask("Page.captureScreenshot", &json!({ "format": "png" }));
        // The data is in base64.
        let text = taken["data"].as_str().unwrap();
        let path = std::path::Path::new(&folder)
            .join(name)
            .with_extension("png.base64");
        std::fs::write(path, text).unwrap();
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        let code = i64::from(key == "Enter") * 13;
        let down = json!({
            "type": "keyDown",
            "key": key,
            "text": text,
            "windowsVirtualKeyCode": code,
        });
        self.ask("Input.dispatchKeyEvent", &down);
        self.ask(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyUp", "key": key }),
        );
    }

    /// Types a text into the focused element.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.ask("Input.insertText", &json!({ "text": text }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // All of its processes, which form a process group.
        let group = format!("kill -KILL -{}", self.program.id());
        let _ = Command::new("sh").args(["-c", &group]).status();
        let _ = self.program.wait();
    }
}
