//! A request and its answer: on which lane, signed by whom, along which redirects, and asked again
//! when that can help.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use haul_net::Prompter;
use haul_storage::{Block, Error, ErrorKind, LinkStatus, Range, Result, Retry, Timestamp};
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION, RETRY_AFTER,
    USER_AGENT,
};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::answer::{Answer, Head};
pub use super::ask::Ask;
use super::ask::{is_safe, repeatable};
use super::auth::Said;
use super::body::Payload;
use super::connect::Connector;
use super::continues::{self, Continues};
use super::error;
use super::headers::Headers;
use super::jar::Jar;
use super::lanes::{LONGEST_RTT, Lanes};
use super::options::HttpOptions;
use super::page_cache::Kept;
use super::pipe::{Broken, Part, Pipe};
use super::pipes::Pipes;
use super::privacy::Privacy;
use super::proxy;
use super::signing::SignIns;
use crate::parse::cookies::Cookie;
use crate::parse::{Origin, Url, WebScheme, retry_after};

/// Who haul says it is, unless the user says otherwise.
const AGENT: &str = concat!("haul/", env!("CARGO_PKG_VERSION"));

/// As curl and browsers have it, more or less; a loop needs no more.
const MOST_REDIRECTS: usize = 10;

/// How often one request is asked again because another one has signed in meanwhile: cookies may be good for very few.
const MOST_RESTARTS: usize = 3;

/// So often one request may be refused for want of signing in: not at all, for a nonce that is too old,
/// for what others have found out meanwhile.
const MOST_CHALLENGES: usize = 8;

/// A server that wants to be left alone for longer than this, for one request altogether, is an error to
/// be told.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// So many such things are remembered; of others it is learnt anew.
const AWAY_MOST: usize = 4096;

/// Lanes over a path of the longest round trip, and as many fewer over a shorter one: each begins with some
/// 15 KB a round trip (RFC 6928), so twice as many fill the path a round trip earlier. Measured with 16
/// and 32: 800 MB at 200 ms and 500 Mbit/s 15.1 and 15.0 s; with 32 and 48: at 330 ms and 600 Mbit/s 14.1
/// and 13.9 s. At 200 ms 40 and more fill the queue, and packets are dropped.
const LANES: usize = 48;
const FIRST_LANES: usize = 6;

/// Questions that are asked side by side over a long path before a transfer begins.
const QUESTIONS: usize = 3;

/// How often a part, or something small, is asked for anew because the connection ended before its answer
/// began.
pub const LOST_MOST: u32 = 8;

/// What a small answer is taken for when lanes are chosen.
const SMALL: u64 = 16 << 10;

/// After so many questions in a row that had to be asked alone all are, but for one now and then: the server
/// ends each connection with its answer, say.
const ALONE_IN_A_ROW: u32 = 64;
const ASKED_AGAIN: u32 = 32;

/// So long a server may take to say that it wants an upload, beyond two round trips (curl waits as long).
const PATIENCE_WITH_EXPECT: Duration = Duration::from_secs(1);

/// Files that are remembered for having no parts; each is found out again by one refusal.
const UNRANGED_MOST: usize = 4096;

/// How often a question without a body of its own is asked again.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(300);

