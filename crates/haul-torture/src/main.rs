//! `haul-torture`: plays episodes, for a number of steps or for a single seed.
//!
//! As root it first restarts itself in mount and process namespaces of its own, if the system allows them, so
//! that nothing that it mounts or starts outlives it. Not so with `--keep`, which leaves the mounts and servers of the
//! failed step, and prints the commands that take them down.

use std::fs;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use haul_torture::counts::Counts;
use haul_torture::episode::Episode;
use haul_torture::extras::GENERATION;
use haul_torture::run::Programs;
use haul_torture::seeds::{Kept, kept};
use haul_torture::target::{ALL, Kind, Made, Site, is_root};

/// Copies random trees with haul and with rsync, and compares the results
#[derive(Debug, Parser)]
struct Cli {
    /// Total number of steps; with --seed, on each target
    #[arg(long, default_value_t = 200)]
    steps: usize,

    /// Play this seed only, on each target
    #[arg(long)]
    seed: Option<u64>,

    /// The first of the seeds to play [default: from the clock]
    #[arg(long, conflicts_with = "seed")]
    first_seed: Option<u64>,

    /// Play on this target only; may be given several times
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<String>,

    /// Steps of one seed
    #[arg(long, default_value_t = NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN))]
    episode: NonZeroUsize,

    /// Limit the random choices to those of a former version of this program, as for a kept seed
    #[arg(long, value_name = "N", default_value_t = GENERATION)]
    generation: u32,

    /// The haul to test [default: the one that was built with this program]
    #[arg(long, value_name = "FILE")]
    haul: Option<PathBuf>,

    /// Work below this directory [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,

    /// Stop at the first failure; keep its trees, mounts and servers
    #[arg(long)]
    keep: bool,

    /// Play the kept seeds, then fixed ones on the targets of the short test
    #[arg(long)]
    short: bool,

    /// Print the commands of all steps
    #[arg(short, long)]
    verbose: bool,

    /// Print the names of the targets
    #[arg(long)]
    list: bool,

    /// The working directory; set by this program when it restarts itself in namespaces
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let played = match &cli.inside {
        _ if cli.list => list(),
        Some(work) => play(&cli, &work.clone()),
        None => begin(&cli),
    };
    match played {
        Ok(code) => code,
        Err(error) => {
            // If even this cannot be printed, there is nothing left to do.
            let _ = writeln!(io::stderr(), "haul-torture: {error}");
            ExitCode::from(2)
        }
    }
}

fn list() -> io::Result<ExitCode> {
    for kind in ALL {
        writeln!(io::stdout(), "{}", kind.name)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates the working directory, plays, and removes the directory unless `--keep` is given.
fn begin(cli: &Cli) -> io::Result<ExitCode> {
    let parent = cli.work.clone().unwrap_or_else(std::env::temp_dir);
    let work = tempfile::Builder::new()
        .prefix("haul-torture-")
        .disable_cleanup(true)
        .tempdir_in(parent)?
        .path()
        .canonicalize()?;
    // Mounts that are to stay must not be in a namespace that ends with this program.
    let is_inside = is_root() && !cli.keep && may_unshare();
    let code = if is_inside { begin_inside(&work)? } else { play(cli, &work)? };
    if cli.keep {
        writeln!(io::stderr(), "left: {}", work.display())?;
    } else {
        fs::remove_dir_all(&work)?;
    }
    Ok(code)
}

const UNSHARE: &[&str] =
    &["--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"];

fn may_unshare() -> bool {
    let tried = Command::new("unshare").args(UNSHARE).arg("true").stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Restarts this program in namespaces of its own.
fn begin_inside(work: &Path) -> io::Result<ExitCode> {
    let status = Command::new("unshare")
        .args(UNSHARE)
        .arg(std::env::current_exe()?)
        .arg("--inside")
        .arg(work)
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::null())
        .status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}

fn play(cli: &Cli, work: &Path) -> io::Result<ExitCode> {
    // The first process of a PID namespace ignores signals for which it has no handler. Without namespaces, the first
    // signal ends the play after a step, so that nothing stays mounted, and the second one ends this program.
    let interrupted = Arc::new(AtomicBool::new(false));
    let at_once = Arc::new(AtomicBool::new(cli.inside.is_some()));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, at_once.clone())?;
        signal_hook::flag::register(signal, at_once.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    // Unprivileged users need access.
    fs::set_permissions(work, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(haul_torture::model::UMASK));
    let programs = Programs { haul: haul(cli)?, home: work.join("home") };
    fs::create_dir(&programs.home)?;
    fs::set_permissions(&programs.home, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut campaign = Campaign {
        cli,
        programs,
        work: work.to_owned(),
        failures: 0,
        counts: Vec::new(),
        interrupted,
    };
    campaign.play()?;
    campaign.summarize()
}

/// The program under test.
fn haul(cli: &Cli) -> io::Result<PathBuf> {
    if let Some(given) = &cli.haul {
        return given.canonicalize();
    }
    if let (Some(cargo), Some(manifest)) =
        (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"))
    {
        // Under `cargo run`, haul is built from the current sources first.
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "haul"]).current_dir(manifest);
        if cfg!(not(debug_assertions)) {
            build.arg("--release");
        }
        let status = build.stdin(Stdio::null()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("building haul: {status}")));
        }
    }
    let path = std::env::current_exe()?.with_file_name("haul");
    if path.exists() {
        return Ok(path);
    }
    Err(io::Error::other(format!("{} is not there; build it, or use --haul", path.display())))
}

