//! Requests of the kernel over a simulated link, in virtual time.

use haul_engine::Settings;
use haul_engine::budget::LinkBudgets;
use haul_storage::memory::{MemoryStorage, Operation as Call, SimulatedLink};
use haul_storage::{RelPath, Storage};
use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, sleep};

use super::*;
use crate::attributes::Ages;
use crate::fuse::Body;
use crate::names::Shown;
use crate::read::{Context, ReadOptions};

const RTT: Duration = Duration::from_millis(50);
/// 500 Mbit/s.
const RATE: u64 = 62_500_000;
const MEMORY: u64 = 64 << 20;
const AGE: Duration = Duration::from_secs(5);

/// Numbers of operations.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const READDIRPLUS: u32 = 44;

struct World {
    storage: Arc<MemoryStorage>,
    view: Arc<View>,
}

/// An entry of a listing.
struct Listed {
    name: String,
    node: u64,
    is_directory: bool,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().unwrap())
}

fn bytes(reply: &Reply) -> &[u8] {
    match &reply.body {
        Body::Bytes(bytes) => bytes,
        body => panic!("{body:?}"),
    }
}

impl World {
    /// The view of a storage with these files, over a link with an open lane.
    async fn new(rtt: Duration, paths: impl IntoIterator<Item = String>) -> Self {
        let link = SimulatedLink { open_rtts: 1, ..SimulatedLink::new(rtt, RATE) };
        let storage = MemoryStorage::builder().with_link(link).build();
        paths.into_iter().for_each(|path| storage.add_pattern_file(path, 1 << 20, 1));
        storage.stat(&RelPath::root()).await.unwrap();
        storage.faults().reset_count();
        let shared: Arc<dyn Storage> = Arc::clone(&storage) as _;
        let settings = Settings { memory: MEMORY, ..Settings::default() };
        let share = LinkBudgets::default().reader(&shared, &settings);
        let timeout = Duration::from_secs(60);
        let options = ReadOptions { memory: MEMORY, timeout, cache: None, identity: "".into() };
        let context = Context::new(Arc::clone(&shared), share, options);
        let files = Files::new(&context, MEMORY, &Runtime::current());
        tokio::spawn(async move { context.watch_link().await });
        let ages = Ages { entry: AGE, missing: Duration::from_secs(1), most: 50_000 };
        let shown = Shown { owner: (0, 0), umask: 0, ages, timeout };
        let names = Names::new(shared, RelPath::root(), shown, None, &Runtime::current());
        Self { storage, view: View::new(names, Arc::new(files), None) }
    }

    fn count(&self, call: Call) -> u64 {
        self.storage.faults().count(call)
    }

    async fn send(&self, opcode: u32, node: u64, body: &[u8]) -> Reply {
        let length = u32::try_from(40 + body.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), opcode.to_ne_bytes()].concat();
        bytes.extend_from_slice(&7_u64.to_ne_bytes());
        bytes.extend_from_slice(&node.to_ne_bytes());
        bytes.resize(40, 0);
        bytes.extend_from_slice(body);
        let request = Request::decode(&bytes).unwrap();
        match self.view.handle_now(&request) {
            Some(reply) => reply,
            None => Arc::clone(&self.view).handle(request).await,
        }
    }

    /// The node of a name; `None` if it does not exist.
    async fn lookup(&self, node: u64, name: &str) -> Option<u64> {
        let reply = self.send(LOOKUP, node, format!("{name}\0").as_bytes()).await;
        Some(number(bytes(&reply))).filter(|node| *node > 0)
    }

    /// Looks a path up as the kernel does, name after name.
    async fn walk(&self, path: &str) -> u64 {
        let mut node = ROOT;
        for name in path.split('/') {
            node = self.lookup(node, name).await.unwrap();
        }
        node
    }

    /// Opens a file, and reads its first bytes.
    async fn open(&self, path: &str) {
        let node = self.walk(path).await;
        let handle = number(bytes(&self.send(OPEN, node, &[0; 8]).await));
        let read = self.send(READ, node, &range(handle, 0, 16 << 10)).await;
        match read.body {
            Body::Data(block) => assert_eq!(block.len(), 16 << 10),
            body => panic!("{body:?}"),
        }
    }

    /// Lists a directory with attributes.
    async fn list(&self, node: u64) -> Vec<Listed> {
        let handle = number(bytes(&self.send(OPENDIR, node, &[0; 8]).await));
        let (mut listed, mut offset) = (Vec::new(), 0);
        loop {
            let reply = self.send(READDIRPLUS, node, &range(handle, offset, 32 << 10)).await;
            let mut rest = bytes(&reply);
            if rest.is_empty() {
                break;
            }
            while !rest.is_empty() {
                let entry = &rest[128..];
                let field = |at: usize| u32::from_ne_bytes(entry[at..at + 4].try_into().unwrap());
                let length = field(16) as usize;
                let name = String::from_utf8(entry[24..24 + length].to_vec()).unwrap();
                offset = number(&entry[8..]);
                if !name.starts_with('.') {
                    let (node, is_directory) = (number(rest), field(20) == 4);
                    listed.push(Listed { name, node, is_directory });
                }
                rest = &rest[128 + (24 + length).next_multiple_of(8)..];
            }
        }
        self.send(RELEASEDIR, node, &range(handle, 0, 0)).await;
        listed
    }

    /// Lists a tree as `find` does. Returns the number of files.
    async fn find(&self) -> usize {
        let (mut files, mut directories) = (0, vec![ROOT]);
        while let Some(node) = directories.pop() {
            let listed = self.list(node).await;
            files += listed.iter().filter(|entry| !entry.is_directory).count();
            let below = listed.iter().rev().filter(|entry| entry.is_directory);
            directories.extend(below.map(|entry| entry.node));
        }
        files
    }
}

