//! A toy server: a tree in memory. It trusts its clients, and all data are lost when it ends.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Buf, BufMut, Bytes};
use tokio::net::{TcpListener, TcpStream};

use super::wire::{self, MAX_FILE, MAX_FRAME, Op, Refusal, Time, get_bytes, get_time, put_bytes};

/// Serves an empty tree on loopback for as long as the runtime lives.
pub async fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let tree = Arc::new(Mutex::new(Tree::default()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&tree)));
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, tree: Arc<Mutex<Tree>>) {
    let mut parts = Vec::new();
    // An error ends the connection.
    drop(handle_requests(&mut stream, &tree, &mut parts).await);
    let mut tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
    parts.into_iter().for_each(|part| tree.discard(part));
}

/// `parts` are the contents created on this connection; those without a name are discarded with it.
async fn handle_requests(
    stream: &mut TcpStream,
    tree: &Mutex<Tree>,
    parts: &mut Vec<u64>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let request = wire::receive(stream).await?;
        let mut response = vec![0];
        let outcome = {
            let mut tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
            tree.handle(request, parts, &mut response)
        };
        if let Err(refusal) = outcome {
            response = vec![refusal as u8];
        }
        wire::send(stream, &response[..]).await?;
    }
}

type Outcome<T = ()> = Result<T, Refusal>;

struct Node {
    /// The id of a file's content; `None` for a directory.
    content: Option<u64>,
    modified: Time,
}

struct Content {
    bytes: Vec<u8>,
    /// Whether it has a name; otherwise it is a part.
    named: bool,
}

#[derive(Default)]
struct Tree {
    /// All entries except the root.
    nodes: BTreeMap<Bytes, Node>,
    contents: HashMap<u64, Content>,
    last: u64,
}

impl Tree {
    fn handle(&mut self, mut request: Bytes, parts: &mut Vec<u64>, out: &mut Vec<u8>) -> Outcome {
        let op = request.try_get_u8()?;
        let is = |known: Op| op == known as u8;
        let path = get_bytes(&mut request)?;
        match op {
            _ if is(Op::Stat) => self.describe(&path, out),
            _ if is(Op::List) => self.list(&path, out),
            _ if is(Op::MakeDir) => {
                self.check_free(&path)?;
                self.nodes.insert(path, Node { content: None, modified: now() });
                Ok(())
            }
            _ if is(Op::Remove) => self.remove(&path),
            _ if is(Op::Rename) => self.rename(&path, &get_bytes(&mut request)?),
            _ if is(Op::SetTime) => {
                let node = self.nodes.get_mut(&path).ok_or(Refusal::NotFound)?;
                node.modified = given_time(&mut request)?.unwrap_or(node.modified);
                Ok(())
            }
            _ if is(Op::Open) => {
                self.content(&path)?;
                self.describe(&path, out)
            }
            _ if is(Op::Get) => self.get(&path, request.try_get_u64()?, out),
            _ if is(Op::Create) => {
                self.check_parent(&path)?;
                parts.push(self.add(Vec::new()));
                out.put_u64(self.last);
                Ok(())
            }
            _ if is(Op::Read) => self.read(request, out),
            _ if is(Op::Write) => self.write(request),
            _ if is(Op::Discard) => {
                self.discard(request.try_get_u64()?);
                Ok(())
            }
            _ if is(Op::Commit) => {
                let (id, size) = (request.try_get_u64()?, request.try_get_u64()?);
                let (replace, modified) = appearance(&mut request)?;
                self.commit(path, id, size, replace, modified)
            }
            _ if is(Op::Put) => {
                let (replace, modified) = appearance(&mut request)?;
                let id = self.add(request.to_vec());
                let outcome = self.commit(path, id, request.len() as u64, replace, modified);
                self.discard(id);
                outcome
            }
            _ => Err(Refusal::Malformed),
        }
    }

    fn read(&self, mut request: Bytes, out: &mut Vec<u8>) -> Outcome {
        let content = self.contents.get(&request.try_get_u64()?).ok_or(Refusal::Gone)?;
        let (start, length) = (request.try_get_u64()?, request.try_get_u64()?);
        let end = start.saturating_add(length.min(MAX_FRAME as u64 / 2));
        let size = content.bytes.len() as u64;
        out.put_slice(&content.bytes[start.min(size) as usize..end.min(size) as usize]);
        Ok(())
    }

    fn write(&mut self, mut request: Bytes) -> Outcome {
        let content = self.contents.get_mut(&request.try_get_u64()?);
        let part = content.filter(|content| !content.named).ok_or(Refusal::Gone)?;
        let start = request.try_get_u64()?;
        let end = start.saturating_add(request.len() as u64);
        if end > MAX_FILE {
            return Err(Refusal::NoSpace);
        }
        let (start, end) = (start as usize, end as usize);
        part.bytes.resize(part.bytes.len().max(end), 0);
        part.bytes[start..end].copy_from_slice(&request);
        Ok(())
    }

    fn add(&mut self, bytes: Vec<u8>) -> u64 {
        self.last += 1;
        self.contents.insert(self.last, Content { bytes, named: false });
        self.last
    }

    /// Removes a part; content with a name stays.
    fn discard(&mut self, id: u64) {
        if self.contents.get(&id).is_some_and(|content| !content.named) {
            self.contents.remove(&id);
        }
    }

