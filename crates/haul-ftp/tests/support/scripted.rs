//! An FTP server in this process that follows a script, conforming or not. Its files are in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The server's behaviour.
#[derive(Clone)]
pub struct Script {
    pub greeting: &'static str,
    pub features: &'static [&'static str],
    /// Added to every reply to SIZE.
    pub size_is_off_by: i64,
    /// Replies to these verbs or whole lines, instead of the usual ones. A text that ends with a dot stands for all
    /// lines that begin with it.
    pub replies: &'static [(&'static str, &'static str)],
    /// The address in replies to PASV.
    pub address: &'static str,
    /// The data of LIST and MLSD.
    pub listing: &'static [u8],
    /// The data of these command lines, instead of `listing`.
    pub listings: &'static [(&'static str, &'static [u8])],
    /// A directory in which LIST is refused.
    pub unlistable: &'static str,
    /// Whether a rename succeeds, by old name, new name, and whether the new name exists.
    pub renames: fn(&str, &str, bool) -> bool,
    /// RNFR is accepted for every name; RNTO is refused if there is no such file.
    pub accepts_any_rnfr: bool,
    /// What another client does before a command line: called with the line and all files.
    pub meanwhile: fn(&str, &mut HashMap<String, Vec<u8>>),
    /// Commands that arrive in one packet behind another one are lost.
    pub forgetful: bool,
    /// Nothing listens on the ports of EPSV.
    pub epsv_leads_nowhere: bool,
    /// After a reply from `replies` it sends another line at this interval, forever.
    pub drip: Duration,
    /// The reply before a download or listing, with its length in place of `{}`; none if empty.
    pub begins: &'static str,
    /// Connections beyond this many open ones get a 421.
    pub connections: usize,
    /// A download or listing ends after this many bytes, with this final reply.
    pub cut_download: Option<(usize, &'static str)>,
    /// The same for the first upload; with an empty reply the control connection ends, too.
    pub cut_upload: Option<(usize, &'static str)>,
    /// The control connection ends after this many commands.
    pub max_commands: usize,
    /// A verb at which it falls silent forever; with `RETR` in the middle of the data of a download or listing, with
    /// `STOR` before it reads any, with `226` after the data, with `accept` before it accepts the data connection, and
    /// with `greeting` from the beginning.
    pub silent_at: &'static str,
    /// It falls silent forever after its reply to this verb.
    pub silent_after: &'static str,
    /// The pause between pieces of a download.
    pub pause: Duration,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            greeting: "220 scripted\r\n",
            features: &["SIZE", "MDTM", "REST STREAM", "UTF8"],
            size_is_off_by: 0,
            replies: &[],
            address: "127,0,0,1",
            listing: b"",
            listings: &[],
            unlistable: "",
            renames: |_, _, _| true,
            accepts_any_rnfr: false,
            meanwhile: |_, _| {},
            forgetful: false,
            epsv_leads_nowhere: false,
            drip: Duration::ZERO,
            begins: "150 Here it comes.",
            connections: usize::MAX,
            cut_download: None,
            cut_upload: None,
            max_commands: usize::MAX,
            silent_at: "",
            silent_after: "",
            pause: Duration::ZERO,
        }
    }
}

/// A running server.
pub struct Scripted {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    script: Script,
    files: Mutex<HashMap<String, Vec<u8>>>,
    commands: Mutex<Vec<String>>,
    connections: AtomicUsize,
    uploads_cut: AtomicUsize,
    refused: AtomicUsize,
}

impl Scripted {
    pub async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            script,
            files: Mutex::default(),
            commands: Mutex::default(),
            connections: AtomicUsize::new(0),
            uploads_cut: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                tokio::spawn(async move {
                    let open = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                    // A client may disconnect at any time.
                    drop(Session::new(stream, &shared).run(open).await);
                    shared.connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, shared }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn put(&self, path: &str, content: &[u8]) {
        self.files().insert(path.to_owned(), content.to_vec());
    }

    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.files().get(path).cloned()
    }

    /// The paths of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.files().keys().cloned().collect();
        names.sort();
        names
    }

    /// How many connections were refused.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// All commands received, in order.
    pub fn commands(&self) -> Vec<String> {
        self.shared.commands.lock().unwrap().clone()
    }

    fn files(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.shared.files.lock().unwrap()
    }
}

/// The control connection of one client.
struct Session<'a> {
    control: BufReader<TcpStream>,
    shared: &'a Shared,
    passive: Option<TcpListener>,
    /// Connections that fill the queue of a port.
    queued: Vec<TcpStream>,
    offset: usize,
    from: String,
    directory: String,
}