/// The fields of READ, READDIR and RELEASE.
fn range(handle: u64, offset: u64, size: u32) -> Vec<u8> {
    let mut body = [handle.to_ne_bytes(), offset.to_ne_bytes()].concat();
    body.extend_from_slice(&size.to_ne_bytes());
    body.resize(40, 0);
    body
}

/// Formerly, a program that follows a log saw nothing of what was added to it.
#[tokio::test(start_paused = true)]
async fn an_open_file_grows_with_the_file_and_not_with_one_that_replaces_it() {
    let world = World::new(RTT, []).await;
    world.storage.add_file("log", "first");
    let node = world.walk("log").await;
    let handle = number(bytes(&world.send(OPEN, node, &[0; 8]).await));
    let read = async |expected: &str| {
        let reply = world.send(READ, node, &range(handle, 0, 4096)).await;
        match reply.body {
            Body::Data(block) => assert_eq!(block.into_bytes(), expected),
            body => panic!("{body:?}"),
        }
    };
    read("first").await;
    // What was requested along with the lookup has arrived by then.
    sleep(10 * RTT).await;
    world.storage.overwrite("log", 5, ", second");
    // Until the attributes expire, programs see the earlier size.
    read("first").await;
    sleep(AGE).await;
    world.lookup(ROOT, "log").await.unwrap();
    read("first, second").await;
    world.storage.take_away("log");
    world.storage.add_file("log", "another file, which is longer");
    sleep(AGE).await;
    world.lookup(ROOT, "log").await.unwrap();
    read("first, second").await;
}

/// Formerly, a read waited for attributes whenever they had expired.
#[tokio::test(start_paused = true)]
async fn attributes_of_a_file_that_is_read_never_have_to_be_waited_for() {
    let world = World::new(RTT, one("file")).await;
    let node = world.walk("file").await;
    let handle = number(bytes(&world.send(OPEN, node, &[0; 8]).await));
    let getattr = async || {
        let start = Instant::now();
        let reply = world.send(GETATTR, node, &[0; 16]).await;
        (start.elapsed(), Duration::from_secs(number(bytes(&reply))))
    };
    let stats = world.count(Call::Stat);
    for block in 0..100 {
        sleep(AGE / 20).await;
        assert_eq!(getattr().await.0, Duration::ZERO, "block {block}");
        world.send(READ, node, &range(handle, (block % 8) << 17, 4096)).await;
    }
    let stats = world.count(Call::Stat) - stats;
    assert!((5..=8).contains(&stats), "{stats} requests in five times the age");
    // Nothing is requested for a file that is not read, and attributes do not become older than promised.
    sleep(3 * AGE).await;
    let before = world.count(Call::Stat);
    let (waited, valid) = getattr().await;
    assert!(waited >= RTT && valid <= AGE, "{waited:?}, {valid:?}");
    assert_eq!(world.count(Call::Stat), before + 1);
}

fn one(path: &str) -> [String; 1] {
    [path.to_owned()]
}

/// Files in directories in directories.
fn tree(outer: usize, inner: usize, files: usize) -> Vec<String> {
    let mut paths = Vec::new();
    for outer in 0..outer {
        for inner in 0..inner {
            paths.extend((0..files).map(|file| format!("o{outer:02}/i{inner:02}/{file:03}.c")));
        }
    }
    paths
}

