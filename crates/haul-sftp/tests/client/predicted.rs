//! Requests that follow an open in the same flight, for the predicted handle: files and listings are right, even on
//! servers that choose handles by other rules than predicted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use haul_net::HostWaits;
use haul_sftp::SftpStorage;
use haul_sftp::codec::{
    Attrs, Deframer, Extensions, Handle as FileHandle, Name, Request, Response, Status,
};
use haul_sftp::transport::{Channel, Dial, First, Outgoing};
use haul_storage::{Block, Range, RelPath, Result, Storage};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use crate::opened;
use crate::pipe::{SftpServerProcess, channel};
use crate::scripted::status;

const OPENSSH: &str = "SSH-2.0-OpenSSH_9.2";

/// The RTT: a path is long from 10 ms on.
const RTT: Duration = Duration::from_millis(30);

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

/// Length of each file, and number of names in each directory.
const LENGTH: usize = 200_000;
const NAMES: usize = 150;

/// The range that is requested together with an open.
const FIRST: Range = Range::new(0, 128 << 10);

/// How a server chooses handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The one that was closed last, as in OpenSSH.
    LastClosed,
    /// The lowest free one. A closed handle can still be read, as if it had been reassigned to another file.
    Lowest,
    /// A new one each time.
    New,
    /// As OpenSSH, but an open takes effect an RTT late: requests sent right behind it are executed before it.
    LastClosedAndLate,
}

/// The requests and responses of the server, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// A server whose responses take an RTT. The root and each path that ends with `d` are directories, all others files.
#[derive(Debug, Clone)]
struct Far {
    rule: Rule,
    log: Log,
}

#[async_trait]
impl Dial for Far {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let (responses, received) = unbounded_channel();
        let state = State {
            rule: self.rule,
            deframer: Deframer::new(1 << 20),
            handles: Vec::new(),
            free: Vec::new(),
        };
        let (state, log) = (Mutex::new(state), Arc::clone(&self.log));
        let server = Server { state, log, responses };
        server.send(&[first(OPENSSH)]).await?;
        let log = Arc::clone(&self.log);
        let incoming = stream::unfold((received, log), |(mut received, log)| async move {
            let Sent { at, name, bytes } = received.recv().await?;
            sleep_until(at).await;
            log.lock().unwrap().push(format!("sent {name}"));
            Some((Ok(bytes), (received, log)))
        });
        Ok(channel(incoming, server, OPENSSH))
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        "far".to_owned()
    }

    fn waits(&self) -> HostWaits {
        HostWaits::default()
    }
}

#[derive(Debug)]
struct Server {
    state: Mutex<State>,
    log: Log,
    responses: UnboundedSender<Sent>,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    name: String,
    bytes: Bytes,
}

#[derive(Debug)]
struct State {
    rule: Rule,
    deframer: Deframer,
    handles: Vec<Open>,
    free: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Open {
    content: Bytes,
    /// Number of names listed so far.
    listed: usize,
    is_open: bool,
    /// When the handle becomes usable.
    from: Instant,
}

#[async_trait]
impl Outgoing for Server {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        pieces.iter().for_each(|piece| state.deframer.push(piece.clone()));
        while let Some(frame) = state.deframer.next_frame().unwrap() {
            let (id, request) = Request::decode(frame).unwrap();
            let name = name(&request);
            self.log.lock().unwrap().push(name.clone());
            let response = state.respond(&request);
            let mut bytes = response.encode(id).to_vec();
            for piece in response.payload().into_iter().flat_map(Block::pieces) {
                bytes.extend_from_slice(piece);
            }
            let bytes = bytes.into();
            drop(self.responses.send(Sent { at: Instant::now() + RTT, name, bytes }));
        }
        Ok(())
    }
}