struct Campaign<'a> {
    cli: &'a Cli,
    programs: Programs,
    work: PathBuf,
    failures: usize,
    /// Set by a signal.
    interrupted: Arc<AtomicBool>,
    counts: Vec<(&'static str, Counts, Duration)>,
}

impl Campaign<'_> {
    fn play(&mut self) -> io::Result<()> {
        let cli = self.cli;
        let kinds = self.kinds()?;
        if cli.short {
            for kept in kept().map_err(io::Error::other)? {
                self.replay(&kept)?;
                if self.must_stop() {
                    return Ok(());
                }
            }
        }
        let first = match (cli.seed, cli.first_seed) {
            (Some(seed), _) | (None, Some(seed)) => seed,
            (None, None) if cli.short => 1,
            (None, None) => SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs()),
        };
        if cli.seed.is_some() {
            for kind in kinds {
                self.episode(kind, first, cli.steps, cli.generation)?;
                if self.must_stop() {
                    break;
                }
            }
            return Ok(());
        }
        let mut kinds: Vec<Kind> = kinds;
        let (mut seed, mut done) = (first, 0);
        while done < cli.steps && !kinds.is_empty() {
            let turn = (seed - first) as usize % kinds.len();
            let steps = cli.episode.get().min(cli.steps - done);
            if self.episode(kinds[turn], seed, steps, cli.generation)? {
                done += steps;
            } else {
                kinds.remove(turn);
            }
            seed += 1;
            if self.must_stop() {
                break;
            }
        }
        Ok(())
    }

    fn kinds(&self) -> io::Result<Vec<Kind>> {
        let cli = self.cli;
        let mut kinds = Vec::new();
        for name in &cli.targets {
            let found = ALL.iter().find(|kind| kind.name == name);
            let wrong = || io::Error::other(format!("no target is called '{name}'; see --list"));
            kinds.push(*found.ok_or_else(wrong)?);
        }
        if kinds.is_empty() {
            kinds = ALL.iter().filter(|kind| kind.short || !cli.short).copied().collect();
        }
        Ok(kinds)
    }

    fn replay(&mut self, kept: &Kept) -> io::Result<()> {
        let Some(kind) = ALL.iter().find(|kind| kind.name == kept.target) else {
            return Err(io::Error::other(format!("no target is called '{}'", kept.target)));
        };
        self.episode(*kind, kept.seed, kept.steps, kept.generation).map(drop)
    }

    /// Whether a signal has arrived, or with `--keep` a failure has occurred.
    fn must_stop(&self) -> bool {
        self.must_leave() || self.interrupted.load(Ordering::Relaxed)
    }

    /// Whether the target of the last episode stays as it is.
    fn must_leave(&self) -> bool {
        self.cli.keep && self.failures > 0
    }

    /// Plays one seed on one target; `false` if the target is not available.
    fn episode(
        &mut self,
        kind: Kind,
        seed: u64,
        steps: usize,
        generation: u32,
    ) -> io::Result<bool> {
        let name = kind.name;
        let work = self.work.join(format!("{name}-{seed}"));
        fs::create_dir(&work)?;
        fs::set_permissions(&work, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let target = match kind.make(&Site { work: &work, haul: &self.programs.haul })? {
            Made::Ready(target) => target,
            Made::Skipped(why) => {
                writeln!(io::stderr(), "{name}: skipped: {why}")?;
                return Ok(false);
            }
        };
        let started = Instant::now();
        let mut episode = Episode::new(seed, &target, &self.programs)
            .of_generation(generation)
            .until(&self.interrupted)
            .traced();
        let ended = episode.run(steps)?;
        let counts = episode.counts;
        let mut err = io::stderr().lock();
        if self.cli.verbose {
            for line in episode.trace() {
                writeln!(err, "{name} {seed}: {line}")?;
            }
        }
        if let Err(failure) = ended {
            self.failures += 1;
            let step = failure.step;
            write!(err, "\nFAILED: haul-torture --seed {seed} --target {name} --steps {step}")?;
            if generation != GENERATION {
                write!(err, " --generation {generation}")?;
            }
            writeln!(err)?;
            writeln!(err, "{}", failure.report)?;
        }
        drop(err);
        let elapsed = started.elapsed();
        match self.counts.iter_mut().find(|(other, ..)| *other == name) {
            Some((_, sum, time)) => {
                sum.add(counts);
                *time += elapsed;
            }
            None => self.counts.push((name, counts, elapsed)),
        }
        if self.must_leave() {
            let commands = target.leave();
            if !commands.is_empty() {
                writeln!(io::stderr(), "mounts and servers are left; to take them down:")?;
            }
            for command in commands {
                writeln!(io::stderr(), "    {command}")?;
            }
        } else {
            drop(target);
            fs::remove_dir_all(&work)?;
        }
        Ok(true)
    }

    fn summarize(&self) -> io::Result<ExitCode> {
        let mut out = io::stdout().lock();
        for (name, counts, time) in &self.counts {
            let Counts { steps, kills, users, copies, without_oracle } = counts;
            writeln!(
                out,
                "{name}: {steps} steps, {kills} kills, {users} as an ordinary user, {copies} files \
                 copied, {without_oracle} without a comparison with rsync, {:.0} s",
                time.as_secs_f64()
            )?;
        }
        if self.interrupted.load(Ordering::Relaxed) {
            writeln!(out, "interrupted")?;
            return Ok(ExitCode::from(130));
        }
        if self.failures > 0 {
            writeln!(out, "{} failures", self.failures)?;
            return Ok(ExitCode::FAILURE);
        }
        writeln!(out, "no failures")?;
        Ok(ExitCode::SUCCESS)
    }
}