    fn commit(
        &mut self,
        path: Bytes,
        id: u64,
        size: u64,
        replace: bool,
        modified: Option<Time>,
    ) -> Outcome {
        match self.nodes.get(&path) {
            Some(Node { content: Some(_), .. }) if replace => self.check_parent(&path)?,
            _ => self.check_free(&path)?,
        }
        if size > MAX_FILE {
            return Err(Refusal::NoSpace);
        }
        let part = self.contents.get_mut(&id).filter(|content| !content.named);
        let part = part.ok_or(Refusal::Gone)?;
        part.bytes.resize(size as usize, 0);
        part.named = true;
        let node = Node { content: Some(id), modified: modified.unwrap_or_else(now) };
        if let Some(Node { content: Some(old), .. }) = self.nodes.insert(path, node) {
            self.contents.remove(&old);
        }
        Ok(())
    }

    fn describe(&self, path: &[u8], out: &mut Vec<u8>) -> Outcome {
        let root = Node { content: None, modified: Time::default() };
        let node = if path.is_empty() { Some(&root) } else { self.nodes.get(path) };
        let node = node.ok_or(Refusal::NotFound)?;
        // Ids of contents start at 1.
        out.put_u64(node.content.unwrap_or(0));
        let content = node.content.and_then(|id| self.contents.get(&id));
        out.put_u64(content.map_or(0, |content| content.bytes.len() as u64));
        let (seconds, nanos) = node.modified;
        out.put_i64(seconds);
        out.put_u32(nanos);
        Ok(())
    }

    fn list(&self, path: &[u8], out: &mut Vec<u8>) -> Outcome {
        self.check_dir(path)?;
        for (below, _) in self.below(path) {
            if parent(below) == path {
                let slash = usize::from(!path.is_empty());
                put_bytes(out, &below[path.len() + slash..]);
                self.describe(below, out)?;
            }
        }
        Ok(())
    }

    /// Everything below a directory, at any depth.
    fn below(&self, path: &[u8]) -> impl Iterator<Item = (&Bytes, &Node)> {
        let start = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        let from = self.nodes.range(Bytes::copy_from_slice(&start)..);
        from.take_while(move |(below, _)| below.starts_with(&start))
    }

    fn get(&self, path: &[u8], limit: u64, out: &mut Vec<u8>) -> Outcome {
        let content = self.content(path)?;
        if content.bytes.len() as u64 > limit.min(MAX_FRAME as u64 / 2) {
            return Err(Refusal::Gone);
        }
        self.describe(path, out)?;
        out.put_slice(&content.bytes);
        Ok(())
    }

    /// The content of a file.
    fn content(&self, path: &[u8]) -> Outcome<&Content> {
        let id = match self.nodes.get(path) {
            Some(node) => node.content,
            None if path.is_empty() => None,
            None => return Err(Refusal::NotFound),
        };
        let content = id.and_then(|id| self.contents.get(&id));
        content.ok_or(Refusal::IsDirectory)
    }

    fn remove(&mut self, path: &[u8]) -> Outcome {
        if self.below(path).next().is_some() {
            return Err(Refusal::NotEmpty);
        }
        let node = self.nodes.remove(path).ok_or(Refusal::NotFound)?;
        self.contents.remove(&node.content.unwrap_or(0));
        Ok(())
    }

    fn rename(&mut self, from: &Bytes, to: &Bytes) -> Outcome {
        let source = self.nodes.get(from).ok_or(Refusal::NotFound)?;
        self.check_parent(to)?;
        if from == to {
            return Ok(());
        }
        if to.starts_with(&[from, &b"/"[..]].concat()) {
            return Err(Refusal::Invalid);
        }
        match (source.content, self.nodes.get(to).map(|node| node.content)) {
            (_, None) => {}
            (Some(_), Some(Some(_))) => self.remove(to)?,
            _ => self.check_free(to)?,
        }
        let moved: Vec<Bytes> = self.below(from).map(|(path, _)| path.clone()).collect();
        for old in moved.into_iter().chain([from.clone()]) {
            let new = [to, &old[from.len()..]].concat();
            if let Some(node) = self.nodes.remove(&old) {
                self.nodes.insert(new.into(), node);
            }
        }
        Ok(())
    }

    fn check_dir(&self, path: &[u8]) -> Outcome {
        match self.nodes.get(path) {
            None if !path.is_empty() => Err(Refusal::NotFound),
            Some(Node { content: Some(_), .. }) => Err(Refusal::NotDirectory),
            _ => Ok(()),
        }
    }

    fn check_parent(&self, path: &[u8]) -> Outcome {
        self.check_dir(parent(path))
    }

    fn check_free(&self, path: &[u8]) -> Outcome {
        if path.is_empty() || self.nodes.contains_key(path) {
            return Err(Refusal::Exists);
        }
        self.check_parent(path)
    }
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// Commit options: whether the file may replace another, and its time.
fn appearance(from: &mut Bytes) -> Outcome<(bool, Option<Time>)> {
    Ok((from.try_get_u64()? != 0, given_time(from)?))
}

fn given_time(from: &mut Bytes) -> Outcome<Option<Time>> {
    let is_given = from.try_get_u8()? != 0;
    let time = get_time(from)?;
    Ok(is_given.then_some(time))
}

fn now() -> Time {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since_1970.as_secs() as i64, since_1970.subsec_nanos())
}
