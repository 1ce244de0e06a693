//! Completes a location: local paths, remotes of the configuration, hosts that SSH knows, and entries of
//! directories on servers.
//!
//! haul waits for a server no longer than [`PATIENCE`], and there is no password prompt: haul detaches from
//! its terminal first.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};
use futures_util::StreamExt;
use haul_http::parse::href::encode_path;
use haul_storage::{EntryStream, Location};

use super::cache::Cache;
use super::hosts;
use crate::args::{Cli, OutputArgs, RemoteArgs};
use crate::backends::Storages;
use crate::config::Config;
use crate::directories;
use crate::exit::Stop;
use crate::output::Printer;

/// The time limit for listing a directory on a server.
const PATIENCE: Duration = Duration::from_secs(3);

/// Listing stops once it has at least this many names.
const NAMES_MOST: usize = 10_000;

/// The candidates for `current`.
pub(super) fn complete(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(text) = current.to_str() else { return PathCompleter::any().complete(current) };
    let command = CommandLine::read();
    match directory_of(text) {
        Some((directory, name)) => remote_paths(&command, directory, name),
        None => {
            let mut found = names(&command, text);
            found.extend(PathCompleter::any().complete(current));
            found
        }
    }
}

/// The remotes of the configuration, without their colon.
pub(super) fn remotes(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_str().unwrap_or_default();
    let CommandLine { config, .. } = CommandLine::read();
    let found = config.remote.into_keys().filter(|name| name.starts_with(current));
    found.map(CompletionCandidate::new).collect()
}

/// Splits a remote location after its last directory: `nas:a/b` is `nas:a/` and `b`. `None` if it is local,
/// or its host is not complete.
fn directory_of(text: &str) -> Option<(&str, &str)> {
    let colon = text.find(':')?;
    if text.find('/').is_some_and(|slash| slash < colon) {
        return None;
    }
    let url = text.find("://").filter(|at| *at == colon);
    let path = match url {
        Some(at) => at + 3 + text[at + 3..].find('/')? + 1,
        None => colon + 1,
    };
    let end = text.rfind('/').map_or(path, |slash| path.max(slash + 1));
    Some(text.split_at(end))
}

/// Remotes and hosts that begin with `text`, each with a colon; after `USER@` only hosts.
fn names(command: &CommandLine, text: &str) -> Vec<CompletionCandidate> {
    let (user, name) = text.split_once('@').map_or(("", text), |(user, name)| (user, name));
    let user = if text.contains('@') { format!("{user}@") } else { user.to_owned() };
    let remotes = command.config.remote.keys().filter(|_| user.is_empty()).cloned();
    let home = env::home_dir().unwrap_or_default();
    let hosts = hosts::known(&home);
    let mut all: Vec<String> =
        remotes.chain(hosts).filter(|known| known.starts_with(name)).collect();
    all.sort();
    all.dedup();
    // Before the first letter, local files are likelier than any host.
    if name.is_empty() && user.is_empty() {
        all.retain(|known| command.config.remote.contains_key(known));
    }
    all.into_iter().map(|known| CompletionCandidate::new(format!("{user}{known}:"))).collect()
}

/// Entries of a directory on a server that begin with `name`.
fn remote_paths(command: &CommandLine, directory: &str, name: &str) -> Vec<CompletionCandidate> {
    let cache = directories::cache().map(|path| Cache::below(&path));
    let Some(key) = command.key(directory) else { return Vec::new() };
    let known = cache.as_ref().and_then(|cache| cache.get(key));
    let names = known.or_else(|| {
        let Names { names, is_complete } = listed(command, directory)?;
        if let Some(cache) = cache.as_ref().filter(|_| is_complete) {
            // If it cannot be cached, it is listed again next time.
            drop(cache.put(key, &names));
        }
        Some(names)
    });
    let is_url = directory.contains("://");
    let written = |entry: &String| {
        if is_url { encode_path(entry.as_bytes()) } else { entry.clone() }
    };
    let names = names.unwrap_or_default();
    // Names that begin with a dot are offered only if the dot has been typed.
    let begins = |entry: &String| {
        entry.starts_with(name) && (name.starts_with('.') || !entry.starts_with('.'))
    };
    let fitting = names.iter().map(written).filter(begins);
    fitting.map(|entry| CompletionCandidate::new(format!("{directory}{entry}"))).collect()
}

/// The names in a directory, sorted, those of directories with a slash.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    names: Vec<String>,
    /// False if part of the listing failed. More names than [`NAMES_MOST`] are complete without the rest.
    is_complete: bool,
}

