//! A test's session: a directory of its own, files in it, and commands run there.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use haul_bench::guard::end_with_thread;
use tempfile::TempDir;

/// A working directory. haul reads and writes nothing outside of it: no configuration, no home directory.
pub(crate) struct Session {
    directory: TempDir,
}

/// Removes the variables of the tests' own environment that change what haul does, and keeps haul from sending anything
/// to the network of this machine. The process is killed when the thread that starts it ends, and so also when the test
/// program ends.
pub(crate) fn isolate(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| changes_haul(name)) {
        command.env_remove(name);
    }
    end_with_thread(command);
    command.env("HAUL_LAN", "no").env("HAUL_PORT_MAPPING", "no")
}

/// Whether haul reads a variable, other than `PATH`, `HOME`, `TMPDIR`, `TERM`, `COLUMNS`, `TZ`, `SSL_CERT_FILE`,
/// `SSL_CERT_DIR`, those of the user's name, and those that an SSH configuration names.
fn changes_haul(name: &OsStr) -> bool {
    const NAMES: [&str; 10] = [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
        "XDG_RUNTIME_DIR",
        "NETRC",
        "REQUEST_METHOD",
        "SSH_AUTH_SOCK",
        "NO_COLOR",
        "VISUAL",
        "EDITOR",
    ];
    let Some(name) = name.to_str() else { return false };
    let is_proxy = name.to_ascii_lowercase().ends_with("_proxy");
    NAMES.contains(&name) || is_proxy || name.starts_with("HAUL_")
}

/// The output and the status of a command.
pub(crate) struct Ran {
    line: String,
    root: PathBuf,
    output: Output,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// Adds a file, with the directories above it.
    pub(crate) fn file(self, path: impl AsRef<OsStr>, content: impl AsRef<[u8]>) -> Self {
        self.write(path, content);
        self
    }

    /// Adds an empty directory.
    pub(crate) fn directory(self, path: &str) -> Self {
        fs::create_dir_all(self.path(path)).unwrap();
        self
    }

    /// Adds a symbolic link.
    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
        self
    }

    /// Writes a file now.
    pub(crate) fn write(&self, path: impl AsRef<OsStr>, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A path in the session's directory. The directory itself has no link in its path.
    pub(crate) fn path(&self, path: impl AsRef<OsStr>) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(Path::new(path.as_ref()))
    }

    /// A command to be run here, not yet started.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        isolate(&mut command)
            .args(line.split_whitespace())
            .current_dir(self.path(""))
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path(""))
            .stdin(Stdio::null());
        command
    }

    /// Runs `haul` with the words of `line`.
    pub(crate) fn haul(&self, line: &str) -> Ran {
        self.ran(line, self.command(line).output().unwrap())
    }

    /// As [`Session::haul`], with environment variables.
    pub(crate) fn haul_where(&self, line: &str, variables: &[(&str, &str)]) -> Ran {
        let mut command = self.command(line);
        command.envs(variables.iter().copied());
        self.ran(line, command.output().unwrap())
    }

    /// As [`Session::haul`], with a further argument that may be any bytes.
    pub(crate) fn haul_with(&self, line: &str, argument: &[u8]) -> Ran {
        let argument = OsString::from(OsStr::from_bytes(argument));
        self.ran(line, self.command(line).arg(argument).output().unwrap())
    }

    /// Runs another program here, which must succeed; returns what it prints.
    pub(crate) fn tool(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        isolate(&mut command).args(words).current_dir(self.path(""));
        let output = command.output().unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "$ {line}\n{text}");
        text
    }

    pub(crate) fn ran(&self, line: &str, output: Output) -> Ran {
        Ran { line: line.to_owned(), root: self.path(""), output }
    }

    /// The content of a file.
    pub(crate) fn read(&self, path: &str) -> String {
        let bytes = fs::read(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The part file of an upload of the file `path`, in the session's directory.
    pub(crate) fn part_of(&self, path: &str) -> Option<String> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_part = |found: &str| {
            let found = found.strip_prefix(&format!(".{name}."));
            found.is_some_and(|rest| rest.ends_with("haul-part") || rest.ends_with(".haul-upload"))
        };
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten();
        let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|found| is_part(found)).map(|found| format!("{directory}/{found}"))
    }

    /// Removes the journals of uploads to servers.
    pub(crate) fn forget_uploads(&self) {
        for entry in fs::read_dir(self.path("home/.local/state/haul/journals")).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".haul-journal") {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// Whether the path exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path(path)).is_ok()
    }
}

