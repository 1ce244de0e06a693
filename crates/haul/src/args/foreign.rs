//! Options of rsync, scp, rclone, aria2, curl, wget and the like that haul does not have, and what to write
//! instead.
//!
//! Users type them out of habit, so clap's suggestion of a similarly spelled option would be wrong.
//! docs/options.md has the same table; a test compares the two.

/// Spellings of an option in other tools, and the hint that haul prints for it.
pub(crate) type Foreign = (&'static [&'static str], &'static str);

/// The hint for an option in the form that clap reports: `--name`, `--name=value` or `-x`.
pub(crate) fn hint(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or(option);
    FOREIGN.iter().find(|(names, _)| names.contains(&name)).map(|(_, hint)| *hint)
}

/// All hints, roughly grouped by tool.
pub(crate) const FOREIGN: &[Foreign] = &[
    // rsync: what to copy.
    (&["--immutable"], "write --overwrite never: leave files that exist at the destination alone"),
    (
        &["--filter", "--filter-from"],
        "write --include, --exclude, --include-from, --exclude-from or --ignore-file; the first match decides",
    ),
    (
        &["-m", "--prune-empty-dirs"],
        "haul copies empty directories too; exclude them with --exclude NAME/",
    ),
    // rsync: what to preserve.
    (
        &["-L", "--copy-links", "--copy-unsafe-links", "--safe-links", "-k", "--copy-dirlinks"],
        "haul follows links that are named as sources, and copies those inside a tree as links",
    ),
    (&["--usermap", "--groupmap"], "write --chown USER:GROUP: all copies get one owner"),
    // rsync: how.
    (&["--zc", "--compress-level"], "write -z or -C: SSH connections are compressed"),
    (
        &["--no-whole-file"],
        "haul always sends whole files, in ranges over several connections; omit the option",
    ),
    (
        &["--partial-dir", "--continue"],
        "haul always keeps partial files and resumes them; omit the option (--no-resume starts \
         over)",
    ),
    (
        &["--info"],
        "haul shows progress on a terminal; omit the option (--no-progress hides it, -v prints \
         every file)",
    ),
    (
        &["--out-format"],
        "write --itemize-changes or -v: it prints every file and why it is copied; --json has all figures",
    ),
    (
        &["--link-dest", "--copy-dest", "--compare-dest"],
        "haul makes no hard links to an earlier copy; on btrfs and XFS, copy the earlier copy \
         with cp --reflink=always and haul sync into it: that takes no more space",
    ),
    (
        &["--inplace", "--append", "--append-verify"],
        "haul writes a part file and renames it when it is complete; partial files resume",
    ),
    (
        &["--delete-before", "--delete-during", "--del", "--delete-delay", "--delete-after"],
        "write haul sync --delete: it removes files after all copies are complete",
    ),
    (
        &["--delete-excluded", "--force"],
        "haul sync --delete never removes excluded files; remove them with haul rm -r",
    ),
    (&["--delete"], "write haul sync --delete SOURCE DEST: haul cp never removes anything"),
    (
        &["-e", "--rsh", "--rsync-path"],
        "haul has SSH built in: -P PORT, -i KEY, -J HOST and -o NAME=VALUE as scp has them",
    ),
    (&["--password-file"], "set HAUL_PASSWORD, or password-command in the configuration"),
    (&["--port"], "write -P PORT, or the port in the location: sftp://HOST:PORT/PATH"),
    (
        &["--fuzzy", "--delay-updates", "--no-delay-updates"],
        "omit the option: haul has no delta transfer, and a file appears when it is complete",
    ),
    (&["--bwlimit-file"], "write --bwlimit RATE: 10M (bytes per second), 80mbit"),
    // scp.
    (&["-3"], "haul always copies between two servers through this machine; omit the option"),
    (&["-T", "-O", "-s", "-D"], "haul always uses the SFTP protocol; omit the option"),
    // rclone.
    (
        &["--transfers", "--checkers"],
        "write --files N: files in flight at once; by default haul measures the path",
    ),
    (
        &[
            "--multi-thread-streams",
            "--multi-thread-cutoff",
            "--streams",
            "--max-connection-per-server",
            "--nrconns",
        ],
        "write --lanes N: connections to a server; by default haul measures the path",
    ),
    (
        &["--buffer-size", "--max-backlog", "--disk-cache"],
        "write --memory SIZE: maximum memory for data in flight",
    ),
    (
        &["--no-check-certificate"],
        "write --insecure; anyone on the path can then read and change everything",
    ),
    (&["--no-traverse", "--fast-list", "--use-mmap"], "omit the option: haul has no such mode"),
    (&["--order-by"], "write --order size, name or time; --order -size begins with the largest"),
    (&["--low-level-retries", "--max-tries", "--retry", "--tries"], "write --retries N"),
    (&["--interactive"], "use --dry-run first; haul does not prompt for files"),
    (
        &["--max-transfer", "--max-duration"],
        "stop haul with a signal: the same command resumes (timeout 1h haul cp ...)",
    ),
    // aria2, curl and wget.
    (&["-j", "--max-concurrent-downloads"], "write --files N: files in flight at once"),
    (
        &["--dir", "--out", "--output", "--output-dir", "--remote-name"],
        "name the destination last: haul cp URL DEST",
    ),
    (
        &["--limit-rate", "--max-download-limit", "--max-overall-download-limit"],
        "write --bwlimit RATE: 10M (bytes per second), 80mbit",
    ),
    (&["--continue-at"], "omit the option: haul resumes partial files by itself"),
    (&["--location"], "omit the option: haul follows redirects"),
    (
        &["--user", "--http-user", "--http-passwd"],
        "write the user in the location, dav://USER@HOST/; the password comes from HAUL_PASSWORD, ~/.netrc, the configuration or the terminal",
    ),
    (
        &[
            "--http-proxy",
            "--https-proxy",
            "--ftp-proxy",
            "--socks5",
            "--socks5-hostname",
            "--proxy-user",
        ],
        "write --proxy URL: http://, https://, socks5:// or socks5h://, then [USER:PASSWORD@]HOST[:PORT]",
    ),
    (&["--no-proxy", "--noproxy"], "write --proxy none, or set no_proxy to exclude hosts"),
    (
        &["--netrc", "--netrc-file", "--netrc-path"],
        "haul reads ~/.netrc; set NETRC for another file",
    ),
    (
        &["--keep-session-cookies", "--junk-session-cookies"],
        "omit the option: --save-cookies writes all cookies",
    ),
    (&["--ca-certificate", "--capath"], "write --cacert FILE"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_has_two_hints() {
        let mut all: Vec<_> = FOREIGN.iter().flat_map(|(names, _)| *names).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let page = include_str!("../../../../docs/options.md");
        let (_, page) = page.split_once("\n## Options of other tools\n").unwrap();
        for (names, hint) in FOREIGN {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| {} | {hint} |", names.join(", "));
            assert!(page.contains(&row), "docs/options.md has no line {row}");
        }
        assert_eq!(page.lines().filter(|line| line.starts_with("| `")).count(), FOREIGN.len());
    }

    #[test]
    fn an_option_value_is_not_part_of_the_name() {
        assert_eq!(hint("--max-transfer=10M"), hint("--max-transfer"));
        assert!(hint("--max-transfer").is_some());
        assert_eq!(hint("--verfy"), None);
    }
}