impl<'a> Session<'a> {
    fn new(stream: TcpStream, shared: &'a Shared) -> Self {
        let control = BufReader::new(stream);
        let (from, directory) = (String::new(), "/".to_owned());
        Self { control, shared, passive: None, queued: Vec::new(), offset: 0, from, directory }
    }

    async fn run(&mut self, open: usize) -> std::io::Result<()> {
        if open > self.shared.script.connections {
            self.shared.refused.fetch_add(1, Ordering::SeqCst);
            return self.reply("421 There are too many connections from your address.").await;
        }
        if self.shared.script.silent_at == "greeting" {
            std::future::pending::<()>().await;
        }
        self.control.get_mut().write_all(self.shared.script.greeting.as_bytes()).await?;
        for _ in 0..self.shared.script.max_commands {
            let mut line = Vec::new();
            if self.control.read_until(b'\n', &mut line).await? == 0 {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            self.shared.commands.lock().unwrap().push(line.clone());
            (self.shared.script.meanwhile)(&line, &mut self.files());
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let is_silent = verb == self.shared.script.silent_at;
            if is_silent && !matches!(verb, "RETR" | "STOR") {
                std::future::pending::<()>().await;
            }
            if self.shared.script.forgetful {
                self.control.consume(self.control.buffer().len());
            }
            let replies = self.shared.script.replies;
            // The name of a part file contains an ID.
            let is_part = |of: &str| of.ends_with('.') && line.starts_with(of);
            let scripted_reply =
                replies.iter().find(|(of, _)| *of == verb || *of == line || is_part(of));
            match scripted_reply {
                Some((_, reply)) => {
                    self.reply(reply).await?;
                    while !self.shared.script.drip.is_zero() {
                        tokio::time::sleep(self.shared.script.drip).await;
                        self.reply(" and").await?;
                    }
                }
                None => self.respond(verb, argument).await?,
            }
            if verb == self.shared.script.silent_after {
                std::future::pending::<()>().await;
            }
        }
        self.reply("421 Timeout.").await
    }

    async fn reply(&mut self, line: &str) -> std::io::Result<()> {
        self.control.get_mut().write_all(format!("{line}\r\n").as_bytes()).await
    }

    fn files(&self) -> MutexGuard<'a, HashMap<String, Vec<u8>>> {
        self.shared.files.lock().unwrap()
    }

    async fn respond(&mut self, verb: &str, argument: &str) -> std::io::Result<()> {
        let script = &self.shared.script;
        let content = self.files().get(argument).cloned();
        match verb {
            "USER" => self.reply("331 Password?").await,
            "PASS" => self.reply("230 In.").await,
            "FEAT" => {
                let lines: Vec<_> = script.features.iter().map(|f| format!(" {f}\r\n")).collect();
                self.reply(&format!("211-Features:\r\n{}211 End", lines.concat())).await
            }
            "SYST" => self.reply("215 UNIX Type: L8").await,
            "PWD" => self.reply("257 \"/\"").await,
            "OPTS" | "TYPE" | "PBSZ" | "PROT" | "NOOP" => self.reply("200 Yes.").await,
            "AUTH" => self.reply("502 No TLS.").await,
            "SIZE" => match content {
                Some(content) => {
                    let size = content.len() as i64 + script.size_is_off_by;
                    self.reply(&format!("213 {size}")).await
                }
                None => self.reply("550 No size.").await,
            },
            "MDTM" => match content {
                Some(_) => self.reply("213 20240203101112").await,
                None => self.reply("550 No time.").await,
            },
            "CWD" if matches!(argument, "/" | "/up") || argument == script.unlistable => {
                argument.clone_into(&mut self.directory);
                self.reply("250 There.").await
            }
            "CWD" => self.reply("550 Not there.").await,
            "EPSV" => {
                let port = self.listen().await?;
                if script.epsv_leads_nowhere {
                    self.passive = None;
                }
                self.reply(&format!("229 Extended (|||{port}|)")).await
            }
            "PASV" => {
                let port = self.listen().await?;
                let (high, low) = (port / 256, port % 256);
                self.reply(&format!("227 Passive ({},{high},{low}).", script.address)).await
            }
            "REST" => {
                self.offset = argument.parse().unwrap();
                self.reply("350 From there.").await
            }
            "RETR" => self.send(content).await,
            "LIST" if self.directory == script.unlistable => {
                self.reply("550 Permission denied.").await
            }
            "LIST" | "MLSD" => {
                let line = format!("{verb} {argument}");
                let other = script.listings.iter().find(|(of, _)| *of == line.trim_end());
                let listing = other.map_or(script.listing, |(_, listing)| listing);
                self.send(Some(listing.to_vec())).await
            }
            "STOR" => self.receive(argument).await,
            "RNFR" => {
                self.from = argument.to_owned();
                let exists = content.is_some() || script.accepts_any_rnfr;
                self.reply(if exists { "350 And now?" } else { "550 What?" }).await
            }
            "RNTO" => self.rename(argument).await,
            "DELE" => {
                let removed = self.files().remove(argument).is_some();
                self.reply(if removed { "250 Gone." } else { "550 What?" }).await
            }
            _ => self.reply("500 What?").await,
        }
    }