/// The names in a directory; `None` if it cannot be listed in time.
fn listed(command: &CommandLine, directory: &str) -> Option<Names> {
    // Without a terminal there is no password prompt. Ctrl-C does not reach haul then, so the shell may wait for
    // it as long as `PATIENCE`. If `setsid` fails, nothing is listed.
    rustix::process::setsid().ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let listing =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, list(command, directory)).await });
    // Do not wait for connections and threads to end.
    runtime.shutdown_background();
    listing.ok()?.ok()
}

async fn list(command: &CommandLine, directory: &str) -> Result<Names, Stop> {
    let printer = Printer::new(OutputArgs { quiet: true, ..OutputArgs::default() });
    let storages = Storages::for_names(&command.config, &command.remote, &printer)?;
    let location = storages.locate(OsStr::new(directory))?;
    if matches!(location, Location::Local(_)) {
        return Ok(Names::default());
    }
    let opened = storages.existing(&location).await?;
    Ok(names_of(opened.storage.list(&opened.path).await?).await)
}

async fn names_of(mut batches: EntryStream) -> Names {
    let (mut names, mut is_complete) = (Vec::new(), true);
    while let Some(batch) = batches.next().await {
        is_complete &= batch.is_ok();
        for entry in batch.unwrap_or_default() {
            let slash = if entry.is_dir() { "/" } else { "" };
            // A name that is not UTF-8, or has a control character in it, cannot be passed to a shell.
            if let Ok(name) = std::str::from_utf8(entry.path.name())
                && !name.contains(char::is_control)
            {
                names.push(format!("{name}{slash}"));
            }
        }
        if names.len() >= NAMES_MOST {
            break;
        }
    }
    names.sort();
    Names { names, is_complete }
}

/// The innermost subcommand: `show` in `haul config show`.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

/// The configuration, and the options about servers, in the command line so far.
struct CommandLine {
    config: Config,
    remote: RemoteArgs,
}

impl CommandLine {
    /// Parses the words after the `--` with which the shell calls haul. Invalid ones are ignored.
    fn read() -> Self {
        let words: Vec<OsString> = env::args_os().skip_while(|word| word != "--").skip(1).collect();
        let matches = Cli::command().ignore_errors(true).try_get_matches_from(words).ok();
        let below = matches.as_ref().map(innermost);
        // Not every command has options about servers; reading them from another one would panic.
        let below = below.filter(|below| below.try_contains_id("jump").is_ok());
        let remote = below.and_then(|below| RemoteArgs::from_arg_matches(below).ok());
        let file = matches
            .as_ref()
            .and_then(|matches| matches.try_get_one::<PathBuf>("config").ok().flatten().cloned());
        let config = Config::load(file.as_deref()).unwrap_or_default();
        let mut remote = remote.unwrap_or_default();
        // The command itself writes this file, not its completion.
        remote.web.save_cookies = None;
        Self { config, remote }
    }

    /// The cache key of a listing: a hash of the location, the options about servers, the configuration, and the
    /// secrets of the environment. By `Hash`, because the text of `Debug` leaves out header fields and proxies.
    fn key(&self, directory: &str) -> Option<u64> {
        let location = self.storages()?.locate(OsStr::new(directory)).ok()?;
        let config = self.config.file.as_deref().and_then(|file| fs::read(file).ok());
        let names = haul_storage::secret_variables().into_iter();
        let secrets: Vec<_> = names.map(|name| (env::var_os(&name), name)).collect();
        let mut hasher = DefaultHasher::new();
        (directory, location, &self.remote, config, secrets).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn storages(&self) -> Option<Storages<'_>> {
        let printer = Printer::new(OutputArgs { quiet: true, ..OutputArgs::default() });
        Storages::for_names(&self.config, &self.remote, &printer).ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use haul_storage::{Entry, EntryKind, Error, ErrorKind, RelPath};

    use super::*;

    /// Formerly, it was cached, and the other names were not offered for a minute.
    #[tokio::test]
    async fn a_listing_with_an_error_is_not_complete() {
        let file = |name| Entry::new(RelPath::parse(name).unwrap(), EntryKind::File, 0);
        let broken = || Err(Error::new(ErrorKind::Unreachable, "list"));
        for (batches, names, is_complete) in [
            (vec![Ok(vec![file("b")]), Ok(vec![file("a")])], &["a", "b"][..], true),
            (vec![Ok(vec![file("b")]), broken()], &["b"], false),
            (vec![broken(), Ok(vec![file("a")])], &["a"], false),
        ] {
            let found = names_of(stream::iter(batches).boxed()).await;
            let names = names.iter().copied().map(ToOwned::to_owned).collect();
            assert_eq!(found, Names { names, is_complete });
        }
    }
}
