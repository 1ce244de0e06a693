//! Resolves options to settings. For each option, the first layer that sets it wins:
//!
//! ```text
//! command line → profile of the configuration → built-in profile → [defaults] → defaults of the command
//!              → defaults of the engine
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use haul_engine::{
    ChangeOwner, Compare, ModeChanges, Owners, Preserve, Selection, Settings, WindowProfile,
};
use haul_storage::DigestKind;

use crate::args::{SelectArgs, TransferArgs};
use crate::asked::Asked;
use crate::config::Config;
use crate::done::Done;
use crate::filter::{NameList, Rule, Rules};
use crate::options::{DigestArg, ManifestArg, Options, PreserveArg, ProgressArg, SplitArg};
use crate::profiles::{BUILT_IN_PROFILES, built_in};
use crate::units::{Count, SizeIn, Switch};

/// The settings of a transfer: everything but its sources and its destination.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// For the engine.
    pub(crate) engine: Settings,
    /// Which paths take part; also in `engine.filter`.
    pub(crate) rules: Rules,
    /// The manifest to write, if any.
    pub(crate) manifest: Option<ManifestChoice>,
    /// Which files are stored as folders of parts, and whether such folders are read as files.
    pub(crate) split: SplitArg,
    /// Backup of replaced and removed files, if any.
    pub(crate) backup: Option<BackupChoice>,
    /// The given options that the destination may not support.
    pub(crate) asked: Asked,
    /// How much is printed.
    pub(crate) show: Show,
    /// The command to run and the bell to ring at the end.
    pub(crate) done: Done,
}

/// Where backups are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackupChoice {
    /// A path below DEST; `None` means next to the file.
    pub(crate) directory: Option<OsString>,
    /// Suffix appended to the file's name.
    pub(crate) suffix: Vec<u8>,
}

/// What a transfer prints in addition to its last line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Show {
    /// Every file.
    pub(crate) files: bool,
    /// Detailed totals.
    pub(crate) stats: bool,
    /// The files in flight, on a terminal.
    pub(crate) current: bool,
}

/// A manifest to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestChoice {
    /// The kind of its digests.
    pub(crate) digest: DigestKind,
    /// Its path; `None` means the default name in DEST.
    pub(crate) file: Option<PathBuf>,
}

/// The owners that the engine tries to set. An unprivileged user can set only some of them; the others are skipped,
/// unless owners were requested explicitly: then it is an error.
fn owners(preserve: PreserveArg) -> Owners {
    let user = rustix::process::geteuid();
    if user.is_root() || preserve.owner_is_named || !preserve.owner {
        return Owners::Any;
    }
    let mut groups = vec![rustix::process::getegid().as_raw()];
    // If the list cannot be read, only the effective group is known to be allowed.
    groups.extend(
        rustix::process::getgroups().unwrap_or_default().iter().map(|group| group.as_raw()),
    );
    Owners::Own { user: user.as_raw(), groups }
}

/// Resolves the arguments of a transfer.
///
/// # Errors
/// A usage error, as text.
pub(crate) fn resolve(args: &TransferArgs, config: &Config) -> Result<Resolved, String> {
    resolve_with(args, config, &Options::default())
}

/// Like [`resolve`], for a command with defaults of its own. They apply where the configuration sets nothing.
pub(crate) fn resolve_with(
    args: &TransferArgs,
    config: &Config,
    command_defaults: &Options,
) -> Result<Resolved, String> {
    let mut given = args.options.clone();
    if args.no_resume {
        given.resume = Some(Switch(false));
    }
    if args.no_manifest {
        given.manifest = Some(ManifestArg::No);
    }
    if args.archive {
        given.preserve = Some(PreserveArg::ALL);
    }
    let select = &args.select;
    given.overwrite = select.overwrite().or(given.overwrite);
    given.bwlimit = select.limit.map(|limit| limit.0).or(given.bwlimit);
    let mut rules = args.filter.rules()?;
    // Without the defaults of the command: the user has not given them.
    let own = merge_layers(given.clone(), config, &Options::default(), &mut Vec::new())?.0;
    let (options, window_profile) = merge_layers(given, config, command_defaults, &mut rules)?;
    let (digest, manifest) = digests(&options)?;
    let list = select.files_from.as_deref().map(NameList::read).transpose()?;
    let rules = Rules::new(rules)?.only(list);

    let mut engine = Settings {
        digest,
        digest_unchanged: manifest.is_some(),
        profile: window_profile,
        filter: rules.filter(),
        dry_run: args.dry_run,
        ..Settings::default()
    };
    engine_settings(&options, &mut engine)?;
    command_line_settings(args, &mut engine)?;
    let split = if args.join { SplitArg::Join } else { options.split.unwrap_or(SplitArg::Auto) };
    let current = options.progress == Some(ProgressArg::Files);
    let show = Show { files: args.itemize_changes, stats: args.stats, current };
    let is_on = |switch: Option<Switch>| switch.is_some_and(|switch| switch.0);
    // A dry run changes nothing, so it must not run the command either.
    let command = options.on_done.filter(|_| !args.dry_run);
    let done = Done::new(command, is_on(options.bell));
    let asked = Asked::of(args, own.preserve, engine.sync);
    Ok(Resolved { engine, rules, manifest, split, backup: backup(select)?, asked, show, done })
}