impl State {
    fn respond(&mut self, request: &Request) -> Response {
        match request {
            Request::Init { .. } => {
                Response::Version { version: 3, extensions: Extensions::default() }
            }
            Request::Realpath(path) => Response::Names(vec![named(path.clone())]),
            Request::Lstat(path) | Request::Stat(path) => Response::Attrs(attrs(path)),
            Request::Open { path, .. } | Request::Opendir(path) => self.open(path),
            Request::Close(handle) => {
                let number = number(handle);
                self.handles[number].is_open = false;
                self.free.push(number);
                status(Status::Ok)
            }
            Request::Read { handle, offset, length } => {
                let Some(open) = self.usable(handle) else { return status(Status::Failure) };
                let start = usize::try_from(*offset).unwrap().min(LENGTH);
                let end = (start + *length as usize).min(LENGTH);
                match start == end {
                    true => status(Status::Eof),
                    false => Response::Data(Block::from(open.content.slice(start..end))),
                }
            }
            Request::Readdir(handle) => {
                let Some(open) = self.usable(handle) else { return status(Status::Failure) };
                let names = open.listed..(open.listed + 100).min(NAMES);
                open.listed = names.end;
                let name = |number: usize| named(format!("{number:03}").into());
                match names.is_empty() {
                    true => status(Status::Eof),
                    false => Response::Names(names.map(name).collect()),
                }
            }
            _ => status(Status::Unsupported),
        }
    }

    fn open(&mut self, path: &Bytes) -> Response {
        let at = match self.rule {
            Rule::LastClosed | Rule::LastClosedAndLate => self.free.len().checked_sub(1),
            Rule::Lowest => (0..self.free.len()).min_by_key(|at| self.free[*at]),
            Rule::New => None,
        };
        let number = at.map_or(self.handles.len(), |at| self.free.remove(at));
        let late = if self.rule == Rule::LastClosedAndLate { RTT } else { Duration::ZERO };
        let from = Instant::now() + late;
        let open = Open { content: content(path), listed: 0, is_open: true, from };
        match self.handles.get_mut(number) {
            Some(slot) => *slot = open,
            None => self.handles.push(open),
        }
        let number = u32::try_from(number).unwrap();
        Response::Handle(FileHandle::from(Bytes::copy_from_slice(&number.to_be_bytes())))
    }

    /// What a handle refers to, if anything.
    fn usable(&mut self, handle: &FileHandle) -> Option<&mut Open> {
        let is_readable = self.rule == Rule::Lowest;
        let open = self.handles.get_mut(number(handle))?;
        ((open.is_open || is_readable) && Instant::now() >= open.from).then_some(open)
    }
}

fn number(handle: &FileHandle) -> usize {
    u32::from_be_bytes(handle[..].try_into().unwrap()) as usize
}

fn attrs(path: &[u8]) -> Attrs {
    let permissions = Some(if path.ends_with(b"d") || path == b"/" { DIRECTORY } else { FILE });
    Attrs { size: Some(LENGTH as u64), permissions, ..Attrs::default() }
}

fn named(name: Bytes) -> Name {
    let attrs = attrs(&name);
    Name { name, long: Bytes::new(), attrs }
}

/// The content of a file, which depends on its path.
fn content(path: &[u8]) -> Bytes {
    let seed = path.iter().fold(7_usize, |seed, byte| seed * 31 % 1009 + usize::from(*byte));
    (0..LENGTH).map(|at| (at * 7 + seed + seed * at / 251) as u8).collect::<Vec<_>>().into()
}

/// The name of a request in the log.
fn name(request: &Request) -> String {
    let of = |name: &str, path: &Bytes| format!("{name} {}", path.escape_ascii());
    match request {
        Request::Lstat(path) => of("LSTAT", path),
        Request::Open { path, .. } => of("OPEN", path),
        Request::Opendir(path) => of("OPENDIR", path),
        Request::Read { .. } => "READ".to_owned(),
        Request::Readdir(_) => "READDIR".to_owned(),
        _ => "other".to_owned(),
    }
}

struct World {
    storage: Arc<SftpStorage>,
    log: Log,
    _journals: TempDir,
}

impl World {
    async fn new(rule: Rule) -> Self {
        let (log, journals) = (Log::default(), tempfile::tempdir().unwrap());
        let storage = opened(Far { rule, log: Arc::clone(&log) }, b"/", &journals).await;
        Self { storage, log, _journals: journals }
    }

