//! `haul cp`: copies files and trees.

use std::collections::BTreeSet;

use haul_net::with_port;
use haul_storage::{DigestKind, Location, Scheme};

use super::{fan, pipe, receive, transfer};
use crate::args::{CpArgs, WebArgs};
use crate::backends::Storages;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::input_list::Listed;
use crate::output::Printer;
use crate::plan::{Plan, Wanted};
use crate::settings::Resolved;
use crate::{hosts, input_list, plan, settings};

/// Runs `haul cp`.
pub(crate) async fn run(args: &CpArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let resolved = settings::resolve(&args.transfer, config).map_err(Stop::Usage)?;
    let done = resolved.done.clone();
    done.after(Box::pin(copied(args, resolved, config, printer)).await, printer)
}

async fn copied(
    args: &CpArgs,
    resolved: Resolved,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let storages = Storages::for_transfer(config, &resolved, &args.remote, printer)?;
    let fetched = args.fetch.first_given();
    if let Some(many) = hosts::find(args, &storages)? {
        if let Some(option) = fetched {
            return Err(Stop::Usage(format!("{option} cannot be used with many hosts")));
        }
        return fan::run(args, &many, resolved, &storages, printer).await;
    }
    if let Some(option) = fetched {
        let plan = fetch(args, option, &resolved, &storages, printer).await?;
        let destination = storages.locate(&args.destination)?;
        let how = (args.yes, resolved.engine.dry_run);
        if !receive::confirm(&plan, &destination, how, &storages, printer).await? {
            return Ok(Exit::Failed);
        }
        return Ok(transfer::run(plan, resolved, &storages, printer).await?.exit);
    }
    if args.destination == pipe::STREAM {
        return pipe::to_output(&args.sources, &storages, resolved, printer).await;
    }
    if args.sources.iter().any(|source| source == pipe::STREAM) {
        if args.sources.len() > 1 {
            let message = "standard input ('-') is copied alone; write ./- for a file of that name";
            return Err(Stop::Usage(message.to_owned()));
        }
        let destination = storages.locate(&args.destination)?;
        return pipe::from_input(&destination, &storages, resolved, printer).await;
    }
    let destination = storages.locate(&args.destination)?;
    let sources = storages.expand_all(&args.sources).await?;
    let plan = plan::copy(&storages, &sources, &destination, &resolved.rules).await?;
    let how = (args.yes, resolved.engine.dry_run);
    if !receive::confirm(&plan, &destination, how, &storages, printer).await? {
        return Ok(Exit::Failed);
    }
    Ok(transfer::run(plan, resolved, &storages, printer).await?.exit)
}

