//! Sends requests: chooses the connection, and adds credentials, cookies and header fields.
//!
//! Small requests and those for parts of files are pipelined on shared connections. A request that may take long, that
//! must not be sent twice, or whose response may have to be followed (`following`), has a connection for itself.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_net::Prompter;
use haul_storage::{Block, Error, ErrorKind, Range, Result};
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING,
    USER_AGENT,
};
use http::{HeaderValue, Method, StatusCode};
use tokio::runtime::Handle;

use super::auth::Credentials;
use super::connect::Connector;
use super::continues::Continues;
use super::error;
use super::head::{Broken, Head};
use super::headers::Headers;
use super::jar::Jar;
use super::options::HttpOptions;
use super::order::{Marker, Order};
use super::page_cache::PageCache;
use super::pauses::Pauses;
use super::payload::Stream;
use super::pipe::Pipe;
use super::privacy::Privacy;
use super::proxy;
use super::queued::{SerializedMarker, serialize};
use super::request::Request;
use super::response::{Owner, Pending, Proof, Response};
use super::signing::SignIns;
use super::transport::Transport;
use super::walks::Walks;
use crate::parse::cookies::Cookie;
use crate::parse::{Origin, Url, WebScheme};

/// The `User-Agent`, unless the user sets one.
const AGENT: &str = concat!("haul/", env!("CARGO_PKG_VERSION"));

/// How often a pipelined request is sent again because its connection ended before the response began, or
/// before its [`Response::proof`].
pub const MAX_LOST: u32 = 8;

/// Bytes that a small response is assumed to have when a lane is chosen.
const SMALL: u64 = 16 << 10;

/// If this many requests in a row could not be pipelined (the server may close each connection after one response),
/// further ones are not pipelined either.
const ALONE_IN_A_ROW: u32 = 64;
/// Except for one in this many, as a test whether pipelining works again.
const PIPELINED_AGAIN: u32 = 32;

/// How long to wait for `100 Continue`, beyond two RTTs (curl waits 1 s in total).
const PATIENCE_WITH_EXPECT: Duration = Duration::from_secs(1);

/// Most files to remember as not available in ranges. A file that was forgotten costs one refused request.
const MAX_UNRANGED: usize = 4096;

/// The outcome of a pipelined request.
enum Pipelined {
    Response(Response),
    /// The connection ended: send it again.
    Lost,
    /// Send it again on a connection for itself.
    Alone,
}

/// Sends requests to a host and to servers that it redirects to.
#[derive(Debug)]
pub struct Exchange {
    connector: Arc<Connector>,
    transport: Arc<Transport>,
    pub(super) sign_ins: SignIns,
    headers: Headers,
    jar: Jar,
    privacy: Privacy,
    /// Sign-ins by redirect.
    pub(super) walks: Walks,
    pauses: Pauses,
    /// Files that a server sends as a whole, whatever range is requested.
    unranged: Mutex<HashSet<Url>>,
    /// Requests in a row that could not be pipelined.
    alone_in_a_row: AtomicU32,
    continues: Continues,
    /// Index pages of directories that were fetched and not listed yet.
    pub pages: PageCache,
}

impl Exchange {
    /// Opens no lane yet. `home` is the server in the location, and `user` the user name for it.
    pub fn new(
        home: Origin,
        user: Option<String>,
        options: &HttpOptions,
        prompter: Arc<dyn Prompter>,
        runtime: Handle,
    ) -> Arc<Self> {
        let given = options.headers.cookies().iter();
        let given = given.map(|(name, value)| Cookie::given(name, value, &home));
        let cookies = options.cookies.iter().cloned().chain(given).collect();
        let connector = Arc::new(Connector::new(options));
        Arc::new(Self {
            transport: Transport::new(Arc::clone(&connector), runtime),
            connector,
            privacy: Privacy::new(&home, options),
            sign_ins: SignIns::new(home, user, options, prompter),
            headers: options.headers.clone(),
            jar: Jar::new(cookies, options.takes_cookies),
            walks: Walks::default(),
            pauses: Pauses::default(),
            unranged: Mutex::default(),
            alone_in_a_row: AtomicU32::new(0),
            continues: Continues::default(),
            pages: PageCache::default(),
        })
    }