    /// Opens a file, and checks its first bytes and some others.
    async fn check(&self, name: &str) {
        let file = self.storage.open_reading(&path(name), FIRST).await.unwrap();
        let whole = content(format!("/{name}").as_bytes());
        for range in [FIRST, Range::new(100, 1000), Range::new(0, LENGTH as u64)] {
            let mut found = Vec::new();
            let mut blocks = file.read_at(range);
            while let Some(block) = blocks.next().await {
                found.extend_from_slice(&block.unwrap().into_bytes());
            }
            let end = usize::try_from(range.end()).unwrap().min(LENGTH);
            assert!(found == whole[range.start() as usize..end], "{name} {range:?}");
        }
        drop(file);
        // Wait until its handle is closed.
        sleep(2 * RTT).await;
    }

    /// Lists a directory. Returns the number of its names, none of which may occur twice.
    async fn names(&self, name: &str) -> usize {
        names(&*self.storage, name).await.len()
    }

    /// Whether the server received `next` after `open`, before its response to `open` reached the client.
    fn is_one_flight(&self, open: &str, next: &str) -> bool {
        let log = self.log.lock().unwrap();
        let sent = format!("sent {open}");
        let at = log.iter().rposition(|event| event == open).unwrap();
        let until = log[at..].iter().position(|event| *event == sent).unwrap();
        log[at..at + until].iter().any(|event| event == next)
    }
}

async fn names(storage: &dyn Storage, name: &str) -> Vec<Vec<u8>> {
    names_at(storage, &path(name)).await
}

