//! A server whose responses are scripted by a test, and which records the requests.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// How long to wait for a body that is sent without waiting for 100 Continue. Clients that send `Expect` wait longer.
const EARLY_BODY_WAIT: Duration = Duration::from_millis(500);

/// A request that was received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    /// The part of the body that was read.
    pub(crate) body: Vec<u8>,
    /// Bytes of the body arrived before 100 Continue was sent.
    pub(crate) early_body: bool,
    /// The client's port.
    pub(crate) from: u16,
}

impl Request {
    pub(crate) fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.path == path
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value)
    }
}

/// The reaction to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Reads the whole body, then sends this response.
    Respond(u16, Vec<(&'static str, String)>, String),
    /// Reads this much of the body, sends this status, and closes the connection.
    Refuse(u16, usize),
    /// Waits to see whether the body arrives by itself. With `continues`, sends 100 Continue, reads the whole body, and
    /// sends this status; otherwise sends this status at once, and closes the connection.
    Wait { continues: bool, status: u16 },
    /// Reads this much of the body, then closes the connection.
    Close(usize),
    /// Reads the whole body, then sends a head whose body never begins.
    Endless(u16, Vec<(&'static str, String)>),
    /// Never responds.
    Silent,
    /// Loses the request: never responds to it, and serves the next one.
    Lost,
    /// As `Respond`, and discards what was received behind the request.
    RespondAndDrop(u16, Vec<(&'static str, String)>, String),
    /// Never responds, reads nothing of the body, and does not record the request.
    Unread,
    /// Sends a body that is shorter than its length.
    Cut(u16, String),
    /// Sends this much of the body, and no more.
    Stall(u16, Vec<(&'static str, String)>, String, usize),
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Respond(status, Vec::new(), String::new())
    }

    /// A listing of hrefs. Entries with a size are files, others directories.
    pub(crate) fn listing(entries: &[(&str, Option<u64>)]) -> Self {
        Self::Respond(207, Vec::new(), multistatus(entries))
    }
}

pub(crate) fn multistatus(entries: &[(&str, Option<u64>)]) -> String {
    let mut text = "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">".to_owned();
    for (href, size) in entries {
        let kind = match size {
            Some(size) => {
                format!("<D:resourcetype/><D:getcontentlength>{size}</D:getcontentlength>")
            }
            None => "<D:resourcetype><D:collection/></D:resourcetype>".to_owned(),
        };
        write!(
            text,
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop>{kind}</D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
        .unwrap();
    }
    text + "</D:multistatus>"
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server on a port of its own, which runs until the test ends.
pub(crate) struct Scripted {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    /// Starts a server. `script` decides on each request by its head.
    pub(crate) async fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/dav/", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, all): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                tokio::spawn(serve(stream, from.port(), Arc::clone(&script), Arc::clone(&all)));
            }
        });
        Self { url, requests }
    }

    /// All recorded requests of a method.
    pub(crate) fn requests(&self, method: &str) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.method == method).cloned().collect()
    }
}

/// Serves a connection until either side closes it. Always returns `None`, so that `?` can end it.
async fn serve(
    stream: TcpStream,
    from: u16,
    script: Arc<Script>,
    all: Arc<Mutex<Vec<Request>>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut request = head(&mut stream).await?;
        request.from = from;
        let reply = script(&request);
        if matches!(reply, Reply::Unread) {
            std::future::pending::<()>().await;
        }
        let most = match reply {
            Reply::Refuse(_, most) | Reply::Close(most) => most,
            Reply::Wait { continues: false, .. } => 0,
            _ => usize::MAX,
        };
        if let Reply::Wait { continues, .. } = reply {
            request.early_body = timeout(EARLY_BODY_WAIT, stream.fill_buf()).await.is_ok();
            if continues {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
            }
        }
        body(&mut stream, &mut request, most).await;
        let is_head = request.method == "HEAD";
        all.lock().unwrap().push(request);
        let (status, headers, body, more) = match reply {
            Reply::Respond(status, headers, body) => (status, headers, body, 0),
            Reply::RespondAndDrop(status, headers, body) => {
                let behind = stream.buffer().len();
                stream.consume(behind);
                (status, headers, body, 0)
            }
            Reply::Lost => continue,
            Reply::Refuse(status, _) | Reply::Wait { status, .. } => {
                (status, Vec::new(), String::new(), 0)
            }
            Reply::Cut(status, body) => (status, Vec::new(), body, 1000),
            Reply::Stall(status, headers, body, sent) => {
                let head = response_head(status, &length(body.len()), &headers);
                stream.write_all((head + &body[..sent]).as_bytes()).await.ok()?;
                // Until the client disconnects.
                drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await);
                return None;
            }
            Reply::Close(_) | Reply::Unread => return None,
            Reply::Silent => {
                // Until the client disconnects or sends more.
                drop(stream.fill_buf().await);
                return None;
            }
            Reply::Endless(status, headers) => {
                let head = response_head(status, "Transfer-Encoding: chunked", &headers);
                stream.write_all(head.as_bytes()).await.ok()?;
                // Until the client disconnects or sends more.
                drop(stream.fill_buf().await);
                return None;
            }
        };
        let mut text = response_head(status, &length(body.len() + more), &headers);
        if !is_head {
            text += &body;
        }
        stream.write_all(text.as_bytes()).await.ok()?;
        if more > 0 || most < usize::MAX {
            stream.flush().await.ok()?;
            // If the connection were closed at once, unread bytes of the request would make the kernel reset it.
            sleep(Duration::from_millis(300)).await;
            return None;
        }
    }
}

fn length(bytes: usize) -> String {
    format!("Content-Length: {bytes}")
}

/// The head of a response. `framing` is the header line that states how its body is framed.
fn response_head(status: u16, framing: &str, headers: &[(&str, String)]) -> String {
    let mut text = format!("HTTP/1.1 {status} X\r\n{framing}\r\n");
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    text + "\r\n"
}

async fn head(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut request = Request::default();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|length| *length > 0)?;
    let mut words = line.split(' ');
    request.method = words.next()?.to_owned();
    request.path = words.next()?.to_owned();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Some(request) };
        request.headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
}

async fn body(stream: &mut BufReader<TcpStream>, request: &mut Request, most: usize) -> Option<()> {
    if let Ok(length) = request.header("content-length").parse::<usize>() {
        request.body.resize(length.min(most), 0);
        stream.read_exact(&mut request.body).await.ok()?;
    }
    if request.header("transfer-encoding") == "chunked" {
        while request.body.len() < most {
            let mut line = String::new();
            stream.read_line(&mut line).await.ok()?;
            let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
            let mut chunk = vec![0; length + 2];
            stream.read_exact(&mut chunk).await.ok()?;
            request.body.extend_from_slice(&chunk[..length]);
            if length == 0 {
                break;
            }
        }
    }
    Some(())
}