/// Everything that is asked of anybody.
#[derive(Debug)]
pub struct Exchange {
    connector: Arc<Connector>,
    runtime: Handle,
    sign_ins: SignIns,
    headers: Headers,
    jar: Jar,
    privacy: Privacy,
    /// Held by who signs in at a server that was redirected to, so that the others need not.
    walking: tokio::sync::Mutex<()>,
    /// How often that was done.
    walks: AtomicU64,
    state: Mutex<State>,
    /// Questions in a row that had to be asked alone.
    alone_in_a_row: AtomicU32,
    continues: Continues,
    /// The page of a directory that nobody has listed yet.
    pub kept: Kept,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct State {
    lanes: HashMap<Origin, Arc<Lanes>>,
    pipes: HashMap<Origin, Arc<Pipes>>,
    /// Where parts of files were asked for last: it is that link that is measured.
    busiest: Option<Origin>,
    expected: usize,
    wished: usize,
    /// Files that a server sends as a whole whatever part is asked for.
    unranged: HashSet<Url>,
    /// Servers that sign in who is redirected to them, without cookies.
    without_cookies: HashSet<Origin>,
    /// Servers that asked to be left alone.
    quiet_until: HashMap<Origin, Instant>,
    /// What is asked for in vain until then. That may be one file, which is fetched from a tape, say.
    away_until: HashMap<Url, Instant>,
}

/// The way through a server that signs in.
struct Walk<'a> {
    through: Origin,
    /// Changes of cookies before it.
    changes: u64,
    _alone: tokio::sync::MutexGuard<'a, ()>,
}

