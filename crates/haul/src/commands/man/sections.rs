//! The sections of a command's manual page besides its options: examples, files, environment, exit status.

use std::fmt::Write as _;

/// Example command lines, each with a description.
pub(super) type Examples = &'static [(&'static str, &'static str)];

/// The examples of a command, by its full name (`serve dav`).
pub(super) fn examples(command: &str) -> Examples {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

pub(super) const EXAMPLES: &[(&str, Examples)] = &[
    (
        "cp",
        &[
            ("haul cp photos backup", "Copy a directory: backup/photos. Run it again to resume."),
            ("haul cp photos ada@nas.example:", "Copy it to the home directory on a server."),
            ("haul cp 'nas.example:logs/*.gz' .", "Fetch the files on a server that match."),
            (
                "haul cp --input-file urls.txt downloads",
                "Copy every source in a list, one per line.",
            ),
            (
                "haul cp --mirror https://b.example/x.iso https://a.example/x.iso .",
                "Download one file from two servers at once.",
            ),
            (
                "haul cp --expect-beside https://host.example/x.iso .",
                "Download it only if it has the digest in x.iso.sha256 or SHA256SUMS.",
            ),
            ("haul cp -n photos backup", "Print what would be copied, and why."),
            (
                "haul cp 7-orbit-candle/ photos",
                "Fetch what another machine shares, by its spoken code.",
            ),
            (
                "haul cp --verify --manifest photos backup",
                "Read everything back, and write backup/SHA256SUMS.",
            ),
            ("haul cp photos 'node[01-20]:/data/'", "Copy it to twenty hosts, reading it once."),
            ("tar c photos | haul cp - nas.example:photos.tar", "Store standard input as a file."),
        ],
    ),
    (
        "sync",
        &[
            ("haul sync -n --delete photos backup", "Print what would be copied and removed."),
            ("haul sync --delete photos backup", "Make backup like photos."),
            (
                "haul sync --delete --backup-dir .old photos backup",
                "Keep replaced and removed files in backup/.old.",
            ),
            (
                "haul sync --bwlimit 80mbit photos nas.example:photos",
                "Leave bandwidth for other users of the line.",
            ),
        ],
    ),
    (
        "mv",
        &[
            ("haul mv photos backup/", "Move a directory, by renaming it if that is possible."),
            ("haul mv -n 'nas.example:in/*.csv' .", "Print what would be moved."),
        ],
    ),
    (
        "ls",
        &[
            ("haul ls -lh nas.example:", "List a home directory with sizes and times."),
            (
                "haul ls -lt 'https://host.example/pub/'",
                "List a directory of a web server, newest first.",
            ),
        ],
    ),
    ("cat", &[("haul cat nas.example:log.gz | zcat | less", "Read a file on a server.")]),
    ("du", &[("haul du -sh 'nas.example:*'", "Print the size of each directory.")]),
    (
        "check",
        &[
            ("haul check photos nas.example:photos", "Compare by size and time."),
            ("haul check --checksum photos nas.example:photos", "Compare by content."),
        ],
    ),
    ("verify", &[("haul verify --strict backup", "Check every file against backup/SHA256SUMS.")]),
    (
        "rm",
        &[
            ("haul rm -rn nas.example:old", "Print what would be removed."),
            ("haul rm 'nas.example:logs/*.tmp'", "Remove the files that match."),
        ],
    ),
    ("mkdir", &[("haul mkdir -p nas.example:2026/11", "Create a directory and those above it.")]),
    (
        "mount",
        &[
            ("haul mount nas.example:photos ~/nas", "Show a directory of a server as a folder."),
            (
                "haul mount --daemon --cache-dir ~/.cache/nas nas.example:photos ~/nas",
                "The same in the background, with a cache on disk.",
            ),
            (
                "haul mount --read-write nas.example:photos ~/nas",
                "Allow changes, which are uploaded in the background.",
            ),
            ("haul mount --status", "Print what all mounts do."),
            ("haul mount --pending", "List files that wait to be uploaded."),
        ],
    ),
    (
        "serve sftp",
        &[(
            "haul serve sftp --authorized-keys ~/.ssh/authorized_keys /srv/data",
            "Serve a directory to the owners of these keys.",
        )],
    ),
    (
        "serve dav",
        &[("haul serve dav --read-only /srv/data", "Serve a directory to this machine.")],
    ),
    (
        "share",
        &[
            ("haul share photos", "Print a ticket with which another machine reads photos."),
            ("haul share --writable inbox", "Let the holder of the ticket write, too."),
            (
                "haul share --keep --qr photos",
                "Print the same ticket in every run, and as a QR code.",
            ),
            ("haul share notes.txt scans", "Share a file and a directory with one ticket."),
            (
                "haul share --code photos",
                "Print a spoken code, as in 7-orbit-candle; needs a bridge.",
            ),
            (
                "tar c photos | haul share --name photos.tar -",
                "Share standard input as a file of this name.",
            ),
            ("haul share --revoke photos", "Make the tickets of --keep for photos invalid."),
        ],
    ),
    (
        "peers",
        &[
            ("haul peers add nas @ticket.txt", "Store a ticket; peer:nas is its location."),
            ("haul peers forget nas", "Remove it."),
        ],
    ),
    (
        "bridge",
        &[(
            "haul bridge --token @/etc/haul/bridge-token",
            "Connect receivers to sharers who know the token.",
        )],
    ),
    (
        "config list",
        &[("haul config list", "List the remotes with their locations, and the defaults.")],
    ),
    (
        "config show",
        &[("haul config show nas", "Show host, port, user, keys and where each comes from.")],
    ),
    ("config path", &[("haul config path", "Print where the configuration file is.")]),
    ("config edit", &[("haul config edit", "Open the file in $VISUAL or $EDITOR, and check it.")]),
    (
        "config check",
        &[
            ("haul config check", "Print every error in the file."),
            ("haul config check --connect", "Connect to every remote as well."),
        ],
    ),
    (
        "config add",
        &[
            ("haul config add nas", "Prompt for protocol, host, user and path, and add a remote."),
            (
                "haul config add nas sftp://ada@nas.example/volume1",
                "Add a remote without prompts for its location.",
            ),
        ],
    ),
    ("config remove", &[("haul config remove nas", "Remove a remote.")]),
    ("demo", &[("haul demo", "Copy, kill, resume and verify real data on this machine.")]),
    (
        "completions",
        &[(
            "haul completions bash >~/.local/share/bash-completion/completions/haul",
            "Install the completions for bash.",
        )],
    ),
    ("man", &[("haul man cp | man -l -", "Read the page of a command.")]),
];

const FILES: &[(&str, &str)] = &[
    ("~/.config/haul/config.toml", "The configuration: defaults, profiles, remotes."),
    (
        "~/.local/state/haul/",
        "Cached facts about servers, journals of uploads, keys, tickets, and files that mounts have yet to upload.",
    ),
    ("~/.cache/haul/completion/", "Listings of servers, cached for a minute for completion."),
    ("~/.ssh/config, ~/.ssh/known_hosts", "Read as ssh reads them."),
    ("~/.netrc", "Names and passwords for HTTP and WebDAV."),
    (
        ".NAME.haul-part, .NAME.haul-journal, .NAME.ID.haul-upload",
        "A partial file, and the journal of the ranges written; in the directory of the file. The last is on a server.",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("HAUL_CONFIG", "The configuration file."),
    ("NO_COLOR", "No colours, if it is set and not empty; see --color."),
    ("VISUAL, EDITOR", "The editor of haul config edit."),
    ("HAUL_PASSWORD, HAUL_PASSWORD_NAME", "The password of the only host, or of [remote.NAME]."),
    ("HAUL_TOKEN, HAUL_TOKEN_NAME", "A bearer token for HTTP and WebDAV."),
    ("HAUL_TICKET", "The ticket of the location ticket:."),
    ("HAUL_BRIDGE_TOKEN", "The token of a bridge, for haul bridge and haul share --bridge."),
    ("HAUL_LAN", "no: as --no-lan in every command; yes overrides lan in the configuration."),
    (
        "HAUL_PORT_MAPPING",
        "no: as haul share --no-port-mapping; yes overrides port-mapping in the configuration.",
    ),
    ("NETRC", "A file to use instead of ~/.netrc."),
    (
        "http_proxy, https_proxy, ftp_proxy, all_proxy, no_proxy",
        "Proxies for HTTP, WebDAV and FTP (SOCKS5 only), as for curl.",
    ),
    (
        "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME",
        "Directories to use instead of ~/.config, ~/.local/state and ~/.cache.",
    ),
];

const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "All done."),
    ("1", "Something failed; each failure was printed, everything else was done."),
    ("2", "Usage error; nothing was done."),
    ("130, 143", "Interrupted, terminated; run the same command again to continue."),
];

