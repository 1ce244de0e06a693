//! An SFTP server with quirks behind a real sshd. Its files are those of the machine; each [`Quirk`]
//! is one deviation.
//!
//! ```text
//! program → sshd → script (the subsystem) → TCP on the loopback → a thread here for each session
//! ```

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use haul_sftp::codec::{
    Attrs, Deframer, Extended, Extensions, Handle, Limits, Name, OpenFlags, Request, Response,
    Status, name,
};
use haul_storage::Block;

use super::SftpSession;
use super::sshd::Sshd;
use crate::session::Session;

/// How a server deviates from a correct one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Quirk {
    /// READ returns at most this many bytes.
    ShortReads(usize),
    /// Requests that arrive together get their responses in reverse order.
    Backwards,
    /// Responses to READ and WRITE have IDs of requests that were not sent.
    WrongIds,
    /// READ returns a byte more than it has read from the file.
    TooMuch,
    /// READ returns no bytes at all.
    Nothing,
    /// The response to READ claims to be 1 GiB long.
    Oversized,
    /// Every session ends in the middle of a response to READ: of those with data, the one with this number (from 1).
    EndsWithin(usize),
    /// Every handle of a file becomes invalid after this many requests on it.
    Forgets(usize),
    /// Greets with this version.
    Version(u32),
    /// Sends this before it greets.
    Preamble(&'static [u8]),
    /// Ends without a greeting.
    Silent,
    /// Lists this name in every directory.
    Lists(&'static [u8]),
    /// Lists a symbolic link `gone` in every directory. READLINK reports that there is no such file.
    ListsGoneLink,
    /// Announces a limit of bytes in one READ or WRITE, and enforces it.
    Limits(usize),
    /// WRITE fails once more than this many bytes were sent for all files together; removed files still count.
    Quota(u64),
    /// WRITE has to begin where the last one ended, or at first at the end of the file; others are refused with this
    /// status.
    InOrder(Status),
    /// WRITE appends its bytes, whatever their offset.
    Appends,
    /// Only one handle of a file can be open at a time.
    OneHandleAFile,
    /// A session can have only one file or directory open at a time.
    OneHandleASession,
    /// CLOSE of a file that was written fails.
    FailsToClose,
    /// The server supports a rename that replaces.
    Replaces,
    /// The server announces a rename that replaces, but does not support it.
    AnnouncesReplacing,
    /// RENAME of a name with this ending is refused, whether the new name exists or not.
    KeepsName(&'static str),
    /// REMOVE of a name with this ending is refused.
    KeepsFile(&'static str),
    /// The first RENAME of a name with this ending is done, and the session ends without a response.
    EndsAfterRename(&'static str),
    /// FSTAT does not wait for the WRITE before it: after a WRITE of a single byte, it returns the length from before
    /// that WRITE.
    LooksEarly,
    /// A file whose length is set is emptied first.
    EmptiesToSetLength,
    /// Setting attributes is refused with this status.
    NoAttributes(Status),
    /// Times cannot be set, modes can.
    NoTimes,
    /// Setting times is reported as done, but has no effect.
    IgnoresTimes,
    /// A directory is listed in one packet.
    ListsAtOnce,
    /// REALPATH is refused.
    NoRealpath(Status),
    /// The server announces COPY-DATA, and refuses it.
    NoCopies(Status),
    /// MKDIR of an existing directory succeeds.
    MakesAgain,
}

use Quirk as Q;

impl Quirk {
    fn keeps(&self, name: &[u8]) -> bool {
        matches!(self, Self::KeepsFile(end) if name.ends_with(end.as_bytes()))
    }
}

/// A server with `quirks`, and a session whose directory `far` it serves. The session's file `relay.sessions`, beside
/// `far`, gets a line for each SFTP session.
pub(super) fn with_quirks(quirks: &[Quirk]) -> SftpSession {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Arc::new(Server {
        quirks: quirks.to_vec(),
        open: Mutex::default(),
        written: Mutex::default(),
        ended: AtomicBool::new(false),
    });
    // The thread ends with the process: sessions may come as long as the sshd runs.
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let server = Arc::clone(&server);
            std::thread::spawn(move || server.serve(stream));
        }
    });
    let session = Session::new().directory("far");
    // The background job reads from a copy of standard input, since it has none of its own. When either
    // direction ends, both do.
    let script = format!(
        "#!/bin/bash\necho session >> $0.sessions\n\
         exec 3<>/dev/tcp/127.0.0.1/{port} 4<&0\n(cat <&4 >&3; kill $$) &\nexec cat <&3\n"
    );
    session.write("relay", script);
    fs::set_permissions(session.path("relay"), fs::Permissions::from_mode(0o755)).unwrap();
    let line = format!("Subsystem sftp {}", session.path("relay").display());
    SftpSession { session, sshd: Sshd::builder().line(&line).start(), proxy: None }
}

#[derive(Debug)]
struct Server {
    quirks: Vec<Quirk>,
    /// The number of open handles of each file.
    open: Mutex<HashMap<PathBuf, usize>>,
    written: Mutex<u64>,
    ended: AtomicBool,
}

/// The state of one session.
struct Serving<'a> {
    server: &'a Server,
    stream: TcpStream,
    handles: HashMap<Handle, Open>,
    opened: u64,
    reads: usize,
    /// An outdated length, which the next FSTAT returns.
    early: Option<u64>,
}

