//! The program at a pseudo-terminal, with typed input. `script` creates the terminal and makes it the
//! program's controlling terminal.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::session::{Session, isolate};

/// The longest wait for output.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program at its terminal, killed when dropped.
pub(crate) struct Terminal {
    child: Child,
    keyboard: Option<ChildStdin>,
    screen: Arc<Mutex<Vec<u8>>>,
    reading: Option<JoinHandle<()>>,
    /// Length of the output that was matched already, in bytes.
    seen: usize,
}

impl Terminal {
    /// Starts `haul` with the words of `line`, as the shell parses them.
    pub(crate) fn start(session: &Session, line: &str) -> Self {
        Self::start_where(session, line, &[])
    }

    /// The same with environment variables.
    pub(crate) fn start_where(session: &Session, line: &str, variables: &[(&str, &str)]) -> Self {
        let haul = session.command("");
        let mut child = isolate(&mut Command::new("script"))
            .args(["--quiet", "--return", "--command"])
            .arg(format!("exec {} {line}", haul.get_program().display()))
            .arg("/dev/null")
            .current_dir(session.path(""))
            .env("HOME", session.path("home"))
            .env("TERM", "xterm")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let mut shown = child.stdout.take().unwrap();
        let reading = thread::spawn({
            let screen = Arc::clone(&screen);
            move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = shown.read(&mut buffer) {
                    screen.lock().unwrap().extend_from_slice(&buffer[..length]);
                }
            }
        });
        let keyboard = child.stdin.take();
        Self { child, keyboard, screen, reading: Some(reading), seen: 0 }
    }

    /// Waits until `text` is shown after the output that was matched already.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            let screen = self.text();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let ended = self.child.try_wait().unwrap().is_some() && self.text() == screen;
            assert!(!ended && start.elapsed() < PATIENCE, "no '{text}' is shown:\n{screen}");
            sleep(Duration::from_millis(10));
        }
    }

    /// The rest of the line behind the output that was matched already.
    #[track_caller]
    pub(crate) fn rest_of_line(&mut self) -> String {
        let start = self.seen;
        self.until("\n");
        self.text()[start..self.seen].trim_end().to_owned()
    }

    /// Waits for a prompt and types a line.
    #[track_caller]
    pub(crate) fn type_line(&mut self, prompt: &str, line: &str) {
        self.press(prompt, &format!("{line}\n"));
    }

    /// Waits for a prompt and presses keys.
    #[track_caller]
    pub(crate) fn press(&mut self, prompt: &str, keys: &str) {
        self.until(prompt);
        // The prompt is printed before echo is turned off.
        sleep(Duration::from_millis(100));
        let keyboard = self.keyboard.as_mut().unwrap();
        keyboard.write_all(keys.as_bytes()).unwrap();
        keyboard.flush().unwrap();
    }

    /// Waits for its end; returns the status, and all that was shown.
    pub(crate) fn end(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap().code().unwrap();
        self.reading.take().unwrap().join().unwrap();
        (status, self.text())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).replace("\r\n", "\n")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