/// The sections as troff source.
pub(super) fn sections(command: &str) -> String {
    let mut page = String::new();
    section(&mut page, "EXAMPLES", examples(command));
    section(&mut page, "FILES", FILES);
    section(&mut page, "ENVIRONMENT", ENVIRONMENT);
    section(&mut page, "EXIT STATUS", EXIT_STATUS);
    page
}

fn section(page: &mut String, heading: &str, entries: &[(&str, &str)]) {
    if entries.is_empty() {
        return;
    }
    // Writing to a string does not fail.
    _ = writeln!(page, ".SH \"{heading}\"");
    for (term, text) in entries {
        _ = writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(text));
    }
}

/// Escapes text for troff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with one of these would be a command.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_has_examples_that_parse() {
        for (command, examples) in EXAMPLES {
            for (line, _) in *examples {
                let words = line.split(" | ").find(|part| part.starts_with("haul ")).unwrap();
                let words = words.split(" >").next().unwrap().replace('\'', "");
                let parsed = Cli::try_parse_from(words.split_whitespace());
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                assert!(words.starts_with(&format!("haul {command}")), "{line}");
            }
        }
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            let name = command.get_name();
            let has = EXAMPLES.iter().any(|(of, _)| of.split(' ').next() == Some(name));
            assert!(has, "{name} has no example");
        }
    }

    #[test]
    fn escaped_text_is_not_a_troff_command() {
        assert_eq!(escaped(".NAME-x"), "\\&.NAME\\-x");
        assert_eq!(escaped("'a'"), "\\&'a'");
        assert_eq!(escaped("a\\b"), "a\\eb");
    }
}