impl Ran {
    /// Asserts the exit status.
    #[track_caller]
    pub(crate) fn status(self, expected: i32) -> Self {
        let status = self.output.status.code();
        assert_eq!(status, Some(expected), "$ haul {}\n{}{}", self.line, self.out(), self.err());
        self
    }

    /// The exit status; `None` after a signal.
    pub(crate) fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Asserts the exact standard output.
    #[track_caller]
    pub(crate) fn stdout(self, expected: &str) -> Self {
        assert_eq!(self.out(), expected, "$ haul {}\n{}", self.line, self.err());
        self
    }

    /// Asserts the exact standard error.
    #[track_caller]
    pub(crate) fn stderr(self, expected: &str) -> Self {
        assert_eq!(self.err(), expected, "$ haul {}\n{}", self.line, self.out());
        self
    }

    /// Asserts that no error, warning or note was printed, only the summary. `-q` would hide warnings and notes.
    #[track_caller]
    pub(crate) fn without_warnings(self) -> Self {
        assert!(!self.line.split(' ').any(|word| word == "-q"), "$ haul {}", self.line);
        let text = self.err();
        let is_one = |line: &str| line.starts_with("haul: ") || line.starts_with("hint: ");
        assert!(!text.lines().any(is_one), "$ haul {}\n{text}", self.line);
        self
    }

    /// Asserts that standard error contains this.
    #[track_caller]
    pub(crate) fn stderr_has(self, expected: &str) -> Self {
        let text = self.err();
        assert!(text.contains(expected), "$ haul {}\n{text}\n-- has no: {expected}", self.line);
        self
    }

    /// Asserts that standard output contains this.
    #[track_caller]
    pub(crate) fn stdout_has(self, expected: &str) -> Self {
        let text = self.out();
        assert!(text.contains(expected), "$ haul {}\n{text}\n-- has no: {expected}", self.line);
        self
    }

    /// Standard output as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.output.stdout
    }

    /// Standard output. The session's directory is written `[ROOT]/`.
    pub(crate) fn out(&self) -> String {
        self.text(&self.output.stdout)
    }

    /// Standard error. The session's directory is written `[ROOT]/`.
    pub(crate) fn err(&self) -> String {
        self.text(&self.output.stderr)
    }

    /// The objects that it printed, one per line.
    pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
        let text = self.out();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last object, which is the summary.
    #[track_caller]
    pub(crate) fn summary(&self) -> serde_json::Value {
        let last = self.objects().pop().unwrap();
        assert_eq!(last["event"], "summary", "{}", self.out());
        last
    }

    /// Output as text, with the session's directory written `[ROOT]/`.
    fn text(&self, bytes: &[u8]) -> String {
        let root = format!("{}/", self.root.display().to_string().trim_end_matches('/'));
        String::from_utf8_lossy(bytes).replace(&root, "[ROOT]/")
    }
}

/// The peak resident memory of a process so far, in bytes. `None` after its end.
pub(crate) fn peak_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Formerly, tests failed where a proxy, a password or another state directory was set.
#[test]
fn the_environment_of_the_tests_does_not_reach_haul() {
    for name in ["XDG_STATE_HOME", "HAUL_PASSWORD_NAS", "NETRC", "https_proxy", "ALL_PROXY"] {
        assert!(changes_haul(OsStr::new(name)), "{name}");
    }
    for name in ["PATH", "HOME", "TMPDIR", "LANG"] {
        assert!(!changes_haul(OsStr::new(name)), "{name}");
    }
    let set = std::env::vars_os().map(|(name, _)| name).filter(|name| changes_haul(name));
    let command = Session::new().command("ls");
    let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
    for name in set {
        assert!(removed.contains(&(name.as_os_str(), None)), "{}", name.display());
    }
}