enum Open {
    File { file: File, path: PathBuf, end: u64, used: usize, written: bool },
    Directory { names: Vec<Name> },
}

impl Server {
    fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    fn quirk<T>(&self, which: impl Fn(Quirk) -> Option<T>) -> Option<T> {
        self.quirks.iter().find_map(|quirk| which(*quirk))
    }

    fn refuses_paths(&self) -> Option<Status> {
        self.quirk(|quirk| match quirk {
            Q::NoRealpath(refusal) => Some(refusal),
            _ => None,
        })
    }

    fn refuses_copies(&self) -> Option<Status> {
        self.quirk(|quirk| match quirk {
            Q::NoCopies(refusal) => Some(refusal),
            _ => None,
        })
    }

    fn serve(&self, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut serving = Serving {
            server: self,
            stream,
            handles: HashMap::new(),
            opened: 0,
            reads: 0,
            early: None,
        };
        // Errors are ignored: either side may end the session.
        drop(serving.run());
        let handles = std::mem::take(&mut serving.handles);
        handles.into_values().for_each(|open| self.forget(&open));
    }

    fn forget(&self, open: &Open) {
        if let Open::File { path, .. } = open {
            *self.open.lock().unwrap().get_mut(path).unwrap() -= 1;
        }
    }
}

fn ended() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

fn status(status: Status) -> Response {
    Response::Status { status, message: Bytes::from(status.to_string()) }
}

fn path(bytes: &Bytes) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn attrs(metadata: &fs::Metadata) -> Attrs {
    let time = |seconds: i64| u32::try_from(seconds).unwrap();
    Attrs {
        size: Some(metadata.len()),
        owner: Some((metadata.uid(), metadata.gid())),
        permissions: Some(metadata.mode()),
        times: Some((time(metadata.atime()), time(metadata.mtime()))),
        extended: Vec::new(),
    }
}

