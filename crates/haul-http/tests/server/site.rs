//! A server with a directory of its own, and methods that send requests to it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_http::server::{DavServer, DavServerBuilder};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A served directory beside files that are not served.
pub(crate) struct Site {
    directory: TempDir,
    server: Option<DavServer>,
    runtime: Runtime,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Length of the longest chunk in bytes; 0 without chunked encoding.
    pub(crate) longest_chunk: usize,
}

impl Site {
    pub(crate) fn start() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(change: impl FnOnce(DavServerBuilder) -> DavServerBuilder) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("served")).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        let runtime = Runtime::new().unwrap();
        let builder = change(DavServer::builder(directory.path().join("served")));
        let server = runtime.block_on(builder.bind()).unwrap();
        Self { directory, server: Some(server), runtime }
    }

    /// A path in the served directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("served").join(name)
    }

    /// A path outside the served directory.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap()).into_owned()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok()
    }

    /// Names of the entries of the served directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Waits until the served directory has these entries: the part file of a failed upload is removed after the
    /// response.
    pub(crate) fn wait_for_names(&self, expected: &[&str]) {
        let begun = Instant::now();
        while self.names() != expected && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.names(), expected);
    }

    pub(crate) fn server(&self) -> &DavServer {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server().url())
    }

    pub(crate) fn authority(&self) -> String {
        self.server().address().to_string()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server().address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends a request with `Host`, these headers, and the length of a body that is not empty; the
    /// connection is closed after the response.
    pub(crate) fn send(&self, line: &str, headers: &[&str], body: &[u8]) -> Response {
        let host = format!("Host: {}", self.authority());
        let headers: Vec<&str> =
            [&host as &str].into_iter().chain(headers.iter().copied()).collect();
        self.send_without_host(line, &headers, body)
    }

    pub(crate) fn send_without_host(&self, line: &str, headers: &[&str], body: &[u8]) -> Response {
        let mut head = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
        for header in headers {
            head.push_str(&format!("{header}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        let mut stream = self.connect();
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        // The server may refuse before it has read the whole body.
        let _ = stream.write_all(body);
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        Response::read(&response)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send(&format!("GET {path}"), &[], b"")
    }

    pub(crate) fn put(&self, path: &str, headers: &[&str], body: &[u8]) -> Response {
        self.send(&format!("PUT {path}"), headers, body)
    }

    /// Stops the server; the directory remains until the end.
    pub(crate) fn stop(&mut self) {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.stop());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.stop();
        }
    }
}

impl Response {
    fn read(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no response head in {:?}", String::from_utf8_lossy(bytes));
        });
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let (mut body, mut longest_chunk) = (bytes[end + 4..].to_vec(), 0);
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            (body, longest_chunk) = unchunked(&body);
        }
        Self { status, head, body, longest_chunk }
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn unchunked(mut bytes: &[u8]) -> (Vec<u8>, usize) {
    let (mut body, mut longest) = (Vec::new(), 0);
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let length =
            usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        longest = length.max(longest);
        body.extend_from_slice(&bytes[end + 2..end + 2 + length]);
        bytes = &bytes[end + 4 + length..];
    }
    (body, longest)
}

/// Whether a tool is installed. A test without its tool prints that it was skipped, and passes.
pub(crate) fn has_tool(tool: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|paths| {
        std::env::split_paths(&paths)
            .chain(["/usr/sbin".into()])
            .any(|path| path.join(tool).exists())
    });
    if !found {
        eprintln!("SKIPPED: there is no {tool} on this machine");
    }
    found
}

/// Runs a tool; returns whether it succeeded, and both of its outputs.
pub(crate) fn run(directory: &Path, program: &str, args: &[&str]) -> (bool, String) {
    let output = Command::new("timeout")
        .arg("120")
        .arg(program)
        .args(args)
        .current_dir(directory)
        .env("HOME", directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    outcome(&output)
}

pub(crate) fn outcome(output: &Output) -> (bool, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}