/// Applies the settings that only the command line has.
fn command_line_settings(args: &TransferArgs, engine: &mut Settings) -> Result<(), String> {
    let select = &args.select;
    if select.checksum || select.size_only {
        if engine.overwrite != haul_engine::Overwrite::Different {
            return Err("--checksum and --size-only need --overwrite different; omit one of them"
                .to_owned());
        }
        engine.compare = if select.checksum { Compare::Content } else { Compare::Size };
    }
    engine.existing_only = select.existing;
    engine.remove_source = select.remove_source_files;
    engine.one_file_system = select.one_file_system;
    engine.selection = Selection {
        min_size: select.min_size.map(|size| size.0),
        max_size: select.max_size.map(|size| size.0),
        modified_from: select.max_age.map(|moment| moment.0),
        modified_until: select.min_age.map(|moment| moment.0),
    };
    engine.preserve.xattrs |= args.xattrs;
    let was_preserved = engine.preserve.owner;
    engine.preserve.owner |= args.owner || select.chown.is_some();
    engine.preserve.mode |= !select.chmod.is_empty();
    engine.modes = select.chmod.iter().fold(ModeChanges::default(), |mut all, changes| {
        all.extend(changes.clone());
        all
    });
    if let Some(owner) = select.chown {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        engine.change_owner = Some(ChangeOwner { user: owner.user, group: owner.group, own });
        // An explicit request: failures are errors.
        engine.owners = Owners::Any;
    } else if args.owner && !was_preserved {
        // If --preserve includes the owner, it has set `owners` already; a refused change may be an error then.
        engine.owners = owners(PreserveArg::ALL);
    }
    Ok(())
}

/// The backup that the command line requests, if any.
fn backup(select: &SelectArgs) -> Result<Option<BackupChoice>, String> {
    let directory = select.backup_dir.clone();
    if !select.backup && directory.is_none() {
        let Some(suffix) = &select.suffix else { return Ok(None) };
        return Err(format!("--suffix {} needs --backup", suffix.display()));
    }
    let default = if directory.is_none() { "~" } else { "" };
    let suffix = select.suffix.clone().unwrap_or_else(|| default.into());
    let suffix = suffix.as_bytes().to_vec();
    if suffix.contains(&b'/') {
        return Err("--suffix is part of a name and cannot contain a slash; --backup-dir takes a \
             path"
            .to_owned());
    }
    if suffix.is_empty() && directory.is_none() {
        return Err("with an empty --suffix a backup would have the name of its file".to_owned());
    }
    Ok(Some(BackupChoice { directory, suffix }))
}

/// Fills in options that are not given from the profile, the built-in profile, the defaults and `command_defaults`, in
/// this order, and appends their filter rules to `rules`.
fn merge_layers(
    given: Options,
    config: &Config,
    command_defaults: &Options,
    rules: &mut Vec<Rule>,
) -> Result<(Options, WindowProfile), String> {
    let name = given.profile.clone().or_else(|| config.defaults.profile.clone());
    let name = name.as_deref().unwrap_or("default");
    let profile = config.profile.get(name);
    let base = base_of(name, config);
    let Some((window_profile, base_options)) = built_in(base) else {
        return Err(unknown_profile(base, config));
    };
    let mut options = given;
    for layer in profile.into_iter().chain([&base_options, &config.defaults, command_defaults]) {
        options = options.or(layer);
        // Includes come first: after the excludes of the same layer they could make no exceptions to them.
        let include = layer.include.iter().map(|glob| (true, glob));
        let exclude = layer.exclude.iter().map(|glob| (false, glob));
        let globs = include.chain(exclude);
        rules.extend(globs.map(|(include, glob)| Rule::new(include, glob.clone())));
    }
    Ok((options, window_profile))
}

