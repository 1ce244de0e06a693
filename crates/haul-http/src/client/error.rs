//! The errors for HTTP statuses and for broken connections.

use haul_storage::{Error, ErrorKind, Retry};
use http::StatusCode;

use super::head::Broken;
use crate::parse::Url;

/// The error for a status that the operation does not accept.
pub fn of_status(status: StatusCode, operation: &'static str, url: &Url) -> Error {
    use ErrorKind as Kind;
    let kind = match status.as_u16() {
        401 | 407 => Kind::Unauthenticated,
        403 => Kind::PermissionDenied,
        404 | 410 => Kind::NotFound,
        405 | 501 => Kind::Unsupported,
        // RFC 4918, 9.3.1 and 9.7.1: the parent collection does not exist.
        409 => Kind::NotFound,
        412 => Kind::AlreadyExists,
        413 | 507 => Kind::NoSpace,
        416 => Kind::Changed,
        423 | 429 | 503 => Kind::Busy,
        408 | 425 | 500 | 502 | 504 => Kind::Unreachable,
        400..=499 => Kind::InvalidInput,
        200..=399 => Kind::Protocol,
        _ => Kind::Other,
    };
    let error =
        Error::new(kind, operation).at(url).because(format!("the server returned {status}"));
    match status.as_u16() {
        // A limit of the server, not its disk.
        413 => {
            error.hinting("the server accepts no upload of this size; its limit has to be raised")
        }
        // The resource is locked (RFC 4918, 11.3), often by a person at work, so a retry would not help.
        423 => error.with_retry(Retry::Never),
        _ => error,
    }
}

/// The error for a response that is missing, incomplete or malformed.
pub fn of_broken(broken: &Broken, operation: &'static str, url: &Url) -> Error {
    let (kind, words) = match broken {
        Broken::Lost { .. } => (ErrorKind::Unreachable, "the connection ended".to_owned()),
        Broken::Silent(time) => {
            (ErrorKind::Unreachable, format!("no data for {} s", time.as_secs()))
        }
        Broken::Endless { bytes, seconds } => {
            let words = format!("the response makes no progress: {bytes} bytes in {seconds} s");
            (ErrorKind::Unreachable, words)
        }
        Broken::Within(how) => (ErrorKind::Unreachable, format!("the response ended early: {how}")),
        Broken::Unreadable(how) => (ErrorKind::Protocol, malformed(how)),
        Broken::Stray(how) => (ErrorKind::Unreachable, malformed(how)),
    };
    Error::new(kind, operation).at(url).because(words)
}

fn malformed(how: &str) -> String {
    format!("the response is malformed: {how}")
}

/// The error for a redirect to a web page instead of the file, probably a login page.
pub fn login_page(url: &Url, found: &Url) -> Error {
    let (from, host) = (&found.origin, found.origin.host());
    let target = if *from == url.origin { found.path().to_owned() } else { from.to_string() };
    Error::new(ErrorKind::Unauthenticated, "open")
        .at(url)
        .because(format!(
            "it is redirected to {target}, which returned a web page instead of the file"
        ))
        .hinting(format!(
            "if that is a login page, add a line to ~/.netrc (machine {host} login USER password \
             PASSWORD), or pass the cookies of a logged-in browser with --load-cookies FILE"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_response_is_reported_as_such_and_retried_only_on_a_reused_connection() {
        let url = Url::parse("http://h/f").unwrap();
        for (is_reused, kind, retry) in [
            (false, ErrorKind::Protocol, Retry::Never),
            (true, ErrorKind::Unreachable, Retry::Later),
        ] {
            let broken = Broken::Unreadable("it has two lengths".to_owned()).on_reused(is_reused);
            let error = of_broken(&broken, "read", &url);
            assert_eq!((error.kind(), error.retry()), (kind, retry));
            assert_eq!(error.cause(), "the response is malformed: it has two lengths");
        }
    }
}