    /// The connections.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Sends a request pipelined behind earlier ones: a small one, or one for a part of a file or with a part as its
    /// body. `expected` is the expected length of the response's body in bytes. Returns the pending response and its
    /// lane. With `marker`, use the response only after its [`Response::proof`].
    ///
    /// # Errors
    /// If no lane is open and none can be opened, the server has requested too long a pause, or the request cannot be
    /// signed.
    pub async fn part(
        &self,
        request: &Request,
        expected: u64,
        marker: Option<Marker>,
    ) -> Result<(Pending, Arc<Pipe>)> {
        let origin = &request.url.origin;
        self.wait_out_pause(&request.url, request.operation).await?;
        let pipes = self.transport.pipes_of_parts(origin);
        let credentials = self.signed(request).await?;
        let head = self.head(request, &request.url, credentials.as_ref(), None)?;
        let marker = marker.map(|marker| self.serialize_marker(marker)).transpose()?;
        let sent = pipes.request(&head, &request.url, expected, &request.body, marker.as_ref());
        let sent = sent.await?;
        request.note_effect();
        Ok(sent)
    }

    /// Sends a small request pipelined behind earlier ones, so that any number of requests is in flight on few lanes.
    /// `None` unless the response is a plain success with a body of at most `most` bytes. After `None`, send the
    /// request on a connection of its own.
    pub async fn pipelined(&self, request: &Request, most: u64) -> Option<Response> {
        if self.sign_ins.is_to_be_tried(&request.url).await {
            return None;
        }
        if !self.order(&request.url.origin).takes_whole() {
            return None;
        }
        let alone = self.alone_in_a_row.load(Ordering::Relaxed);
        if alone >= ALONE_IN_A_ROW && !alone.is_multiple_of(PIPELINED_AGAIN) {
            self.alone_in_a_row.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let response = self.try_pipelined(request, most).await;
        match response {
            Some(_) => self.alone_in_a_row.store(0, Ordering::Relaxed),
            None => _ = self.alone_in_a_row.fetch_add(1, Ordering::Relaxed),
        }
        response
    }

    async fn try_pipelined(&self, request: &Request, most: u64) -> Option<Response> {
        let order = self.order(&request.url.origin);
        // Servers close a connection after a number of requests (nginx 1000, Apache 100).
        for _ in 0..=MAX_LOST {
            if !order.takes_whole() {
                break;
            }
            match self.pipelined_with_proof(request, most).await {
                Pipelined::Response(response) => return Some(response),
                Pipelined::Lost => {}
                Pipelined::Alone => break,
            }
        }
        None
    }

    async fn pipelined_with_proof(&self, request: &Request, most: u64) -> Pipelined {
        // Errors here are ignored: the caller sends the request again, alone, and reports them.
        let Some(marker) = self.order(&request.url.origin).marker(request) else {
            return Pipelined::Alone;
        };
        let Ok((pending, _)) = self.part(request, SMALL, Some(marker)).await else {
            return Pipelined::Alone;
        };
        let mut response = match pending.head().await {
            Ok(response) => response,
            Err(Broken::Lost { .. }) => return Pipelined::Lost,
            Err(_) => return Pipelined::Alone,
        };
        self.jar.learn(&response);
        let is_done = match request.method {
            Method::PUT => matches!(response.status.as_u16(), 200 | 201 | 204),
            _ => response.status == StatusCode::OK,
        };
        if !is_done {
            return Pipelined::Alone;
        }
        let head = Head::clone(&response);
        // The body of a response to PUT is not needed, and may be endless.
        let has_no_body = matches!(request.method, Method::HEAD | Method::PUT)
            || head.status == StatusCode::NO_CONTENT;
        let mut bytes = Vec::new();
        if !has_no_body {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if head.length().is_some_and(|length| length > most as u64) {
                return Pipelined::Alone;
            }
            let Ok(whole) = response.whole(request.operation, most).await else {
                return Pipelined::Alone;
            };
            bytes = whole;
        }
        match response.proof().await {
            Proof::Given => Pipelined::Response(Response::whole_of(head, bytes.into())),
            Proof::Refused => Pipelined::Alone,
            Proof::Lost => Pipelined::Lost,
        }
    }

    /// Serializes a marker, with credentials.
    fn serialize_marker(&self, marker: Marker) -> Result<SerializedMarker> {
        let request = marker.request();
        let credentials = self.sign_ins.known(&request.method, &request.url)?;
        let head = serialize(&self.head(&request, &request.url, credentials.as_ref(), None)?);
        Ok(SerializedMarker { marker, head })
    }

    /// What is known about the order of a server's responses.
    pub fn order(&self, origin: &Origin) -> Arc<Order> {
        self.connector.host(origin).order
    }

    /// Sends a request pipelined behind earlier ones, on the given lane or on all open ones.
    pub async fn behind(&self, request: &Request, lane: Option<&Pipe>) -> Result<Vec<Pending>> {
        let credentials = self.signed(request).await?;
        let head = self.head(request, &request.url, credentials.as_ref(), None)?;
        Ok(match lane {
            Some(lane) => vec![lane.request(&head, &request.url, 0, &Block::new())],
            None => self.transport.pipes(&request.url.origin).request_on_all(&head, &request.url),
        })
    }

    /// The credentials for a request. Waits while another request tries to sign in.
    async fn signed(&self, request: &Request) -> Result<Option<Credentials>> {
        self.sign_ins.is_to_be_tried(&request.url).await;
        self.sign_ins.known(&request.method, &request.url)
    }

    /// Requests one of the first pieces of a file on every lane that is opened soon, in case it can be read in ranges.
    pub fn prefetch(&self, request: &Request) {
        let url = &request.url;
        let may_be_shared = self.order(&url.origin).takes_parts();
        if self.transport.expected() <= 1 || self.sign_ins.is_needed() || !may_be_shared {
            return;
        }
        if let Ok(head) = self.head(request, url, None, None) {
            self.transport.pipes(&url.origin).prefetch(url.clone(), head);
        }
    }

    /// The responses to what [`Exchange::prefetch`] has requested of this file. Ends its prefetching; that of another
    /// file continues.
    pub fn prefetched(&self, url: &Url) -> Vec<(Range, Pending)> {
        self.transport.pipes(&url.origin).prefetched(url)
    }

    /// The cookies of this host and of those that it redirects to.
    pub const fn jar(&self) -> &Jar {
        &self.jar
    }

    /// Remembers that a server does not send ranges of a file.
    pub fn refuses_ranges(&self, url: &Url) {
        let mut unranged = self.unranged();
        if unranged.len() >= MAX_UNRANGED {
            unranged.clear();
        }
        unranged.insert(url.clone());
    }

    /// Whether a range of a file may be requested.
    pub fn may_have_ranges(&self, url: &Url) -> bool {
        !self.unranged().contains(url)
    }

    /// Remembers the pause that an overloaded server asks for (`Retry-After`).
    pub fn busy(&self, head: &Head) {
        self.pauses.learn(head);
    }

    /// Sends a request with a streamed body, which can be sent only once. Credentials and redirects must be settled by
    /// an earlier request. Without `body` the request has an empty body.
    ///
    /// # Errors
    /// If there is no response, or the server has requested too long a pause. Any status counts as a response.
    pub async fn upload(&self, request: &Request, mut body: Option<Stream>) -> Result<Response> {
        let origin = &request.url.origin;
        self.wait_out_pause(&request.url, request.operation).await?;
        // Before the lease: this may wait for the sign-in of another request, which needs a lane.
        let credentials = self.signed(request).await?;
        let leases = self.transport.leases(origin);
        let lease = leases.lease().await?;
        // An upload may keep the lane for as long as it needs.
        lease.hold();
        let length = body.as_ref().map(Stream::left);
        let expects = length.is_some_and(|length| self.continues.expects_continue(origin, length));
        let mut head = self.head(request, &request.url, credentials.as_ref(), body.as_ref())?;
        if let Some(body) = body.as_mut().filter(|_| expects) {
            let rtt = leases.status().rtt.unwrap_or_default();
            body.expects = Some(PATIENCE_WITH_EXPECT + 2 * rtt);
            head.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        // Without a time limit: the sender of the body watches its progress.
        let pending = lease.request(&head, &request.url, &Block::new(), None, body)?;
        // Before the response: the caller may stop to wait for it.
        request.note_effect();
        let response = pending.head().await;
        let response = response
            .map_err(|broken| error::of_broken(&broken, request.operation, &request.url))?;
        if let Some(length) = length {
            let (continued, status) = (response.is_continued(), response.status);
            self.continues.on_response(origin, length, expects, continued, status);
        }
        Ok(self.learn_from(response))
    }

    /// Sends a request on a connection of its own. Any response counts as a success, whatever its status.
    ///
    /// # Errors
    /// If there is no response, or the server has requested too long a pause.
    pub(super) async fn send(
        &self,
        request: &Request,
        url: &Url,
        credentials: Option<&Credentials>,
    ) -> Result<Response> {
        self.wait_out_pause(url, request.operation).await?;
        let leases = self.transport.leases(&url.origin);
        loop {
            let lease = leases.lease().await?;
            let used = lease.is_used();
            let head = self.head(request, url, credentials, None)?;
            let limit = request.limit(leases.waits().silence());
            let pending = lease.request(&head, url, &request.body, Some(limit), None)?;
            let response = pending.head().await.map_err(|broken| broken.on_reused(used));
            if may_have_effect(&response) {
                request.note_effect();
            }
            match response {
                Ok(response) => return Ok(self.learn_from(response)),
                // The server closed an idle connection.
                Err(Broken::Lost { is_sent: false }) if used => {}
                Err(Broken::Lost { .. } | Broken::Within(_) | Broken::Stray(_))
                    if used && request.is_repeatable() => {}
                Err(broken) => return Err(error::of_broken(&broken, request.operation, url)),
            }
        }
    }

    /// The head of a request. The body is that of `request`, or `stream`.
    fn head(
        &self,
        request: &Request,
        url: &Url,
        credentials: Option<&Credentials>,
        stream: Option<&Stream>,
    ) -> Result<http::Request<()>> {
        let host = HeaderValue::try_from(url.origin.authority());
        let proxy = self.connector.proxy_of_plain(&url.origin)?;
        // A proxy needs the absolute URL (RFC 9112, 3.2.2).
        let target = match proxy {
            Some(_) => url.absolute(),
            None => url.target().to_owned(),
        };
        let head = http::Request::builder().method(&request.method).uri(target).body(());
        let (Ok(host), Ok(mut head)) = (host, head) else {
            return Err(Error::new(ErrorKind::InvalidInput, request.operation)
                .at(url)
                .because("this URL does not fit into an HTTP request"));
        };
        let headers = head.headers_mut();
        // The user's fields first: fields that haul sets itself replace them.
        if self.sign_ins.is_home(&url.origin) {
            headers.extend(self.headers.fields().clone());
        }
        headers.insert(HOST, host);
        let agent = self.headers.agent().cloned();
        headers.insert(USER_AGENT, agent.unwrap_or(HeaderValue::from_static(AGENT)));
        let origin = &url.origin;
        let is_private = origin.scheme() == WebScheme::Https || self.privacy.stays_here(origin);
        if let Some(cookies) = self.jar.header(url, is_private) {
            headers.insert(COOKIE, cookies);
        }
        for (name, value) in &request.headers {
            headers.insert(name, value.clone());
        }
        let in_memory = request.body.len() as u64;
        let length = match stream {
            Some(stream) => stream.left(),
            // nginx requires a length even for an empty file.
            None if in_memory > 0 || request.method == Method::PUT => Some(in_memory),
            None => None,
        };
        if let Some(length) = length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        } else if stream.is_some() {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if let Some(proxy) = &proxy
            && let Some(value) = proxy::authorization(proxy)?
        {
            headers.insert(PROXY_AUTHORIZATION, value);
        }
        if let Some(credentials) = credentials {
            headers.insert(AUTHORIZATION, credentials.value.clone());
        }
        Ok(head)
    }

    /// Remembers the cookies of a response, and whether the server is overloaded.
    fn learn_from(&self, response: Response) -> Response {
        self.jar.learn(&response);
        if is_busy(response.status) {
            self.transport.leases(&response.url.origin).refused();
            self.busy(&response);
        }
        response
    }

    /// Waits until the pause that the server has requested (`Retry-After`) is over.
    async fn wait_out_pause(&self, url: &Url, operation: &'static str) -> Result<()> {
        self.pauses.wait(url, &self.connector.waits(&url.origin), operation).await
    }

    fn unranged(&self) -> MutexGuard<'_, HashSet<Url>> {
        self.unranged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server may have done what was requested, by its response.
fn may_have_effect(response: &Result<Response, Broken>) -> bool {
    match response {
        Ok(response) => {
            response.status != StatusCode::UNAUTHORIZED && !response.status.is_redirection()
        }
        Err(broken) => *broken != Broken::Lost { is_sent: false },
    }
}

/// Whether a status means that the server is overloaded.
pub fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 503)
}
