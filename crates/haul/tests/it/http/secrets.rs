//! Credentials are sent to the server that the user named, and to no other.

use super::response::{File, Response};
use super::server::{Request, Server};
use super::whole;
use crate::content::content;
use crate::session::{Ran, Session};

const SIZE: usize = 2 << 20;
const SECRET: &str = "open-sesame";
/// `me:open-sesame`.
const BASIC: &str = "Basic bWU6b3Blbi1zZXNhbWU=";

fn copy_as(session: &Session, variable: &str, url: &str) -> Ran {
    let line = format!("cp --lanes 2 --chunk 128K --retries 1 {url} dst/");
    session.haul_where(&line, &[(variable, SECRET)])
}

fn as_me(server: &Server) -> String {
    server.url("/f").replacen("://", "://me@", 1)
}

fn challenge() -> Response {
    Response::page(401).with("WWW-Authenticate", "Basic realm=\"here\"")
}

/// Whether a request has an `Authorization` field, or contains the secret.
fn has_secret(request: &Request) -> bool {
    request.field("authorization").is_some() || format!("{request:?}").contains(SECRET)
}

#[test]
fn a_password_is_not_sent_to_the_target_of_a_redirect() {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let other = Server::start(move |request| file.respond(request));
    let to = other.url("/f");
    let server = Server::start(move |request| match request.field("authorization") {
        Some(BASIC) => Response::redirect(302, &to),
        _ => challenge(),
    });
    let session = Session::new();
    let ran = copy_as(&session, "HAUL_PASSWORD", &as_me(&server)).status(0);
    whole(&session, &bytes);
    assert!(!format!("{}{}", ran.out(), ran.err()).contains(SECRET));
    assert!(server.requests().iter().any(has_secret));
    assert!(other.requests().len() > 5);
    assert!(!other.requests().iter().any(has_secret), "{:?}", other.requests());
}

/// Formerly, the password and the token were sent to every server of the command.
#[test]
fn a_secret_that_could_be_for_two_servers_is_sent_to_neither() {
    let server = || {
        let file = File::new(content(1, SIZE));
        Server::start(move |request| match request.field("authorization") {
            None => challenge().with("WWW-Authenticate", "Basic realm=\"here\", Bearer"),
            Some(_) => file.respond(request),
        })
    };
    let (one, other) = (server(), server());
    let plain = |server: &Server| server.url("/f");
    for (variable, urls) in [
        ("HAUL_PASSWORD", [as_me(&one), as_me(&other)]),
        ("HAUL_TOKEN", [plain(&one), plain(&other)]),
    ] {
        let session = Session::new();
        let ran = copy_as(&session, variable, &urls.join(" ")).status(1);
        assert!(ran.err().contains(&format!("{variable}_NAME")), "{}", ran.err());
        for url in urls {
            assert!(ran.err().contains(url.trim_end_matches("/f")), "{}", ran.err());
        }
        assert!(!ran.err().contains(SECRET));
    }
    for server in [&one, &other] {
        assert!(!server.requests().iter().any(has_secret), "{:?}", server.requests());
    }
}

/// Formerly, a server whose directory was listed for a pattern got the secret before the other servers were known.
#[test]
fn a_secret_that_could_be_for_two_servers_is_sent_to_neither_for_a_pattern() {
    let server = || {
        Server::start(|request| match request.field("authorization") {
            None => challenge().with("WWW-Authenticate", "Basic realm=\"here\", Bearer"),
            Some(_) => Response::page(404),
        })
    };
    let (one, other) = (server(), server());
    let pattern = format!("{}*", one.url("/"));
    let other_file = other.url("/f");
    for line in [
        format!("cp {pattern} {other_file} dst/"),
        format!("cp {pattern} {other_file}"),
        format!("cp --mirror {other_file} {pattern} dst/"),
        format!("mv {pattern} {other_file}"),
        format!("ls {pattern} {other_file}"),
        format!("cat {pattern} {other_file}"),
        format!("du {pattern} {other_file}"),
        format!("rm {pattern} {other_file}"),
    ] {
        let session = Session::new();
        let ran = session.haul_where(&line, &[("HAUL_TOKEN", SECRET)]);
        assert_ne!(ran.code(), Some(0), "{line}");
        assert!(ran.err().contains("HAUL_TOKEN_NAME"), "{line}: {}", ran.err());
    }
    for server in [&one, &other] {
        assert!(!server.requests().iter().any(has_secret), "{:?}", server.requests());
    }
}

#[test]
fn of_two_servers_only_the_one_with_a_user_gets_the_password() {
    let file = File::new(content(1, SIZE));
    let (bytes, public) = (file.content.clone(), File::new(content(2, SIZE)));
    let server = Server::start(move |request| match request.field("authorization") {
        Some(BASIC) => file.respond(request),
        _ => challenge(),
    });
    let other = Server::start(move |request| public.respond(request));
    let session = Session::new();
    let urls = format!("{} {}", as_me(&server), other.url("/g"));
    copy_as(&session, "HAUL_PASSWORD", &urls).status(0);
    assert!(std::fs::read(session.path("dst/f")).unwrap() == bytes[..]);
    assert!(!other.requests().iter().any(has_secret));
}

#[test]
fn a_remote_of_the_configuration_has_a_token_of_its_own() {
    let file = File::new(content(1, SIZE));
    let server = Server::start(move |request| match request.field("authorization") {
        Some("Bearer open-sesame") => file.respond(request),
        _ => challenge().with("WWW-Authenticate", "Bearer"),
    });
    let session = Session::new();
    session.write("c.toml", format!("[remote.my-nas]\nurl = \"{}\"\n", server.url("/")));
    let line = "cp --config c.toml --retries 1 my-nas:f dst/";
    session.haul_where(line, &[("HAUL_TOKEN_MY_NAS", SECRET), ("HAUL_TOKEN", "other")]).status(0);
    assert!(session.has("dst/f"));
}