impl Serving<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut deframer = Deframer::new(1 << 20);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = self.stream.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            deframer.push(Bytes::copy_from_slice(&buffer[..length]));
            let mut responses = Vec::new();
            while let Some(frame) = deframer.next_frame().map_err(io::Error::other)? {
                let (id, request) = Request::decode(frame).map_err(io::Error::other)?;
                let payload = matches!(request, Request::Read { .. } | Request::Write { .. });
                let response = match self.respond(request) {
                    Ok(response) => response,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                        return Err(error);
                    }
                    Err(error) => status(match error.kind() {
                        io::ErrorKind::NotFound => Status::NoSuchFile,
                        io::ErrorKind::PermissionDenied => Status::PermissionDenied,
                        io::ErrorKind::Unsupported => Status::Unsupported,
                        _ => Status::Failure,
                    }),
                };
                let id = if payload && self.server.has(Q::WrongIds) { id ^ (1 << 20) } else { id };
                responses.push((id, response));
            }
            let greets = matches!(responses.first(), Some((_, Response::Version { .. })));
            if self.server.has(Q::Backwards) && !greets {
                responses.reverse();
            }
            for (id, response) in responses {
                self.send(id, &response)?;
            }
        }
    }

    fn send(&mut self, id: u32, response: &Response) -> io::Result<()> {
        let mut packet = response.encode(id).to_vec();
        let payload = response.payload().cloned().unwrap_or_default();
        payload.pieces().iter().for_each(|piece| packet.extend_from_slice(piece));
        if matches!(response, Response::Data(_)) {
            self.reads += 1;
            if self.server.has(Q::Oversized) {
                packet[..4].copy_from_slice(&(1_u32 << 30).to_be_bytes());
            }
            if self.server.has(Q::EndsWithin(self.reads)) {
                self.stream.write_all(&packet[..packet.len() / 2])?;
                return Err(ended());
            }
        }
        self.stream.write_all(&packet)
    }

    fn respond(&mut self, request: Request) -> io::Result<Response> {
        let ok = Ok(status(Status::Ok));
        match request {
            Request::Init { .. } => self.greet(),
            Request::Open { path, flags, attrs } => self.open(&path, flags, &attrs),
            Request::Close(handle) => self.close(&handle),
            Request::Read { handle, offset, length } => self.read(&handle, offset, length as usize),
            Request::Write { handle, offset, data } => {
                if self.server.has(Q::LooksEarly) && data.len() == 1 {
                    self.early = Some(self.file(&handle)?.0.metadata()?.len());
                }
                self.write(&handle, offset, data)
            }
            Request::Lstat(of) => Ok(Response::Attrs(attrs(&fs::symlink_metadata(path(&of))?))),
            Request::Stat(of) => Ok(Response::Attrs(attrs(&fs::metadata(path(&of))?))),
            Request::Fstat(handle) => {
                let (file, _) = self.file(&handle)?;
                let mut attrs = attrs(&file.metadata()?);
                attrs.size = self.early.take().or(attrs.size);
                Ok(Response::Attrs(attrs))
            }
            Request::Setstat(of, attrs) => {
                let file = File::open(path(&of))?;
                self.set(&file, &attrs)
            }
            Request::Fsetstat(handle, attrs) => {
                let file = self.file(&handle)?.0.try_clone()?;
                self.set(&file, &attrs)
            }
            Request::Opendir(of) => self.open_directory(&of),
            Request::Readdir(handle) => match self.handles.get_mut(&handle) {
                Some(Open::Directory { names }) if names.is_empty() => Ok(status(Status::Eof)),
                Some(Open::Directory { names }) => {
                    let most = if self.server.has(Q::ListsAtOnce) { names.len() } else { 50 };
                    let some = names.drain(..names.len().min(most)).collect();
                    Ok(Response::Names(some))
                }
                _ => Err(io::ErrorKind::InvalidInput.into()),
            },
            Request::Remove(of) if self.server.quirks.iter().any(|quirk| quirk.keeps(&of)) => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            Request::Remove(of) => fs::remove_file(path(&of)).and(ok),
            Request::Mkdir(of, _) if self.server.has(Q::MakesAgain) && path(&of).is_dir() => ok,
            Request::Mkdir(of, _) => fs::create_dir(path(&of)).and(ok),
            Request::Rmdir(of) => fs::remove_dir(path(&of)).and(ok),
            Request::Rename { to, .. } if path(&to).exists() => Ok(status(Status::Failure)),
            Request::Rename { from, to } => self.rename(&from, &to),
            Request::Realpath(_) if self.server.refuses_paths().is_some() => {
                Ok(status(self.server.refuses_paths().unwrap()))
            }
            Request::Extended(Extended::CopyData { .. }) => {
                let refusal = self.server.refuses_copies().unwrap_or(Status::Unsupported);
                Ok(status(refusal))
            }
            Request::Realpath(of) => {
                let name = if of.starts_with(b"/") { of } else { Bytes::from_static(b"/") };
                let attrs = Attrs::default();
                Ok(Response::Names(vec![Name { long: name.clone(), name, attrs }]))
            }
            Request::Extended(Extended::Limits) => self.limits(),
            Request::Extended(Extended::PosixRename { from, to })
                if self.server.has(Q::Replaces) =>
            {
                fs::rename(path(&from), path(&to)).and(ok)
            }
            Request::Readlink(_) if self.server.has(Q::ListsGoneLink) => {
                Ok(status(Status::NoSuchFile))
            }
            Request::Readlink(_) | Request::Symlink { .. } | Request::Extended(_) => {
                Ok(status(Status::Unsupported))
            }
        }
    }

    fn close(&mut self, handle: &Handle) -> io::Result<Response> {
        let open = self.handles.remove(handle).ok_or(io::ErrorKind::InvalidInput)?;
        self.server.forget(&open);
        match open {
            Open::File { written: true, .. } if self.server.has(Q::FailsToClose) => {
                Ok(status(Status::Failure))
            }
            _ => Ok(status(Status::Ok)),
        }
    }

    fn limits(&self) -> io::Result<Response> {
        let limit = self.server.quirk(|quirk| match quirk {
            Q::Limits(bytes) => Some(bytes as u64),
            _ => None,
        });
        let bytes = limit.ok_or(io::ErrorKind::Unsupported)?;
        let limits = Limits { packet: bytes + 1024, read: bytes, write: bytes, handles: 0 };
        Ok(Response::Extended(limits.encode()))
    }

    fn greet(&mut self) -> io::Result<Response> {
        if self.server.has(Q::Silent) {
            return Err(ended());
        }
        let words = self.server.quirk(|quirk| match quirk {
            Q::Preamble(words) => Some(words),
            _ => None,
        });
        self.stream.write_all(words.unwrap_or_default())?;
        let version = self.server.quirk(|quirk| match quirk {
            Q::Version(version) => Some(version),
            _ => None,
        });
        let limited = self.server.quirks.iter().any(|quirk| matches!(quirk, Q::Limits(_)));
        let one = || (Bytes::from_static(name::LIMITS), Bytes::from_static(b"1"));
        let replaces = self.server.has(Q::Replaces) || self.server.has(Q::AnnouncesReplacing);
        let two = || (Bytes::from_static(name::POSIX_RENAME), Bytes::from_static(b"1"));
        let copies = self.server.refuses_copies().is_some();
        let three = || (Bytes::from_static(name::COPY_DATA), Bytes::from_static(b"1"));
        let known = limited.then(one).into_iter();
        let known = known.chain(replaces.then(two)).chain(copies.then(three));
        let extensions = Extensions(known.collect());
        Ok(Response::Version { version: version.unwrap_or(3), extensions })
    }

    fn rename(&self, from: &Bytes, to: &Bytes) -> io::Result<Response> {
        for quirk in &self.server.quirks {
            match quirk {
                Q::KeepsName(end) if from.ends_with(end.as_bytes()) => {
                    return Ok(status(Status::PermissionDenied));
                }
                Q::EndsAfterRename(end)
                    if from.ends_with(end.as_bytes())
                        && !self.server.ended.swap(true, Ordering::Relaxed) =>
                {
                    fs::rename(path(from), path(to))?;
                    return Err(ended());
                }
                _ => {}
            }
        }
        fs::rename(path(from), path(to))?;
        Ok(status(Status::Ok))
    }

    fn may_open(&self) -> io::Result<()> {
        if self.server.has(Q::OneHandleASession) && !self.handles.is_empty() {
            return Err(io::Error::other("one at a time"));
        }
        Ok(())
    }

    fn open(&mut self, of: &Bytes, flags: OpenFlags, attrs: &Attrs) -> io::Result<Response> {
        self.may_open()?;
        let path = path(of).to_owned();
        let mut open = self.server.open.lock().unwrap();
        let already = open.entry(path.clone()).or_default();
        if self.server.has(Q::OneHandleAFile) && *already > 0 {
            return Err(io::Error::other("one at a time"));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(flags.has(OpenFlags::WRITE));
        options.create(flags.has(OpenFlags::CREATE)).truncate(flags.has(OpenFlags::TRUNCATE));
        options.create_new(flags.has(OpenFlags::EXCLUSIVE));
        let file = options.open(&path)?;
        if let (true, Some(mode)) = (flags.has(OpenFlags::CREATE), attrs.permissions) {
            file.set_permissions(fs::Permissions::from_mode(mode & 0o777))?;
        }
        *already += 1;
        drop(open);
        let end = if flags.has(OpenFlags::WRITE) { file.metadata()?.len() } else { 0 };
        Ok(self.hand_out(Open::File { file, path, end, used: 0, written: false }))
    }

    fn open_directory(&mut self, of: &Bytes) -> io::Result<Response> {
        self.may_open()?;
        let mut names = Vec::new();
        for entry in fs::read_dir(path(of))? {
            let entry = entry?;
            let name = Bytes::copy_from_slice(entry.file_name().as_bytes());
            names.push(Name { long: name.clone(), name, attrs: attrs(&entry.metadata()?) });
        }
        let lie = self.server.quirk(|quirk| match quirk {
            Q::Lists(name) => Some(Bytes::from_static(name)),
            _ => None,
        });
        let file = Attrs { size: Some(5), permissions: Some(0o100_644), ..Attrs::default() };
        names.extend(lie.map(|name| Name { long: name.clone(), name, attrs: file }));
        if self.server.has(Q::ListsGoneLink) {
            let name = Bytes::from_static(b"gone");
            let link = Attrs { permissions: Some(0o120_777), ..Attrs::default() };
            names.push(Name { long: name.clone(), name, attrs: link });
        }
        Ok(self.hand_out(Open::Directory { names }))
    }

    fn hand_out(&mut self, open: Open) -> Response {
        self.opened += 1;
        let handle = Bytes::copy_from_slice(&self.opened.to_be_bytes());
        self.handles.insert(handle.clone(), open);
        Response::Handle(handle)
    }

    /// An open file, and where the last WRITE ended.
    fn file(&mut self, handle: &Handle) -> io::Result<(&File, &mut u64)> {
        let most = self.server.quirk(|quirk| match quirk {
            Q::Forgets(most) => Some(most),
            _ => None,
        });
        match self.handles.get_mut(handle) {
            Some(Open::File { file, end, used, .. }) => {
                *used += 1;
                if most.is_some_and(|most| *used > most) {
                    return Err(io::Error::other("what handle?"));
                }
                Ok((file, end))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn read(&mut self, handle: &Handle, offset: u64, length: usize) -> io::Result<Response> {
        let most = self.server.quirk(|quirk| match quirk {
            Q::ShortReads(most) | Q::Limits(most) => Some(most),
            _ => None,
        });
        let more = usize::from(self.server.has(Q::TooMuch));
        let nothing = self.server.has(Q::Nothing);
        let (file, _) = self.file(handle)?;
        let mut bytes = vec![0; length.min(most.unwrap_or(256 << 10))];
        let read = file.read_at(&mut bytes, offset)?;
        if read == 0 {
            return Ok(status(Status::Eof));
        }
        bytes.truncate(if nothing { 0 } else { read });
        bytes.resize(bytes.len() + more, 0);
        Ok(Response::Data(Block::from(Bytes::from(bytes))))
    }

    fn write(&mut self, handle: &Handle, offset: u64, data: Block) -> io::Result<Response> {
        for quirk in &self.server.quirks {
            match quirk {
                Q::Limits(most) if data.len() > *most => return Err(ended()),
                Q::Quota(most) => {
                    let mut written = self.server.written.lock().unwrap();
                    *written += data.len() as u64;
                    if *written > *most {
                        return Ok(status(Status::Failure));
                    }
                }
                _ => {}
            }
        }
        let refusal = self.server.quirk(|quirk| match quirk {
            Q::InOrder(refusal) => Some(refusal),
            _ => None,
        });
        let appends = self.server.has(Q::Appends);
        let (file, end) = self.file(handle)?;
        if let Some(refusal) = refusal.filter(|_| *end != offset) {
            return Ok(status(refusal));
        }
        let offset = if appends { *end } else { offset };
        *end = offset + data.len() as u64;
        file.write_all_at(&data.into_bytes(), offset)?;
        if let Some(Open::File { written, .. }) = self.handles.get_mut(handle) {
            *written = true;
        }
        Ok(status(Status::Ok))
    }

    fn set(&self, file: &File, attrs: &Attrs) -> io::Result<Response> {
        let refusal = self.server.quirk(|quirk| match quirk {
            Q::NoAttributes(refusal) => Some(refusal),
            Q::NoTimes => attrs.times.map(|_| Status::PermissionDenied),
            _ => None,
        });
        if let Some(refusal) = refusal {
            return Ok(status(refusal));
        }
        if let Some(size) = attrs.size {
            if self.server.has(Q::EmptiesToSetLength) {
                file.set_len(0)?;
            }
            file.set_len(size)?;
        }
        if let Some(mode) = attrs.permissions {
            file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some((_, modified)) = attrs.times
            && !self.server.has(Q::IgnoresTimes)
        {
            file.set_modified(UNIX_EPOCH + Duration::from_secs(modified.into()))?;
        }
        Ok(status(Status::Ok))
    }
}