    async fn rename(&mut self, to: &str) -> std::io::Result<()> {
        let (is_there, exists) = {
            let files = self.files();
            (files.contains_key(&self.from), files.contains_key(to))
        };
        if !is_there {
            return self.reply("503 Rename what?").await;
        }
        if !(self.shared.script.renames)(&self.from, to, exists) {
            return self.reply("553 Not that name.").await;
        }
        let moved = self.files().remove(&self.from);
        moved.map(|content| self.files().insert(to.to_owned(), content));
        self.reply("250 Renamed.").await
    }

    async fn listen(&mut self) -> std::io::Result<u16> {
        let listener = match self.shared.script.silent_at {
            "accept" => self.full().await?,
            _ => TcpListener::bind("127.0.0.1:0").await?,
        };
        let port = listener.local_addr()?.port();
        self.passive = Some(listener);
        Ok(port)
    }

    /// A port whose queue is full: the system accepts no further connection.
    async fn full(&mut self) -> std::io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.1:0".parse().unwrap())?;
        let listener = socket.listen(0)?;
        let address = listener.local_addr()?;
        let moment = Duration::from_millis(100);
        while let Ok(Ok(stream)) = tokio::time::timeout(moment, TcpStream::connect(address)).await {
            self.queued.push(stream);
        }
        Ok(listener)
    }

    async fn data(&mut self) -> std::io::Result<TcpStream> {
        match self.passive.take() {
            Some(listener) => Ok(listener.accept().await?.0),
            None => std::future::pending().await,
        }
    }

    async fn send(&mut self, content: Option<Vec<u8>>) -> std::io::Result<()> {
        let Some(content) = content else { return self.reply("550 No file.").await };
        let offset = std::mem::take(&mut self.offset).min(content.len());
        let mut data = self.data().await?;
        let begins = self.shared.script.begins.replace("{}", &content.len().to_string());
        if !begins.is_empty() {
            self.reply(&begins).await?;
        }
        let (rest, last) = match self.shared.script.cut_download {
            Some((most, last)) => (&content[offset..content.len().min(offset + most)], last),
            None => (&content[offset..], "226 That was all."),
        };
        let script = &self.shared.script;
        if script.silent_at == "RETR" {
            data.write_all(&rest[..rest.len() / 2]).await?;
            std::future::pending::<()>().await;
        }
        let mut sent = Ok(());
        for piece in rest.chunks(if script.pause.is_zero() { usize::MAX } else { 1000 }) {
            sent = sent.and(data.write_all(piece).await);
            tokio::time::sleep(script.pause).await;
        }
        drop(data);
        if script.silent_at == "226" {
            std::future::pending::<()>().await;
        }
        self.reply(if sent.is_ok() { last } else { "426 Gone." }).await
    }

    async fn receive(&mut self, path: &str) -> std::io::Result<()> {
        let offset = std::mem::take(&mut self.offset);
        let mut data = self.data().await?;
        self.reply("150 Go on.").await?;
        let mut content = self.files().get(path).cloned().unwrap_or_default();
        content.truncate(offset);
        if self.shared.script.silent_at == "STOR" {
            std::future::pending::<()>().await;
        }
        let cut = self.shared.script.cut_upload;
        let cut = cut.filter(|_| self.shared.uploads_cut.fetch_add(1, Ordering::SeqCst) == 0);
        match cut {
            None => drop(data.read_to_end(&mut content).await?),
            Some((most, last)) => {
                data.take(most as u64).read_to_end(&mut content).await?;
                self.files().insert(path.to_owned(), content);
                if last.is_empty() {
                    return Err(std::io::Error::other("gone"));
                }
                return self.reply(last).await;
            }
        }
        self.files().insert(path.to_owned(), content);
        if self.shared.script.silent_at == "226" {
            std::future::pending::<()>().await;
        }
        self.reply("226 Got it.").await
    }
}
