//! Properties of any text and any location.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;

use super::*;
use crate::location::ticket::WHOLE_TICKET;

/// Text that resembles every form, so that random input reaches the parser's corner cases.
fn nearly_a_location() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just("sftp://"),
        Just("http:/"),
        Just("haul1"),
        Just("abcdefghijklmnop"),
        Just("host"),
        Just(":"),
        Just("@"),
        Just("/"),
        Just("["),
        Just("]"),
        Just("::1"),
        Just("?"),
        Just("#"),
        Just("%"),
        Just("%25"),
        Just("%3A"),
        Just("~"),
        Just("."),
        Just("-"),
        Just("22"),
        Just(" "),
        Just("\u{e9}"),
        Just("\n"),
        Just("x"),
    ];
    prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
}

fn path_text() -> impl Strategy<Value = String> {
    // Only paths that are printed without escapes.
    "[^\\p{Cc}]{0,20}".prop_filter("shown escaped", |path| {
        crate::text::name(path.as_bytes()).to_string() == *path
    })
}

fn remote_location() -> impl Strategy<Value = Location> {
    let scheme = prop::sample::select(Scheme::NAMES.map(|(_, scheme)| scheme).to_vec());
    let user = prop::option::of("[^\\p{Cc}/:-][^\\p{Cc}/:]{0,8}");
    let host = prop_oneof![
        "[a-z0-9][a-z0-9.-]{0,10}".boxed(),
        Just("::1".to_owned()).boxed(),
        "fe80::[1-9a-f]{1,4}%[a-z0-9]{1,5}".boxed(),
    ];
    let path = "[^\\x00]{0,20}";
    (scheme, user, host, prop::option::of(1..=u16::MAX), path).prop_map(
        |(scheme, user, host, port, path)| {
            let path = match scheme {
                // A path below the home directory does not begin with a slash.
                Scheme::Sftp => path,
                _ if path.is_empty() => path,
                _ => format!("/{path}"),
            };
            Location::Remote {
                scheme,
                user,
                host,
                port,
                path: path.into_bytes(),
                query: None,
                written: None,
            }
        },
    )
}

fn any_location() -> impl Strategy<Value = Location> {
    let of_name = ("[a-z0-9_][a-z0-9._-]{0,10}", path_text())
        .prop_map(|(name, path)| named(&name, &path))
        .prop_filter("not the result of parsing", |location| {
            let path = location.path_bytes();
            let home = path.starts_with(b"~") && matches!(path.get(1), None | Some(b'/'));
            let head = path.split(|byte| *byte == b'/').next().unwrap_or_default();
            let at = head.iter().position(|byte| *byte == b'@');
            let password = at.is_some_and(|at| head[at..].contains(&b':'));
            !home && !password && !path.starts_with(b"//")
        });
    let of_path = path_text()
        .prop_filter("an empty path", |path| !path.is_empty())
        .prop_filter("what is shown with './'", |path| {
            !path.contains(':') && !path.starts_with("haul1")
        })
        .prop_map(|path| local(&path));
    prop_oneof![remote_location(), of_name, of_path]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_parsing_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        drop(Location::parse(OsString::from_vec(bytes)));
    }

    #[test]
    fn any_text_gives_one_line_of_output_without_panic(text in nearly_a_location()) {
        let shown = match Location::parse(&text) {
            Ok(location) => {
                prop_assert!(location.path_bytes().len() >= location.base_name().len());
                location.display(&RelPath::parse("x").unwrap()).to_string()
            }
            Err(error) => error.to_string(),
        };
        prop_assert!(!shown.contains('\n'), "{shown}");
    }

    #[test]
    fn a_printed_location_parses_to_the_same_location(location in any_location()) {
        let shown = location.to_string();
        let again = Location::parse(&shown);
        prop_assert_eq!(again.as_ref(), Ok(&location), "shown as {}", shown);
    }

    #[test]
    fn a_parsed_location_survives_printing_and_parsing(text in nearly_a_location()) {
        if let Ok(location) = Location::parse(&text)
            && !matches!(location, Location::Peer { .. } | Location::Remote { query: Some(_), .. })
            && !text.contains('\n')
        {
            let shown = location.to_string();
            let again = Location::parse(&shown);
            prop_assert_eq!(again.as_ref(), Ok(&location), "shown as {}", shown);
        }
    }

    #[test]
    fn a_leading_slash_or_dot_slash_is_always_local(
        start in prop_oneof![Just("/"), Just("./"), Just("../")],
        text in nearly_a_location(),
    ) {
        let text = format!("{start}{text}");
        prop_assert_eq!(parse(&text), local(&text));
    }

    /// Anything between colon and `@` may be a password.
    #[test]
    fn no_error_reveals_text_between_colon_and_at(
        before in nearly_a_location(),
        secret in "[QXZ]{5,9}",
        after in nearly_a_location(),
    ) {
        let text = format!("{before}:{secret}@{after}");
        if let Err(error) = Location::parse(&text) {
            let message = error.to_string();
            prop_assert!(!message.contains(&secret), "{message}");
        }
    }

    #[test]
    fn no_error_reveals_a_ticket(
        secret in "[a-z2-7]{24}",
        after in nearly_a_location(),
        upper in any::<bool>(),
    ) {
        let ticket = format!("haul1{secret}{after}");
        let ticket = if upper { ticket.to_uppercase() } else { ticket };
        let shown = match Location::parse(&ticket) {
            Ok(location) => location.to_string(),
            Err(error) => error.to_string(),
        };
        let shown = shown.to_lowercase();
        let length = ticket.bytes().take_while(u8::is_ascii_alphanumeric).count();
        if length < WHOLE_TICKET {
            prop_assert!(!shown.contains(&secret[..8]), "{shown}");
        } else {
            // The first 18 characters of a whole ticket are not secret.
            let ticket = ticket.to_lowercase();
            prop_assume!(!ticket[..18].contains(&ticket[18..24]));
            prop_assert!(!shown.contains(&ticket[..19]), "{shown}");
            prop_assert!(!shown.contains(&ticket[18..24]), "{shown}");
        }
    }
}
