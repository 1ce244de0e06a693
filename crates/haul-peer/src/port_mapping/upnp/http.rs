//! HTTP requests to the router, each on a connection of its own, with bounded responses.

use std::convert::Infallible;
use std::future::pending;

use haul_storage::{Error, Result, io_cause};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::url::RouterUrl;
use crate::port_mapping::limits;
use crate::port_mapping::refusal::refused;

const BROKEN: &str = "the router's response is broken";

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    /// Whether its status is 200.
    pub(super) is_ok: bool,
    /// Its body.
    pub(super) text: String,
}

/// Gets a document.
///
/// # Errors
/// If the router does not respond with status 200.
pub(super) async fn get(url: &RouterUrl) -> Result<String> {
    let response = exchange(url, Method::GET, None, String::new()).await?;
    match response.is_ok {
        true => Ok(response.text),
        false => Err(refused("the router does not send its description")),
    }
}

/// Sends a SOAP request. The response may be a fault.
///
/// # Errors
/// If the router does not respond.
pub(super) async fn post(url: &RouterUrl, action: &str, body: String) -> Result<Response> {
    exchange(url, Method::POST, Some(action), body).await
}

async fn exchange(
    url: &RouterUrl,
    method: Method,
    action: Option<&str>,
    body: String,
) -> Result<Response> {
    let mut request = Request::builder()
        .method(method)
        .uri(url.path())
        .header(HOST, url.address().to_string())
        .header(CONNECTION, "close");
    if let Some(action) = action {
        let kind = "text/xml; charset=\"utf-8\"";
        request = request.header(CONTENT_TYPE, kind).header("SOAPAction", action);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(broken)?;
    let stream = TcpStream::connect(url.address()).await;
    let stream = stream.map_err(|error| refused(io_cause(&error)))?;
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(limits::RESPONSE)
        .title_case_headers(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .ignore_invalid_headers_in_responses(true);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchanging = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let is_ok = response.status() == StatusCode::OK;
        let body = Limited::new(response.into_body(), limits::RESPONSE).collect().await;
        let body = body.map_err(|error| refused(BROKEN).with_source(error))?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Ok::<_, Error>(Response { is_ok, text })
    };
    // The connection may end before the response is read.
    let driving = async {
        drop(connection.await);
        pending::<Infallible>().await
    };
    tokio::select! {
        response = exchanging => response,
        never = driving => match never {},
    }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    refused(BROKEN).with_source(error)
}
