//! Many hosts in the arguments of a copy: the hosts, and the locations of each.
//!
//! ```text
//! 'node[1-3]:/data/'            the list is in the argument
//! --hosts FILE  :/data/         the list is in FILE, and the argument omits the host
//! ```
//!
//! The list is in DEST (to many hosts) or in every SOURCE (from many hosts). With a host in place of
//! the list, an argument is located like any other, so a host may be a remote of the configuration.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use haul_storage::hosts::{HostList, HostListError, ManyHosts};
use haul_storage::{Error, Location};

use crate::args::{CpArgs, HostArgs};
use crate::backends::{Storages, written_below};
use crate::exit::Stop;

/// Longest file of hosts in bytes: 256 for each of at most 65 536 hosts, whose names have at most 253 bytes.
const LONGEST_FILE: u64 = 16 << 20;

/// A copy to or from many hosts.
#[derive(Debug)]
pub(crate) struct Many {
    /// Their names, each once, in the order in which they were given.
    pub(crate) hosts: Vec<String>,
    /// The locations of each host, in the same order.
    pub(crate) direction: Direction,
}

/// The direction of the copy, with the locations.
#[derive(Debug)]
pub(crate) enum Direction {
    /// Every host's DEST.
    To(Vec<Location>),
    /// Every host's SOURCEs and DEST.
    From(Vec<(Vec<Location>, Location)>),
}

/// Finds the hosts in the arguments; `None` if there is no list of hosts.
pub(crate) fn find(args: &CpArgs, storages: &Storages<'_>) -> Result<Option<Many>, Stop> {
    let find = |argument: &OsString| match args.hosts.hosts {
        Some(_) => ManyHosts::find_without_hosts(argument),
        None => ManyHosts::find(argument),
    };
    if args.hosts.hosts.is_some()
        && args.sources.iter().chain([&args.destination]).any(|all| ManyHosts::find(all).is_some())
    {
        return usage("give the hosts in an argument or with --hosts, not both");
    }
    let destination = find(&args.destination);
    let sources: Vec<_> = args.sources.iter().map(find).collect();
    let file = args.hosts.hosts.as_deref().map(read_file).transpose()?;
    match (destination, sources.iter().any(Option::is_some)) {
        (None, false) if file.is_some() => {
            usage("with --hosts either DEST or each SOURCE omits its host: :/dir/, ada@:/dir/")
        }
        (None, false) if args.hosts.exclude_hosts.is_some() => {
            usage("--exclude-hosts needs a list of hosts")
        }
        (None, false) => Ok(None),
        (Some(_), true) => usage("hosts are listed in DEST or in SOURCE, not in both"),
        (Some(destination), false) => to_many(args, storages, &destination, file).map(Some),
        (None, true) => from_many(args, storages, sources, file.as_ref()).map(Some),
    }
}

fn to_many(
    args: &CpArgs,
    storages: &Storages<'_>,
    destination: &ManyHosts,
    file: Option<HostList>,
) -> Result<Many, Stop> {
    let list = match file {
        Some(list) => list,
        None => destination.hosts().map_err(|error| list_error(&error))?,
    };
    let hosts = wanted(&list, &args.hosts)?;
    let located = hosts.iter().map(|host| storages.locate_listed(&destination.with(host), 0));
    let direction = Direction::To(located.collect::<Result<_, _>>()?);
    Ok(Many { hosts, direction })
}

fn from_many(
    args: &CpArgs,
    storages: &Storages<'_>,
    sources: Vec<Option<ManyHosts>>,
    file: Option<&HostList>,
) -> Result<Many, Stop> {
    let Some(sources) = sources.into_iter().collect::<Option<Vec<_>>>() else {
        return usage("if one SOURCE has a list of hosts, each must have one");
    };
    let base = storages.locate(&args.destination)?;
    let mut hosts = Vec::new();
    let mut lists = Vec::new();
    for source in &sources {
        let list = match file {
            Some(list) => list.clone(),
            None => source.hosts().map_err(|error| list_error(&error))?,
        };
        let wanted = wanted(&list, &args.hosts)?;
        hosts.extend(wanted.iter().cloned());
        lists.push(wanted.into_iter().collect::<HashSet<_>>());
    }
    let hosts = each_once(hosts);
    let mut locations = Vec::new();
    for host in &hosts {
        let own =
            sources.iter().zip(&lists).enumerate().filter(|(_, (_, list))| list.contains(host));
        let own = own.map(|(at, (source, _))| storages.locate_listed(&source.with(host), at));
        locations.push((own.collect::<Result<_, _>>()?, directory_of(&base, host)));
    }
    Ok(Many { hosts, direction: Direction::From(locations) })
}

/// The hosts of a list that are not excluded, each once.
fn wanted(list: &HostList, args: &HostArgs) -> Result<Vec<String>, Stop> {
    let excluded: HashSet<String> = match &args.exclude_hosts {
        Some(text) => HostList::parse(text)
            .map_err(|error| Stop::Usage(format!("--exclude-hosts: {error}")))?
            .iter()
            .collect(),
        None => HashSet::new(),
    };
    let wanted = each_once(list.iter().filter(|host| !excluded.contains(host)).collect());
    if wanted.is_empty() {
        return usage("no host remains");
    }
    Ok(wanted)
}

fn each_once(hosts: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    hosts.into_iter().filter(|host| seen.insert(host.clone())).collect()
}

/// The directory of a host below DEST.
fn directory_of(base: &Location, host: &str) -> Location {
    // An IPv6 address is written in brackets, which are not part of the directory's name.
    let name = host.trim_matches(['[', ']']);
    let below = |path: &[u8]| {
        let slash: &[u8] = if path.is_empty() || path.ends_with(b"/") { b"" } else { b"/" };
        [path, slash, name.as_bytes(), b"/"].concat()
    };
    match base.clone() {
        Location::Local(path) => {
            let path = below(path.as_os_str().as_bytes());
            Location::Local(PathBuf::from(OsStr::from_bytes(&path)))
        }
        Location::Remote { scheme, user, host, port, path, query, written } => {
            let name = format!("{name}/");
            let written = written_below(written, name.as_bytes());
            Location::Remote { scheme, user, host, port, path: below(&path), query, written }
        }
        Location::Named { name, path } => Location::Named { name, path: below(&path) },
        Location::Peer { ticket, path } => Location::Peer { ticket, path: below(&path) },
    }
}

fn read_file(path: &Path) -> Result<HostList, Stop> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_string(&mut text))
        .map_err(|error| Error::from_io("read", error).at(path.display()))?;
    if text.len() as u64 > LONGEST_FILE {
        return usage(format!("{}: is too long for a list of hosts", path.display()));
    }
    HostList::parse_lines(&text)
        .map_err(|error| Stop::Usage(format!("{}: {error}", path.display())))
}

fn list_error(error: &HostListError) -> Stop {
    Stop::Usage(format!("hosts {error}; for a local file of that name write ./ before it"))
}

fn usage<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Usage(message.into()))
}