impl Exchange {
    /// No lane yet. Credentials are for `home`.
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
        Arc::new_cyclic(|this| Self {
            connector: Arc::new(Connector::new(options, runtime.clone())),
            privacy: Privacy::new(&home, options),
            sign_ins: SignIns::new(home, user, options, prompter),
            headers: options.headers.clone(),
            jar: Jar::new(cookies, options.takes_cookies),
            walking: tokio::sync::Mutex::default(),
            walks: AtomicU64::new(0),
            runtime,
            state: Mutex::default(),
            alone_in_a_row: AtomicU32::new(0),
            continues: Continues::default(),
            kept: Kept::default(),
            this: this.clone(),
        })
    }

    /// The lanes to an origin.
    pub fn lanes(&self, origin: &Origin) -> Arc<Lanes> {
        let mut state = self.lock();
        let (wished, expected) = (state.wished, state.expected);
        let lanes = state.lanes.entry(origin.clone()).or_insert_with(|| {
            let connector = Arc::clone(&self.connector);
            let lanes = Lanes::new(origin.clone(), connector, self.runtime.clone());
            if let Some(this) = self.this.upgrade().filter(|_| expected > 1) {
                let origin = origin.clone();
                lanes.when_long(move |rtt| {
                    this.lanes(&origin).wish_at_least(QUESTIONS.min(expected));
                    this.pipes(&origin).open_now(lanes_for(rtt, expected));
                });
            }
            lanes.wish(wished);
            lanes
        });
        Arc::clone(lanes)
    }

    /// Says how many lanes a transfer will want over a long path.
    pub fn expect(&self, lanes: usize) {
        self.lock().expected = lanes;
    }

    /// Wishes for `lanes` lanes.
    pub fn wish(&self, lanes: usize) {
        let (all, pipes): (Vec<_>, Vec<_>) = {
            let mut state = self.lock();
            state.wished = lanes;
            (state.lanes.values().cloned().collect(), state.pipes.values().cloned().collect())
        };
        all.iter().for_each(|one| one.wish(lanes));
        pipes.iter().for_each(|one| one.wish(lanes));
    }

    /// What the link to `origin` looks like, or where that has redirected to.
    pub fn status(&self, origin: &Origin) -> LinkStatus {
        let at = self.lock().busiest.clone().unwrap_or_else(|| origin.clone());
        let (lanes, pipes) = (self.lanes(&at).status(), self.pipes(&at).status());
        let rtt = lanes.rtt.into_iter().chain(pipes.rtt).min();
        // Each counts from a shortest round trip of its own.
        let at_present = |link: &LinkStatus| Some(link.rtt? + link.queueing?);
        let at_present = at_present(&pipes).or_else(|| at_present(&lanes));
        LinkStatus {
            open: if pipes.open > 0 { pipes.open } else { lanes.open },
            opening: lanes.opening.max(pipes.opening),
            refused: lanes.refused + pipes.refused,
            rtt,
            connect: lanes.connect.or(pipes.connect),
            queueing: haul_net::queueing(at_present, rtt),
        }
    }

    /// The lanes to an origin that parts of files are asked for on.
    pub fn pipes(&self, origin: &Origin) -> Arc<Pipes> {
        let mut state = self.lock();
        let wished = state.wished;
        let pipes = state.pipes.entry(origin.clone()).or_insert_with(|| {
            let connector = Arc::clone(&self.connector);
            let pipes = Pipes::new(origin.clone(), connector, self.runtime.clone());
            pipes.wish(wished);
            pipes
        });
        Arc::clone(pipes)
    }

    /// Asks for a part of a file of `expected` bytes, or sends one, behind what was asked before. Gives
    /// the answer, which begins with its head, and the lane that it comes on.
    ///
    /// # Errors
    /// No lane is open and none can be opened.
    pub async fn part(&self, ask: &Ask, expected: u64) -> Result<(Part, Arc<Pipe>)> {
        let origin = &ask.url.origin;
        self.wait_while_quiet(&ask.url, ask.operation).await?;
        self.lock().busiest = Some(origin.clone());
        let said = self.sign_ins.first(&ask.method, &ask.url).await?;
        let mut request = self.request(ask, &ask.url, said.as_ref(), Payload::Empty)?;
        if !ask.body.is_empty() {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(ask.body.len()));
        }
        self.pipes(origin).ask(&request, &ask.url, expected, &ask.body).await
    }

    /// Asks, or sends something small, behind what was asked before, so that any number of questions is
    /// under way on few lanes. `None` if it has to be asked alone: it was not simply answered, by a body
    /// of `most` bytes at most.
    pub async fn among_others(&self, ask: &Ask, most: u64) -> Option<(Head, Vec<u8>)> {
        let alone = self.alone_in_a_row.load(Ordering::Relaxed);
        if alone >= ALONE_IN_A_ROW && !alone.is_multiple_of(ASKED_AGAIN) {
            self.alone_in_a_row.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let answer = self.simply_answered(ask, most).await;
        match answer {
            Some(_) => self.alone_in_a_row.store(0, Ordering::Relaxed),
            None => _ = self.alone_in_a_row.fetch_add(1, Ordering::Relaxed),
        }
        answer
    }

    async fn simply_answered(&self, ask: &Ask, most: u64) -> Option<(Head, Vec<u8>)> {
        // Whatever goes wrong here is met again, and told, where it is asked alone.
        let mut lost = 0;
        let (head, mut part) = loop {
            let (mut part, _) = self.part(ask, SMALL).await.ok()?;
            match part.head().await {
                Ok(head) => {
                    self.jar.learn(&head);
                    break (head, part);
                }
                // Servers end a connection after so many requests (nginx 1000, Apache 100).
                Err(Broken::Lost) if lost < LOST_MOST => lost += 1,
                Err(_) => return None,
            }
        };
        let is_done = match ask.method {
            Method::PUT => matches!(head.status.as_u16(), 200 | 201 | 204),
            _ => head.status == StatusCode::OK,
        };
        if !is_done {
            return None;
        }
        // What a server says of a file that it has taken is nobody's business, and need not end.
        let has_no_body = matches!(ask.method, Method::HEAD | Method::PUT)
            || head.status == StatusCode::NO_CONTENT;
        if has_no_body {
            return Some((head, Vec::new()));
        }
        let length = head.length().filter(|length| *length <= most)?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).ok()?);
        while let Some(next) = part.next().await.ok()? {
            bytes.extend_from_slice(&next);
        }
        (bytes.len() as u64 == length).then_some((head, bytes))
    }

    /// Asks behind what has been asked on a lane, or on all that are open.
    pub async fn behind(&self, ask: &Ask, lane: Option<&Pipe>) -> Result<Vec<Part>> {
        let said = self.sign_ins.first(&ask.method, &ask.url).await?;
        let request = self.request(ask, &ask.url, said.as_ref(), Payload::Empty)?;
        Ok(match lane {
            Some(lane) => vec![lane.ask(&request, &ask.url, 0, &Block::new())],
            None => self.pipes(&ask.url.origin).ask_on_all(&request, &ask.url),
        })
    }

    /// Asks for the beginning of a file on every lane that is going to be opened, in case it is a file
    /// that can be read by parts.
    pub fn prefetch(&self, ask: &Ask) {
        if self.lock().expected <= 1 || self.sign_ins.is_needed() {
            return;
        }
        let url = &ask.url;
        if let Ok(request) = self.request(ask, url, None, Payload::Empty) {
            self.pipes(&url.origin).prefetch(url.clone(), request);
        }
    }

    /// What was asked for by [`Exchange::prefetch`]. Nothing more is asked for of it.
    pub fn prefetched(&self, url: &Url) -> Vec<(Range, Part)> {
        self.pipes(&url.origin).prefetched(url)
    }

    /// The cookies of this host and of those that it redirects to.
    pub const fn jar(&self) -> &Jar {
        &self.jar
    }

    /// Remembers that a server sends no parts of a file.
    pub fn refuses_ranges(&self, url: &Url) {
        let mut state = self.lock();
        if state.unranged.len() >= UNRANGED_MOST {
            state.unranged.clear();
        }
        state.unranged.insert(url.clone());
    }

    /// Whether it is worth asking for a part of a file.
    pub fn may_have_ranges(&self, url: &Url) -> bool {
        !self.lock().unranged.contains(url)
    }

    /// Remembers that the server has too much to do, and for how long it wants to be left alone.
    pub fn busy(&self, head: &Head) {
        if let Some(pause) = wanted_pause(head) {
            let Some(until) = Instant::now().checked_add(pause) else { return };
            if pause > LONGEST_WAIT {
                let mut state = self.lock();
                if state.away_until.len() < AWAY_MOST {
                    state.away_until.insert(head.url.clone(), until);
                }
                return;
            }
            self.lock().quiet_until.insert(head.url.origin.clone(), until);
        }
    }

    /// Asks, again if that may help. What the server says is an answer, whatever it is.
    ///
    /// # Errors
    /// Nobody answers, or the answer cannot be followed.
    pub async fn patiently(&self, ask: &Ask) -> Result<Answer> {
        let (mut tried, mut began) = (0, None);
        loop {
            let outcome = self.once(ask).await;
            tried += 1;
            let again = match &outcome {
                Ok(answer) => may_pass(answer.status),
                Err(error) => error.retry() == Retry::Later,
            };
            if !again || tried >= TRIES {
                return outcome;
            }
            if let Ok(answer) = outcome {
                let pause = if is_busy(answer.status) { wanted_pause(&answer) } else { None };
                let began = *began.get_or_insert_with(Instant::now);
                if let Some(pause) = pause.filter(|pause| began.elapsed() + *pause > LONGEST_WAIT) {
                    return Err(too_long(pause, ask.operation, &answer.url));
                }
                answer.drain().await;
            }
            sleep(FIRST_PAUSE * (1 << (tried - 1))).await;
        }
    }

    /// Asks once. Redirects are followed, and challenges answered.
    ///
    /// Many requests may be redirected to one server that signs in, at the beginning or when a cookie has expired. One
    /// of them follows; the others wait for it and are then asked again, with the cookies that it got.
    ///
    /// # Errors
    /// As [`Exchange::patiently`].
    pub async fn once(&self, ask: &Ask) -> Result<Answer> {
        let mut url = ask.url.clone();
        let (mut redirects, mut challenges) = (0, 0);
        let (mut walk, mut restarts) = (None, 0);
        let mut said = self.sign_ins.first(&ask.method, &url).await?;
        let mut trial = None;
        loop {
            let (walks, changes) = (self.walks.load(Ordering::Relaxed), self.jar.changes());
            let answer = self.send(ask, &url, said.as_ref()).await?;
            if answer.status == StatusCode::UNAUTHORIZED {
                challenges += 1;
                if challenges > MOST_CHALLENGES {
                    return Err(error::of_status(answer.status, ask.operation, &url));
                }
                let head = Head::clone(&answer);
                // Who tries a password may need the lane that this one has.
                answer.drain().await;
                // Few are, and it is large.
                trial = Box::pin(self.sign_ins.challenged(&head, said.as_ref(), trial)).await?;
                said = match &trial {
                    Some(trial) => Some(trial.said(&ask.method, &url)?),
                    None => self.sign_ins.known(&ask.method, &url)?,
                };
                continue;
            }
            if said.is_some() {
                self.sign_ins.accepted(&url.origin, trial.take());
            }
            let Some(next) = self.redirect(&answer, ask)? else {
                if let Some(walk) = walk {
                    self.walked(walk);
                }
                return Ok(answer);
            };
            redirects += 1;
            // Who sets a cookie may lead to the same place, to see it.
            let leads_nowhere = next == url && self.jar.changes() == changes;
            if redirects > MOST_REDIRECTS || leads_nowhere {
                return Err(Error::new(ErrorKind::Protocol, ask.operation)
                    .at(&ask.url)
                    .because(format!("too many redirects, the last to {next}")));
            }
            answer.drain().await;
            url = next;
            if walk.is_none() && self.signs_in_with_cookies(&url.origin) {
                let alone = self.walking.lock().await;
                if restarts < MOST_RESTARTS && self.walks.load(Ordering::Relaxed) != walks {
                    restarts += 1;
                    url = ask.url.clone();
                } else {
                    let changes = self.jar.changes();
                    walk = Some(Walk { through: url.origin.clone(), changes, _alone: alone });
                }
            }
            said = self.sign_ins.first(&ask.method, &url).await?;
        }
    }

    /// Whether a server that was redirected to signs in, and may set cookies that spare others the way there.
    fn signs_in_with_cookies(&self, origin: &Origin) -> bool {
        self.sign_ins.signs_for_others(origin) && !self.lock().without_cookies.contains(origin)
    }

    /// A walk has come to its end.
    fn walked(&self, walk: Walk<'_>) {
        if self.jar.changes() == walk.changes {
            self.lock().without_cookies.insert(walk.through);
        } else {
            self.walks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a request with a body of its own, which can be sent only once. What is asked before it
    /// finds out who we are and where it goes.
    ///
    /// # Errors
    /// As [`Exchange::patiently`].
    pub async fn upload(&self, ask: &Ask, mut body: Payload) -> Result<Answer> {
        let origin = &ask.url.origin;
        self.wait_while_quiet(&ask.url, ask.operation).await?;
        // Before there is a lane: who finds out what to say may need that.
        let said = self.sign_ins.first(&ask.method, &ask.url).await?;
        let lanes = self.lanes(origin);
        let mut lease = lanes.lease().await?;
        // It has the lane for as long as it likes.
        lease.hold();
        let length = body.streams();
        let expects = length.is_some_and(|length| self.continues.is_asked(origin, length));
        let rtt = lanes.status().rtt.unwrap_or_default();
        let say = match expects {
            true => body.when_wanted(PATIENCE_WITH_EXPECT + 2 * rtt),
            false => None,
        };
        let mut request = self.request(ask, &ask.url, said.as_ref(), body)?;
        let said = say.map(|say| continues::ask(&mut request, say));
        let Some(sender) = lease.sender() else { return Err(gone(ask)) };
        match sender.send_request(request).await {
            Ok(response) => {
                if let Some(length) = length {
                    let said = said.is_some_and(|said| said.load(Ordering::Relaxed));
                    self.continues.answered(origin, length, expects, said, response.status());
                }
                let (url, method) = (ask.url.clone(), ask.method.clone());
                Ok(self.noticed(Answer::new(response, url, method, lease)))
            }
            Err(failed) => Err(error::of_hyper(&failed, ask.operation, &ask.url)),
        }
    }

    async fn send(&self, ask: &Ask, url: &Url, said: Option<&Said>) -> Result<Answer> {
        self.wait_while_quiet(url, ask.operation).await?;
        let lanes = self.lanes(&url.origin);
        loop {
            let mut lease = lanes.lease().await?;
            let used = lease.is_used();
            let request = self.request(ask, url, said, Payload::from(&ask.body))?;
            let Some(sender) = lease.sender() else { return Err(gone(ask)) };
            let what = || format!("response to {} {}", ask.method, url.path());
            let sent = sender.send_request(request);
            let limit = ask.limit(lanes.waits().silence());
            match lanes.waits().within(limit, what, sent).await {
                Some(Ok(response)) => {
                    let method = ask.method.clone();
                    return Ok(self.noticed(Answer::new(response, url.clone(), method, lease)));
                }
                // The server closed a connection that it thought idle.
                Some(Err(failed))
                    if used
                        && !failed.is_parse()
                        && (failed.is_canceled() || ask.is_repeatable()) => {}
                Some(Err(failed)) => return Err(error::of_hyper(&failed, ask.operation, url)),
                None => return Err(error::silent(ask.operation, url, limit.as_secs())),
            }
        }
    }

    fn request(
        &self,
        ask: &Ask,
        url: &Url,
        said: Option<&Said>,
        body: Payload,
    ) -> Result<Request<Payload>> {
        let host = HeaderValue::try_from(url.origin.authority());
        // nginx fails when it is not said that a file is empty.
        let is_empty = ask.method == Method::PUT && body.is_end_stream();
        let proxy = self.connector.proxy_of_plain(&url.origin)?;
        // A proxy has to be told whom to ask (RFC 9112, 3.2.2).
        let target = match proxy {
            Some(_) => url.absolute(),
            None => url.target().to_owned(),
        };
        let request = Request::builder().method(&ask.method).uri(target).body(body);
        let (Ok(host), Ok(mut request)) = (host, request) else {
            return Err(Error::new(ErrorKind::InvalidInput, ask.operation)
                .at(url)
                .because("this URL does not fit into an HTTP request"));
        };
        let headers = request.headers_mut();
        // What else is set goes before what the user gives.
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
        if is_empty {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        for (name, value) in &ask.headers {
            headers.insert(name, value.clone());
        }
        if let Some(proxy) = &proxy
            && let Some(value) = proxy::authorization(proxy)?
        {
            headers.insert(PROXY_AUTHORIZATION, value);
        }
        if let Some(said) = said {
            headers.insert(AUTHORIZATION, said.value.clone());
        }
        Ok(request)
    }

    /// Remembers the cookies of a response, and what it says of the server's load.
    fn noticed(&self, answer: Answer) -> Answer {
        self.jar.learn(&answer);
        if is_busy(answer.status) {
            let origin = &answer.url.origin;
            self.lanes(origin).refused();
            self.busy(&answer);
        }
        answer
    }

    async fn wait_while_quiet(&self, url: &Url, operation: &'static str) -> Result<()> {
        let origin = &url.origin;
        let (until, away) = {
            let state = self.lock();
            (state.quiet_until.get(origin).copied(), state.away_until.get(url).copied())
        };
        let left = away.map(|until| until.saturating_duration_since(Instant::now()));
        if let Some(pause) = left.filter(|left| !left.is_zero()) {
            return Err(too_long(pause, operation, url));
        }
        if let Some(pause) = until.map(|until| until.saturating_duration_since(Instant::now())) {
            let waits = self.connector.waits(origin);
            waits
                .watch(
                    || {
                        "end of the pause that the server requested \
                            (Retry-After)"
                            .to_owned()
                    },
                    sleep(pause),
                )
                .await;
        }
        Ok(())
    }

    fn redirect(&self, answer: &Answer, ask: &Ask) -> Result<Option<Url>> {
        let follows = match answer.status.as_u16() {
            301 | 302 | 307 | 308 => true,
            303 => ask.method == Method::GET || ask.method == Method::HEAD,
            _ => false,
        };
        let Some(location) = answer.header(&LOCATION).filter(|_| follows) else { return Ok(None) };
        let next = answer.url.join(location).map_err(|cause| {
            Error::new(ErrorKind::Protocol, ask.operation)
                .at(&ask.url)
                .because(format!("the server redirects to an invalid location: {cause}"))
        })?;
        // A server behind a proxy that redirects to the slash of a directory does so to what it takes for
        // its own name.
        let next = match answer.url.is_without_slash(&next) {
            true => next.on(answer.url.origin.clone()),
            false => next,
        };
        if next.origin != answer.url.origin && !is_safe(&ask.method) {
            let cause = format!(
                "the server redirects to {next}; requests that change data go only to the server \
                 that was named"
            );
            return Err(Error::new(ErrorKind::PermissionDenied, ask.operation)
                .at(&ask.url)
                .because(cause));
        }
        let tls = |url: &Url| url.origin.scheme() == WebScheme::Https;
        if tls(&answer.url) && !tls(&next) {
            return Err(Error::new(ErrorKind::PermissionDenied, ask.operation)
                .at(&ask.url)
                .because(format!("the server redirects from HTTPS to plain HTTP, to {next}")));
        }
        if repeatable(&ask.method) || matches!(answer.status.as_u16(), 307 | 308) {
            return Ok(Some(next));
        }
        Err(Error::new(ErrorKind::Protocol, ask.operation)
            .at(&ask.url)
            .because(format!("the server redirects to {next}: use that location instead")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many lanes a path deserves before anything else is known of it: what one carries in a round
/// trip is little at first.
fn lanes_for(rtt: Duration, most: usize) -> usize {
    let lanes = most.max(LANES) as f64 * rtt.div_duration_f64(LONGEST_RTT);
    (lanes as usize).clamp(FIRST_LANES.min(most), most)
}

/// Whether an answer may be another one a moment later.
pub fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504)
}

/// Whether the server has too much to do.
fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 503)
}

fn too_long(pause: Duration, operation: &'static str, url: &Url) -> Error {
    let (pause, most) = (pause.as_secs_f64().ceil(), LONGEST_WAIT.as_secs());
    Error::new(ErrorKind::Busy, operation)
        .at(url)
        .because(format!(
            "the server asks to wait {pause} s (Retry-After), more than the {most} s that haul \
             waits"
        ))
        .with_retry(Retry::Never)
}

/// How long the server wants to be left alone (RFC 9110, 10.2.3).
fn wanted_pause(answer: &Head) -> Option<Duration> {
    let now = Timestamp::from(SystemTime::now());
    retry_after::parse(answer.header(&RETRY_AFTER)?, now)
}

fn gone(ask: &Ask) -> Error {
    Error::new(ErrorKind::Unreachable, ask.operation).at(&ask.url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_gets_more_lanes_and_never_more_than_are_wanted() {
        let lanes = |millis, most| lanes_for(Duration::from_millis(millis), most);
        assert_eq!(
            [20, 100, 200, 330, 5000].map(|millis| lanes(millis, LANES)),
            [6, 16, 32, 48, 48]
        );
        assert_eq!([20, 100, 200, 330].map(|millis| lanes(millis, 4)), [4; 4]);
        assert_eq!([20, 100, 200, 330].map(|millis| lanes(millis, 16)), [6, 16, 16, 16]);
        assert_eq!([20, 100, 200, 330].map(|millis| lanes(millis, 64)), [6, 21, 42, 64]);
    }
}