/// The profile of a transfer without `--profile`: its name if the configuration defines it, and the built-in profile
/// that it is based on.
pub(crate) fn default_profile(config: &Config) -> (Option<&str>, &str) {
    let name = config.defaults.profile.as_deref().unwrap_or("default");
    (config.profile.contains_key(name).then_some(name), base_of(name, config))
}

/// The built-in profile that profile `name` is based on. A profile in the configuration is based on the one that it
/// names, else on the built-in profile of the same name, else on `default`.
fn base_of<'a>(name: &'a str, config: &'a Config) -> &'a str {
    match config.profile.get(name) {
        Some(profile) => match &profile.profile {
            Some(base) => base,
            None if built_in(name).is_some() => name,
            None => "default",
        },
        None => name,
    }
}

fn unknown_profile(name: &str, config: &Config) -> String {
    // A profile of the configuration may have the name of a built-in one.
    let own = config.profile.keys().map(String::as_str);
    let own = own.filter(|name| !BUILT_IN_PROFILES.contains(name));
    let known: Vec<_> = BUILT_IN_PROFILES.into_iter().chain(own).collect();
    format!("unknown profile '{}'; the profiles are {}", name.escape_debug(), known.join(", "))
}

/// The digest to compute and the manifest to write, if any.
fn digests(options: &Options) -> Result<(Option<DigestKind>, Option<ManifestChoice>), String> {
    let verify = options.verify.is_some_and(|switch| switch.0);
    let file = match &options.manifest {
        None | Some(ManifestArg::No) => None,
        Some(ManifestArg::InDestination) => Some(None),
        Some(ManifestArg::File(file)) => Some(Some(file.clone())),
    };
    let default = match (&file, verify) {
        (Some(_), _) => Some(DigestKind::Sha256),
        (None, true) => Some(DigestKind::Blake3),
        (None, false) => None,
    };
    let digest = options.digest.map_or(default, DigestArg::kind);
    match (digest, file) {
        (None, Some(_)) => Err("a manifest lists digests: --manifest cannot be used with \
                                --digest none"
            .to_owned()),
        (None, None) if verify => Err("--verify compares digests: --verify cannot be used with \
                                       --digest none"
            .to_owned()),
        (Some(digest), Some(file)) => Ok((Some(digest), Some(ManifestChoice { digest, file }))),
        (digest, None) => Ok((digest, None)),
    }
}

