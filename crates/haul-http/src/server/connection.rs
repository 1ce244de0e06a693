//! Serves one connection: HTTP/1.1, or over TLS also HTTP/2.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_net::Running;
use http_body_util::BodyExt;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_user_timeout};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::client::Client;
use super::handler::Handler;
use super::limits;
use super::visitor::{Observer, Visitor};

/// State shared by all connections of a server.
pub(super) struct Served {
    pub(super) handler: Handler,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) observer: Observer,
}

/// Serves a connection until it ends, or the server stops.
pub(super) async fn serve(
    served: Arc<Served>,
    socket: TcpStream,
    client: Arc<Client>,
    mut server: Running,
) {
    let visitor = Visitor::new(served.observer.clone(), client.from);
    if set(&socket).is_err() {
        // The client has disconnected.
        return;
    }
    let Some(tls) = &served.tls else {
        return speak_http1(&served, socket, client, server).await;
    };
    let handshake = tokio::select! {
        handshake = timeout(limits::HANDSHAKE, tls.accept(socket)) => handshake,
        () = server.stopped() => return,
    };
    let Ok(Ok(mut stream)) = handshake else { return visitor.speaks_no_tls() };
    let (_, session) = stream.get_mut();
    session.set_buffer_limit(Some(limits::BLOCK));
    if session.alpn_protocol() == Some(b"h2") {
        speak_http2(&served, stream, client, server).await;
    } else {
        speak_http1(&served, stream, client, server).await;
    }
}

/// Sets socket options: keepalive and a timeout for clients that disappear or stop reading, and a small buffer for
/// unsent bytes.
fn set(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    set_socket_keepalive(socket, true)?;
    let silence = u32::try_from(limits::SILENCE.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(socket, silence)?;
    #[cfg(target_os = "linux")]
    SockRef::from(socket).set_tcp_notsent_lowat(limits::UNSENT)?;
    Ok(())
}

async fn speak_http1(
    served: &Arc<Served>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    client: Arc<Client>,
    server: Running,
) {
    let service = service_fn(|request| {
        let (served, client) = (Arc::clone(served), Arc::clone(&client));
        async move { Ok::<_, Infallible>(served.handler.respond(&client, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIME)
        .max_header_size(limits::HEAD)
        .max_buf_size(limits::RECEIVED)
        // A client may close its sending side after a request and still read the response.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    drive(connection, server, pending(), |connection| connection.graceful_shutdown()).await;
}

async fn speak_http2(
    served: &Arc<Served>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    client: Arc<Client>,
    server: Running,
) {
    // Counts requests. Each response holds a clone until all of it is sent, so the reference count shows whether any
    // response is in progress.
    let open = Arc::new(AtomicUsize::new(0));
    let service = service_fn(|request| {
        let (served, client) = (Arc::clone(served), Arc::clone(&client));
        let open = Arc::clone(&open);
        async move {
            open.fetch_add(1, Ordering::Relaxed);
            let response = served.handler.respond(&client, request).await;
            Ok::<_, Infallible>(response.map(|body| {
                body.map_frame(move |frame| {
                    let _until_response_ends = &open;
                    frame
                })
            }))
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(limits::HEAD_TIME)
        .keep_alive_timeout(limits::HANDSHAKE)
        .max_header_list_size(limits::HEAD as u32)
        .max_concurrent_streams(limits::STREAMS)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .max_send_buf_size(limits::BLOCK)
        .serve_connection(TokioIo::new(stream), service);
    drive(connection, server, idle(&open), |connection| connection.graceful_shutdown()).await;
}

/// Waits until there was no request for a while and no response is in progress, so that `open` has a single reference.
async fn idle(open: &Arc<AtomicUsize>) {
    let mut before = None;
    loop {
        sleep(limits::HEAD_TIME).await;
        let requests = open.load(Ordering::Relaxed);
        if Arc::strong_count(open) == 1 && before == Some(requests) {
            return;
        }
        before = Some(requests);
    }
}

/// Runs a connection. When the server stops or the connection is idle, requests in progress get some time to complete.
async fn drive<C: Future>(
    connection: C,
    mut server: Running,
    idle: impl Future<Output = ()>,
    end: impl FnOnce(Pin<&mut C>),
) {
    tokio::pin!(connection);
    tokio::select! {
        // Errors are ignored: the client sees them, too.
        _ = connection.as_mut() => return,
        () = server.stopped() => {}
        () = idle => {}
    }
    end(connection.as_mut());
    drop(timeout(limits::FAREWELL, connection).await);
}