#[test]
fn each_of_two_remotes_gets_the_password_of_its_own_variable() {
    // `me:second`.
    const SECOND: &str = "Basic bWU6c2Vjb25k";
    let server = |expected: &'static str, name: u64| {
        let file = File::new(content(name, SIZE));
        Server::start(move |request| match request.field("authorization") {
            Some(sent) if sent == expected => file.respond(request),
            _ => challenge(),
        })
    };
    let (one, other) = (server(BASIC, 1), server(SECOND, 2));
    let session = Session::new();
    let remote = |name: &str, server: &Server| {
        format!("[remote.{name}]\nurl = \"{}\"\nuser = \"me\"\n", server.url("/"))
    };
    session.write("c.toml", remote("my-nas", &one) + &remote("other", &other));
    let variables = [("HAUL_PASSWORD_MY_NAS", SECRET), ("HAUL_PASSWORD_OTHER", "second")];
    let line = "cp --config c.toml --retries 1 my-nas:f other:g dst/";
    session.haul_where(line, &variables).status(0);
    assert!(session.has("dst/f") && session.has("dst/g"));
    for (server, own) in [(&one, BASIC), (&other, SECOND)] {
        let requests = server.requests();
        let sent: Vec<_> = requests.iter().filter_map(|one| one.field("authorization")).collect();
        assert!(!sent.is_empty() && sent.iter().all(|sent| *sent == own), "{sent:?}");
    }
}

#[test]
fn a_redirect_target_that_requires_a_password_gets_none() {
    let both = || challenge().with("WWW-Authenticate", "Basic realm=\"here\", Bearer");
    let other = Server::start(move |_| both());
    let to = other.url("/f");
    let server = Server::start(move |request| match request.field("authorization") {
        Some(_) => Response::redirect(302, &to),
        _ => both(),
    });
    for (variable, url) in [("HAUL_PASSWORD", as_me(&server)), ("HAUL_TOKEN", server.url("/f"))] {
        let session = Session::new();
        let ran = copy_as(&session, variable, &url).status(1);
        assert!(!session.has("dst/f"));
        assert!(ran.err().contains("requires credentials; those of"), "{}", ran.err());
        assert!(!ran.err().contains(SECRET));
    }
    assert!(!other.requests().is_empty());
    assert!(!other.requests().iter().any(has_secret), "{:?}", other.requests());
}

#[test]
fn a_redirect_target_that_requires_a_password_half_way_gets_none() {
    let file = File::new(content(1, SIZE));
    let other = Server::start(move |request| match request.number {
        1..=3 => file.respond(request),
        _ => challenge(),
    });
    let to = other.url("/f");
    let server = Server::start(move |request| match request.field("authorization") {
        Some(_) => Response::redirect(302, &to),
        _ => challenge(),
    });
    let session = Session::new();
    copy_as(&session, "HAUL_PASSWORD", &as_me(&server)).status(1);
    assert!(!session.has("dst/f"));
    assert!(!other.requests().iter().any(has_secret), "{:?}", other.requests());
}

#[test]
fn the_same_host_at_another_port_is_another_server_also_after_two_redirects() {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let last = Server::start(move |request| file.respond(request));
    let to_last = last.url("/f");
    let middle = Server::start(move |_| Response::redirect(307, &to_last));
    let to_middle = middle.url("/f");
    let server = Server::start(move |request| match request.field("authorization") {
        Some(value) if value == format!("Bearer {SECRET}") => Response::redirect(307, &to_middle),
        _ => challenge().with("WWW-Authenticate", "Bearer"),
    });
    let session = Session::new();
    copy_as(&session, "HAUL_TOKEN", &server.url("/f")).status(0);
    whole(&session, &bytes);
    for other in [&middle, &last] {
        assert!(!other.requests().is_empty() && !other.requests().iter().any(has_secret));
    }
}

#[test]
fn a_redirect_back_to_the_first_server_gets_the_password() {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let back = Server::start(|request| {
        Response::redirect(302, request.target.strip_prefix("/?").unwrap_or_default())
    });
    let to_back = back.url("/?");
    let server = Server::start(move |request| {
        if request.field("authorization") != Some(BASIC) {
            return challenge();
        }
        match request.target.as_str() {
            "/f" => {
                let home = format!("http://{}/real", request.field("host").unwrap());
                Response::redirect(302, &format!("{to_back}{home}"))
            }
            _ => file.respond(request),
        }
    });
    let session = Session::new();
    copy_as(&session, "HAUL_PASSWORD", &as_me(&server)).status(0);
    whole(&session, &bytes);
    assert!(!back.requests().iter().any(has_secret));
}

#[test]
fn a_rejected_password_is_reported_and_not_sent_again() {
    let server = Server::start(|_| challenge());
    let session = Session::new();
    let ran = copy_as(&session, "HAUL_PASSWORD", &as_me(&server)).status(1);
    assert!(ran.err().contains("rejected the user name or password"), "{}", ran.err());
    assert!(!ran.err().contains(SECRET));
    assert!(server.requests().len() <= 3, "{:?}", server.requests());
    let sent = server.requests().iter().filter(|request| has_secret(request)).count();
    assert_eq!(sent, 1, "a wrong password was sent again");
}