/// The plan of a copy with options for downloads; `option` is the first of those given.
async fn fetch(
    args: &CpArgs,
    option: &str,
    resolved: &Resolved,
    storages: &Storages<'_>,
    printer: &Printer,
) -> Result<Plan, Stop> {
    let usage = |message: String| Err(Stop::Usage(message));
    if args.destination == pipe::STREAM || args.sources.iter().any(|source| source == pipe::STREAM)
    {
        return usage(format!("{option} cannot be used with standard input or output ('-')"));
    }
    if resolved.rules.list().is_some() {
        return usage(format!("{option} cannot be used with --files-from"));
    }
    if resolved.engine.remove_source {
        return usage(format!("{option} cannot be used with --remove-source-files"));
    }
    // Nothing is copied if any line of the list is wrong.
    let listed = match &args.fetch.input_file {
        Some(file) => input_list::read(file).map_err(Stop::Usage)?,
        None => Vec::new(),
    };
    let from_list = !listed.is_empty();
    // Everything is located before a pattern is expanded.
    let destination = storages.locate(&args.destination)?;
    let mirrors = args.fetch.mirrors.iter().map(|mirror| storages.locate(mirror));
    let mirrors = mirrors.collect::<Result<Vec<_>, _>>()?;
    let mut of_list = Vec::new();
    for Listed { at, locations, directory, name, expected } in listed {
        let located = locations.iter().map(|one| storages.locate(one)).collect::<Result<_, _>>();
        let locations = located.map_err(|stop| match stop {
            Stop::Usage(message) => Stop::Usage(format!("{at}: {message}")),
            failed => failed,
        })?;
        of_list.push(Wanted { locations, directory, name, expected, listed_at: Some(at) });
    }
    let sources = storages.expand_all(&args.sources).await?;
    let mut wanted: Vec<_> = sources.into_iter().map(Wanted::from).chain(of_list).collect();
    let is_of_one = !args.fetch.mirrors.is_empty() || args.fetch.expect.is_some();
    match wanted.as_mut_slice() {
        [one] if !from_list => {
            one.locations.extend(mirrors);
            one.expected = args.fetch.expect.map(|expect| expect.0);
        }
        _ if is_of_one && from_list => {
            return usage(
                "--mirror and --expect need exactly one SOURCE; in a list, write mirrors on one \
                 line, \
                 separated by tabs, and checksum=sha-256=HEX indented on the next"
                    .to_owned(),
            );
        }
        _ if is_of_one => {
            return usage("--mirror and --expect need exactly one SOURCE".to_owned());
        }
        _ => {}
    }
    check_manifest(&wanted, args.fetch.expect_beside, resolved)?;
    if from_list || !args.fetch.mirrors.is_empty() {
        let sources = wanted.iter().flat_map(|one| &one.locations);
        check_headers(&args.remote.web, sources.chain([&destination]))?;
    }
    let how = (from_list, args.fetch.expect_beside);
    plan::fetch(storages, wanted, &destination, &resolved.rules, how, printer).await
}

/// Refuses to send one server's headers to all servers of a list, or of mirrors: the author of a list may have added
/// their own server.
fn check_headers<'a>(
    web: &WebArgs,
    locations: impl Iterator<Item = &'a Location>,
) -> Result<(), Stop> {
    let option = match (&web.headers[..], &web.cookies[..]) {
        ([], []) => return Ok(()),
        ([], _) => "--cookie",
        _ => "--header",
    };
    let servers: BTreeSet<_> = locations.filter_map(web_server).collect();
    if servers.len() < 2 {
        return Ok(());
    }
    let some: Vec<_> = servers.iter().take(3).map(String::as_str).collect();
    let more = if servers.len() > some.len() { ", …" } else { "" };
    Err(Stop::Usage(format!(
        "{option} would be sent to each of {} servers: {}{more}\n\
         hint: write headers = {{ NAME = \"VALUE\" }} into [remote.NAME] of the configuration for the one that it is \
         for",
        servers.len(),
        some.join(", ")
    )))
}

/// The server of an HTTP or WebDAV location.
fn web_server(location: &Location) -> Option<String> {
    let Location::Remote { scheme, host, port, .. } = location else { return None };
    let (scheme, default_port) = match scheme {
        Scheme::Http | Scheme::Dav => ("http", 80),
        Scheme::Https | Scheme::Davs => ("https", 443),
        Scheme::Sftp | Scheme::Ftp | Scheme::Ftps => return None,
    };
    let port = port.filter(|port| *port != default_port).unwrap_or(0);
    Some(format!("{scheme}://{}", with_port(&host.to_ascii_lowercase(), port)))
}

/// A manifest lists digests of one kind, and haul computes one digest per file.
fn check_manifest(wanted: &[Wanted], beside: bool, resolved: &Resolved) -> Result<(), Stop> {
    let Some(manifest) = &resolved.manifest else { return Ok(()) };
    let kinds = wanted.iter().filter_map(|one| Some(one.expected?.kind));
    let mut kinds = kinds.chain(beside.then_some(DigestKind::Sha256));
    match kinds.find(|kind| *kind != manifest.digest) {
        Some(kind) => Err(Stop::Usage(format!(
            "the manifest lists {} digests, and a {} digest is expected: write --digest {1}",
            manifest.digest.name(),
            kind.name()
        ))),
        None => Ok(()),
    }
}