/// How many RTTs some work takes.
async fn rtts(work: impl Future<Output = ()>) -> f64 {
    let start = Instant::now();
    work.await;
    start.elapsed().as_secs_f64() / RTT.as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_of_a_file_arrives_one_rtt_after_its_lookup() {
    let world = World::new(RTT, one("file")).await;
    let took = rtts(world.open("file")).await;
    assert!(took < 1.3, "{took:.2} RTTs");
}

/// Formerly, the first read took an RTT of its own.
#[tokio::test(start_paused = true)]
async fn the_first_byte_of_a_file_arrives_one_rtt_after_its_open() {
    let world = World::new(RTT, one("file")).await;
    sleep(2 * RTT).await;
    world.walk("file").await;
    let took = rtts(world.open("file")).await;
    assert!(took < 1.3, "{took:.2} RTTs");
    // The second time, only its version is requested.
    let reads = world.count(Call::Read);
    let took = rtts(world.open("file")).await;
    assert!(took < 1.3, "{took:.2} RTTs");
    assert_eq!(world.count(Call::Read), reads);
}

/// Formerly, each name took an RTT, and the first read another.
#[tokio::test(start_paused = true)]
async fn two_levels_of_directories_take_one_rtt() {
    let world = World::new(RTT, one("a/b/c/d/file")).await;
    let took = rtts(world.open("a/b/c/d/file")).await;
    assert!(took < 3.4, "{took:.2} RTTs");
}

#[tokio::test(start_paused = true)]
async fn the_first_levels_are_known_soon_after_the_mount() {
    let world = World::new(RTT, one("a/b/c/d/file")).await;
    sleep(10 * RTT).await;
    let took = rtts(world.open("a/b/c/d/file")).await;
    assert!(took < 1.3, "{took:.2} RTTs");
}

#[tokio::test(start_paused = true)]
async fn directories_that_were_listed_before_are_listed_together() {
    let world = World::new(RTT, one("a/b/c/d/file")).await;
    world.open("a/b/c/d/file").await;
    sleep(2 * AGE).await;
    let took = rtts(world.open("a/b/c/d/file")).await;
    assert!(took < 2.4, "{took:.2} RTTs");
}

/// sshfs takes two or three RTTs for each of the 211 directories: more than five times as many.
#[tokio::test(start_paused = true)]
async fn a_program_that_walks_a_tree_seldom_waits() {
    let world = World::new(RTT, tree(10, 20, 25)).await;
    let took = rtts(async { assert_eq!(world.find().await, 5000) }).await;
    assert!(took < 84.0, "{took:.2} RTTs");
    assert!(world.count(Call::List) < 260, "{} listings", world.count(Call::List));
    assert_eq!(world.count(Call::Stat), 0);
}

/// As `git status` does.
#[tokio::test(start_paused = true)]
async fn names_that_are_looked_up_one_by_one_are_not_requested_one_by_one() {
    let world = World::new(RTT, tree(3, 3, 100)).await;
    let took = rtts(async {
        for path in tree(3, 3, 100) {
            world.walk(&path).await;
        }
    });
    let took = took.await;
    assert!(took < 8.0, "{took:.2} RTTs");
    assert!(world.count(Call::Stat) < 20, "{} requests", world.count(Call::Stat));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_a_listing_does_not_have_is_missing_for_the_age_of_attributes() {
    let world = World::new(RTT, one("d/file")).await;
    let directory = world.walk("d").await;
    assert_eq!(world.list(directory).await.len(), 1);
    sleep(AGE * 2 / 3).await;
    let before = (world.count(Call::Stat), Instant::now());
    assert_eq!(world.lookup(directory, "other").await, None);
    assert_eq!((world.count(Call::Stat), Instant::now()), before);
    world.storage.add_file("d/other", "content");
    sleep(AGE / 2).await;
    assert!(world.lookup(directory, "other").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_shown_again_for_the_age_of_attributes() {
    let world = World::new(RTT, one("d/file")).await;
    let directory = world.walk("d").await;
    let names = async || {
        let listed = world.list(directory).await;
        listed.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["file"]);
    let lists = world.count(Call::List);
    world.storage.add_file("d/other", "content");
    assert_eq!((names().await, world.count(Call::List)), (vec!["file".to_owned()], lists));
    sleep(AGE * 2).await;
    assert_eq!(names().await, ["file", "other"]);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_in_a_very_long_directory_requests_only_that_name() {
    let paths = (0..20_000).map(|number| format!("d/{number:05}"));
    let world = World::new(RTT, paths).await;
    let directory = world.walk("d").await;
    assert!(world.lookup(directory, "19999").await.is_some());
    sleep(10 * RTT).await;
    let (stats, lists) = (world.count(Call::Stat), world.count(Call::List));
    assert_eq!(world.lookup(directory, "none.c").await, None);
    assert_eq!((world.count(Call::Stat), world.count(Call::List)), (stats + 1, lists));
    // A program that lists the directory gets all entries.
    assert_eq!(world.list(directory).await.len(), 20_000);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_listed_ahead_over_a_short_path() {
    let world = World::new(Duration::from_millis(1), tree(3, 3, 3)).await;
    for path in tree(3, 3, 3) {
        world.walk(&path).await;
    }
    sleep(RTT).await;
    assert_eq!(world.count(Call::List), 0);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_cannot_be_listed_does_not_hinder_lookups() {
    let world = World::new(RTT, one("d/file")).await;
    world.storage.faults().on(Call::List).fail(ErrorKind::PermissionDenied);
    sleep(10 * RTT).await;
    let directory = world.walk("d").await;
    assert!(world.lookup(directory, "file").await.is_some());
    assert_eq!(world.lookup(directory, "none").await, None);
}