async fn names_at(storage: &dyn Storage, path: &RelPath) -> Vec<Vec<u8>> {
    let mut listing = storage.list(path).await.unwrap();
    let mut names = Vec::new();
    while let Some(entries) = listing.next().await {
        names.extend(entries.unwrap().into_iter().map(|entry| entry.path.name().to_vec()));
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    names
}

fn path(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

#[tokio::test]
async fn a_file_is_read_and_a_directory_listed_in_the_flight_of_its_open() {
    let world = World::new(Rule::LastClosed).await;
    // Until a response has shown the RTT, nothing is requested behind an open.
    world.check("first").await;
    for file in ["a", "b", "c"] {
        world.check(file).await;
        assert!(world.is_one_flight(&format!("OPEN /{file}"), "READ"), "{file}");
        assert_eq!(world.names("d").await, NAMES);
        assert!(world.is_one_flight("OPENDIR /d", "READDIR"), "after {file}");
    }
    let many: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
    join_all(many.iter().map(|name| world.check(name))).await;
    assert!(many.iter().all(|name| world.is_one_flight(&format!("OPEN /{name}"), "READ")));
    let lists = join_all((0..8).map(|_| world.names("d"))).await;
    assert_eq!(lists, [NAMES; 8]);
}

/// Formerly, the listing of another directory dropped the prefetched names, but not the handle whose position is past
/// them.
#[tokio::test]
async fn a_prefetched_directory_is_complete_after_the_listing_of_another_one() {
    let (log, journals) = (Log::default(), tempfile::tempdir().unwrap());
    let far = Far { rule: Rule::LastClosed, log: Arc::clone(&log) };
    let storage = opened(far, b"/ad", &journals).await;
    for path in [path("subd"), RelPath::root()] {
        assert_eq!(names_at(&*storage, &path).await.len(), NAMES, "{path:?}");
    }
    let log = log.lock().unwrap();
    assert_eq!(log.iter().filter(|event| *event == "OPENDIR /ad").count(), 1, "{log:?}");
}

/// The server returns another handle than the predicted one, for which it sends bytes of another file.
#[tokio::test]
async fn bytes_for_a_wrong_handle_are_discarded_and_no_more_are_requested() {
    let world = World::new(Rule::Lowest).await;
    let [a, b] = ["a", "b"].map(path);
    let files = [
        world.storage.open_reading(&a, FIRST).await.unwrap(),
        world.storage.open_reading(&b, FIRST).await.unwrap(),
    ];
    for file in files {
        drop(file);
        sleep(2 * RTT).await;
    }
    world.check("c").await;
    assert!(world.is_one_flight("OPEN /c", "READ"));
    world.check("e").await;
    assert!(!world.is_one_flight("OPEN /e", "READ"));
    assert_eq!(world.names("d").await, NAMES);
    assert!(!world.is_one_flight("OPENDIR /d", "READDIR"));
}

#[tokio::test]
async fn the_client_learns_that_a_server_reuses_no_handles() {
    let world = World::new(Rule::New).await;
    for file in ["a", "b", "c", "e"] {
        world.check(file).await;
        assert_eq!(world.names("d").await, NAMES);
    }
    assert!(world.is_one_flight("OPEN /e", "READ"));
    assert!(world.is_one_flight("OPENDIR /d", "READDIR"));
}

#[tokio::test]
async fn requests_that_are_executed_before_the_open_are_repeated() {
    let world = World::new(Rule::LastClosedAndLate).await;
    for file in ["a", "b"] {
        world.check(file).await;
        assert_eq!(world.names("d").await, NAMES);
    }
}

/// Formerly, each level of directories that had not been seen was a flight of its own.
#[tokio::test]
async fn parents_are_checked_in_the_same_flight() {
    let world = World::new(Rule::LastClosed).await;
    let is_first = |name: &str| {
        let log = world.log.lock().unwrap();
        let requested = log.iter().position(|event| event == name).unwrap();
        let responded = log.iter().position(|event| event == "sent LSTAT /xd").unwrap();
        requested < responded
    };
    world.storage.stat(&path("xd/yd/f")).await.unwrap();
    assert!(is_first("LSTAT /xd/yd/f"));
    world.log.lock().unwrap().clear();
    // A directory whose attributes were received need not be checked.
    world.storage.stat(&path("xd/zd")).await.unwrap();
    world.storage.stat(&path("xd/zd/f")).await.unwrap();
    let log = world.log.lock().unwrap().clone();
    assert_eq!(log.iter().filter(|event| event.starts_with("LSTAT")).count(), 2, "{log:?}");
}

/// OpenSSH's server, with delayed responses.
#[derive(Debug)]
struct Slow(SftpServerProcess);

#[async_trait]
impl Dial for Slow {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let dialled = self.0.dial(first).await?;
        let later = |bytes: Result<Bytes>| async move {
            sleep(RTT / 2).await;
            bytes
        };
        Ok(Channel { incoming: dialled.incoming.then(later).boxed(), ..dialled })
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        self.0.host()
    }

    fn waits(&self) -> HostWaits {
        self.0.waits()
    }
}

fn numbered(number: usize) -> Vec<u8> {
    vec![number as u8; 1000 * number]
}

#[tokio::test]
async fn many_files_and_directories_at_a_time_are_right_on_openssh() {
    let [served, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let at = |name: &str| served.path().join(name);
    for number in 0..30 {
        std::fs::create_dir(at(&format!("{number}"))).unwrap();
        for file in 0..10 * number {
            std::fs::write(at(&format!("{number}/{number}-{file}")), "").unwrap();
        }
        std::fs::write(at(&format!("file{number}")), numbered(number)).unwrap();
    }
    let server = SftpServerProcess { server: OPENSSH, ..SftpServerProcess::default() };
    let root = served.path().as_os_str().as_encoded_bytes();
    let storage = opened(Slow(server), root, &journals).await;
    for _ in 0..2 {
        let check = |number: usize| {
            let storage = &*storage;
            async move {
                // Opens fail in between, so that handles differ from the predicted ones.
                assert!(storage.open_reading(&path("none"), FIRST).await.is_err());
                let file = path(&format!("file{number}"));
                let file = storage.open_reading(&file, FIRST).await.unwrap();
                let mut found = Vec::new();
                let mut blocks = file.read_at(FIRST);
                while let Some(block) = blocks.next().await {
                    found.extend_from_slice(&block.unwrap().into_bytes());
                }
                assert!(found == numbered(number), "{number}");
                let names = names(storage, &number.to_string()).await;
                assert_eq!(names.len(), 10 * number);
                let start = format!("{number}-");
                assert!(names.iter().all(|name| name.starts_with(start.as_bytes())));
            }
        };
        join_all((0..30).map(check)).await;
    }
}