fn engine_settings(options: &Options, engine: &mut Settings) -> Result<(), String> {
    if let Some(lanes) = options.lanes {
        engine.lanes = lanes.resolve(Count::as_usize);
    }
    if let Some(window) = options.window {
        engine.window = window.resolve(|size| size.0);
    }
    if let Some(chunk) = options.chunk {
        engine.chunk = chunk.resolve(|size| size.0);
    }
    if let Some(files) = options.files {
        engine.files = files.resolve(Count::as_usize);
    }
    if let Some(queue) = options.queue_size {
        engine.queue_size = queue.as_usize();
    }
    if let Some(SizeIn(size)) = options.block_size {
        engine.block_size = size.next_multiple_of(1024);
    }
    if let Some(SizeIn(memory)) = options.memory {
        engine.memory = memory;
    }
    // One block is read while another one is written.
    let min_memory = engine.block_size * 2;
    if engine.memory < min_memory {
        if options.memory.is_some() {
            return Err(format!(
                "two blocks of {} do not fit into {} of memory; choose a smaller --block-size or a \
                 larger --memory",
                crate::units::bytes(engine.block_size),
                crate::units::bytes(engine.memory)
            ));
        }
        engine.memory = min_memory;
    }
    engine.bandwidth_limit = options.bwlimit.map(|rate| rate.0);
    if let Some(overwrite) = options.overwrite {
        engine.overwrite = overwrite.into();
    }
    if let Some(preserve) = options.preserve {
        engine.preserve = Preserve {
            mode: preserve.mode,
            times: preserve.times,
            owner: preserve.owner,
            xattrs: preserve.xattrs,
            hard_links: preserve.links,
        };
        engine.owners = owners(preserve);
    }
    if let Some(Switch(resume)) = options.resume {
        engine.resume = resume;
    }
    engine.verify = options.verify.is_some_and(|switch| switch.0);
    engine.sync = options.fsync.is_some_and(|switch| switch.0);
    engine.check_space = !options.no_space_check.is_some_and(|switch| switch.0);
    engine.min_free = options.min_free.map(|size| size.0);
    engine.order = options.order.map(|order| order.0);
    if let Some(Count(retries)) = options.retries {
        engine.retries = u32::try_from(retries).unwrap_or(u32::MAX);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use haul_engine::Auto;

    use super::*;
    use crate::args::{Cli, Command};

    fn resolved(arguments: &str, config: &str) -> Result<Resolved, String> {
        let line = format!("haul cp {arguments} A B");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Cp(args) = cli.command else { panic!("another command") };
        resolve(&args.transfer, &Config::of(config))
    }

    #[test]
    fn the_command_line_overrides_the_profile_which_overrides_the_defaults() {
        let config =
            "[defaults]\nretries = 1\nlanes = 1\nfiles = 1\n[profile.p]\nlanes = 2\nfiles = 2\n";
        let settings = resolved("--profile p --files 3", config).unwrap().engine;
        assert_eq!(settings.retries, 1);
        assert_eq!(settings.lanes, Auto::Fixed(2));
        assert_eq!(settings.files, Auto::Fixed(3));
    }

    #[test]
    fn a_profile_may_be_based_on_a_built_in_one() {
        let settings = resolved("--profile p", "[profile.p]\nprofile = \"safe\"\nretries = 3\n");
        let settings = settings.unwrap().engine;
        assert_eq!((settings.profile, settings.retries), (WindowProfile::Safe, 3));
        assert!(settings.verify && settings.sync);
        let error = resolved("--profile nigth", "[profile.night]\n").unwrap_err();
        assert_eq!(
            error,
            "unknown profile 'nigth'; the profiles are safe, default, aggressive, night"
        );
        let error = resolved("--profile x", "[profile.default]\n[profile.safe]\n").unwrap_err();
        assert_eq!(error, "unknown profile 'x'; the profiles are safe, default, aggressive");
    }

    #[test]
    fn manifest_and_verify_determine_the_default_digest() {
        let sha256 = resolved("--manifest", "").unwrap();
        assert_eq!(sha256.engine.digest, Some(DigestKind::Sha256));
        assert!(sha256.engine.digest_unchanged);
        let blake3 = resolved("--manifest=x --digest blake3", "").unwrap().manifest.unwrap();
        assert_eq!(blake3.digest, DigestKind::Blake3);
        assert_eq!(blake3.file, Some(PathBuf::from("x")));
        assert!(resolved("--manifest --digest none", "").is_err());
        assert!(
            resolved("--no-manifest", "[defaults]\nmanifest = true\n").unwrap().manifest.is_none()
        );
        assert_eq!(resolved("--verify", "").unwrap().engine.digest, Some(DigestKind::Blake3));
    }

    #[test]
    fn rules_keep_the_order_of_the_command_line() {
        let rules = resolved("--exclude a --include * --exclude b", "").unwrap().rules;
        assert!(!rules.includes(b"a", false));
        assert!(rules.includes(b"b", false));
        let rules = resolved("--include a", "[defaults]\nexclude = [\"*\"]\n").unwrap().rules;
        assert!(rules.includes(b"a", false) && !rules.includes(b"b", false));
    }

    #[test]
    fn block_sizes_are_rounded_up_and_two_blocks_fit_into_memory() {
        let settings = resolved("--block-size 1500", "").unwrap().engine;
        assert_eq!(settings.block_size, 2048);
        assert_eq!(resolved("--block-size 1G", "").unwrap().engine.memory, 2 << 30);
        assert!(resolved("--block-size 1G --memory 1G", "").is_err());
    }
}
