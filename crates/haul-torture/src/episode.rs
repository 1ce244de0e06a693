//! Some steps one after the other on one target, from a seed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_storage::is_part_name;
use rustix::process::Signal;

use crate::at;
use crate::chance::Chance;
use crate::compare::{Difference, described, differences, unexplained, without_spared};
use crate::filter::Filter;
use crate::grow::{Features, give, grow, mutate};
use crate::model::{Runner, Wanted, wanted};
use crate::options::{Form, Options};
use crate::run::{Kill, Programs, Ran};
use crate::target::Target;
use crate::tree::{Kind, Tree, base};

/// The ordinary user of some steps. It needs no name.
const USER: Runner = Runner { user: 12_345, group: 12_345 };

/// Some steps.
#[derive(Debug)]
pub struct Episode<'a> {
    /// Where the random numbers come from.
    pub seed: u64,
    /// Where copies go.
    pub target: &'a Target,
    /// What is run.
    pub programs: &'a Programs,
    /// What the steps so far have done.
    pub counts: Counts,
    /// How long a run took last; kills strike within that time.
    typical: Duration,
    trace: Option<Vec<String>>,
}

/// What was done, for the record.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Steps that were judged.
    pub steps: u64,
    /// Runs that a signal ended.
    pub kills: u64,
    /// Runs as an ordinary user.
    pub users: u64,
    /// Files that had to be copied.
    pub copies: u64,
    /// Steps that rsync did not get through.
    pub without_oracle: u64,
}

impl Counts {
    /// Adds those of another episode.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.kills += other.kills;
        self.users += other.users;
        self.copies += other.copies;
        self.without_oracle += other.without_oracle;
    }
}

/// What went wrong in a step.
#[derive(Debug)]
pub struct Failure {
    /// The step, from 1.
    pub step: usize,
    /// Everything that is needed to understand it.
    pub report: String,
}

/// How a step was judged.
type Judged = Result<(), String>;

impl<'a> Episode<'a> {
    /// An episode that has not begun.
    pub fn new(seed: u64, target: &'a Target, programs: &'a Programs) -> Self {
        let typical = Duration::from_millis(60);
        Self { seed, target, programs, counts: Counts::default(), typical, trace: None }
    }

    /// Lets the episode remember what it does; see [`Episode::trace`].
    #[must_use]
    pub fn traced(self) -> Self {
        Self { trace: Some(Vec::new()), ..self }
    }

    /// The commands of all steps.
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Runs `steps` steps, until one fails.
    pub fn run(&mut self, steps: usize) -> io::Result<Result<(), Failure>> {
        let mut chance = Chance::new(self.seed);
        for path in [&self.target.source, &self.target.destination, &self.target.oracle] {
            clear(path)?;
        }
        fs::create_dir_all(&self.target.source)
            .map_err(|error| at("making", &self.target.source, &error))?;
        grow(&mut chance, &self.target.source, 25, &self.target.features)?;
        for step in 1..=steps {
            let judged = self.step(&mut chance)?;
            if let Err(report) = judged {
                return Ok(Err(Failure { step, report }));
            }
            self.counts.steps += 1;
        }
        Ok(Ok(()))
    }

    fn step(&mut self, chance: &mut Chance) -> io::Result<Judged> {
        let target = self.target;
        let features = target.features;
        let as_user = target.users && chance.one_in(6);
        if chance.one_in(25) {
            clear(&target.destination)?;
        }
        mutate(chance, &target.source, &features)?;
        if target.destination.exists() && chance.one_in(2) {
            self.disturb(chance)?;
        }
        let mut options = Options::random(chance, !as_user);
        if target.renames {
            options.filter = Filter::default();
            options.manifest = false;
        }
        if options.manifest {
            options.tuning.retain(|word| !word.starts_with("--digest"));
        }
        let runner = if as_user {
            self.hand_over()?;
            self.counts.users += 1;
            USER
        } else {
            me()
        };
        if options.form == Form::Into || as_user {
            // `cp SOURCE DEST` is `DEST/src` only if DEST is a directory, which it becomes.
            self.prepare_destination(runner)?;
        }
        let mut step = Step {
            target,
            programs: self.programs,
            runner,
            options,
            lines: Vec::new(),
            view: PathBuf::new(),
        };
        step.view = step.view_of(&target.destination);
        let mut before = target.tree(&step.view)?;
        let mut source = target.tree(&target.source)?;
        let kills = if chance.one_in(3) { 1 + chance.below(3) } else { 0 };
        for _ in 0..kills {
            let signal = *chance.pick(&[Signal::KILL, Signal::KILL, Signal::INT, Signal::TERM]);
            let after = self.typical.mul_f64(chance.below(1000) as f64 / 800.0);
            let ran = step.haul(Some(Kill { signal, after }))?;
            self.counts.kills += 1;
            if ran.hung {
                return Ok(Err(step.report(&format!("haul {}", ran.ended()), &[], &ran, None)));
            }
            let there = if target.is_server {
                target.tree_at_rest(&step.view)?
            } else {
                target.tree(&step.view)?
            };
            if let Err(differences) = step.half_way(&source, &before, &there) {
                let trees = Some((&source, &before));
                return Ok(Err(step.report(
                    "a killed run left a file that is neither the old nor the new one",
                    &differences,
                    &ran,
                    trees,
                )));
            }
            before = there;
        }
        if kills > 0 {
            before.0.retain(|name, _| !is_part_name(base(name)));
            if step.options.manifest {
                self.tidy()?;
                before.0.remove(&b"SHA256SUMS"[..]);
            }
            if chance.one_in(4) {
                // What the killed runs have begun is of another version then, or of a file that is
                // gone, whose part file nobody asks for any more.
                mutate(chance, &target.source, &features)?;
                if as_user {
                    self.hand_over()?;
                }
                source = target.tree(&target.source)?;
                sweep(&step.view)?;
            }
        }
        self.clone_destination()?;
        if kills > 0 {
            sweep(&target.oracle)?;
        }
        let judged = self.judge(&mut step, &source, &before);
        self.tidy()?;
        judged
    }

    fn judge(&mut self, step: &mut Step<'_>, source: &Tree, before: &Tree) -> io::Result<Judged> {
        let target = self.target;
        let mut want = wanted(source, before, &step.options, &target.keeps, step.runner);
        if step.options.manifest && step.options.form != Form::Into {
            // It comes into the root when that is finished.
            if let Some(root) = want.tree.get_mut(&b""[..]) {
                root.time = None;
            }
        }
        self.counts.copies += want.copies;
        let ran = step.haul(None)?;
        if let Some(trace) = &mut self.trace {
            trace.append(&mut step.lines.clone());
        }
        self.typical = ran.elapsed;
        let trees = Some((source, before));
        let expected = i32::from(!want.failures.is_empty());
        let mut there = target.tree(&step.view)?;
        if step.options.manifest {
            if let Err(why) = step.check_manifest(&want)? {
                return Ok(Err(step.report(&why, &[], &ran, trees)));
            }
            if step.options.form != Form::Into {
                there.0.remove(&b"SHA256SUMS"[..]);
            }
        }
        let spared = |found| match target.renames {
            true => without_spared(found, &want, &there),
            false => found,
        };
        let found = spared(differences(&want, &there));
        if !found.is_empty() {
            return Ok(Err(step.report("haul made something else", &found, &ran, trees)));
        }
        if ran.status != Some(expected) {
            let failures: Vec<Difference> = want
                .failures
                .iter()
                .map(|(name, why)| Difference { name: name.clone(), what: (*why).to_owned() })
                .collect();
            let what =
                format!("haul {}; wanted status {expected}, for these failures", ran.ended());
            return Ok(Err(step.report(&what, &failures, &ran, trees)));
        }
        if !target.renames
            && let Err(report) = self.judge_rsync(step, source, before)?
        {
            return Ok(Err(report));
        }
        let again = step.haul(None)?;
        let moved =
            again.summary().map_or(0, |summary| summary["moved_bytes"].as_u64().unwrap_or(0));
        let mut changes = again.changes();
        if !target.keeps.tells_links {
            changes.retain(|change| !change.starts_with("\"linked\""));
        }
        if step.options.settles() && (moved > 0 || !changes.is_empty()) {
            let what = format!("a rerun moved {moved} bytes: {}", changes.join(", "));
            return Ok(Err(step.report(&what, &[], &again, trees)));
        }
        if again.status != ran.status {
            let what = format!("the first run: {}; the same again: {}", ran.ended(), again.ended());
            return Ok(Err(step.report(&what, &[], &again, trees)));
        }
        if step.options.settles() {
            let mut there = target.tree(&step.view)?;
            if step.options.manifest && step.options.form != Form::Into {
                there.0.remove(&b"SHA256SUMS"[..]);
            }
            let mut found = differences(&want, &there);
            if target.renames {
                found = without_spared(found, &want, &there);
            }
            if !found.is_empty() {
                return Ok(Err(step.report("a rerun changed something", &found, &again, trees)));
            }
        }
        Ok(Ok(()))
    }

    /// rsync has to make of a copy of the destination what the model says, but for its rules.
    fn judge_rsync(
        &mut self,
        step: &mut Step<'_>,
        source: &Tree,
        before: &Tree,
    ) -> io::Result<Judged> {
        let target = self.target;
        let want = wanted(source, before, &step.options, &target.oracle_keeps, step.runner);
        let ran = step.rsync()?;
        // 23 to 25: something could not be transferred, or vanished. All others say that rsync gave up half
        // way, as rsync 3.5.0 does where something is in the way of a hard link. And it deletes nothing once it has
        // taken a file for a directory, as it does where --ignore-existing keeps one in the way of a directory.
        let gave_up = ran.errors.contains("opendir") && ran.errors.contains("Not a directory");
        if gave_up || !matches!(ran.status, Some(0 | 23..=25)) {
            self.counts.without_oracle += 1;
            return Ok(Ok(()));
        }
        let there = target.tree(&step.view_of(&target.oracle))?;
        let found = unexplained(differences(&want, &there), &want);
        if found.is_empty() {
            return Ok(Ok(()));
        }
        let what = "rsync made something else than the model says, and no rule explains it";
        Ok(Err(step.report(what, &found, &ran, Some((source, before)))))
    }

    /// Changes the destination behind haul's back.
    fn disturb(&self, chance: &mut Chance) -> io::Result<()> {
        let is_directory = fs::symlink_metadata(&self.target.destination)?.is_dir();
        if !is_directory {
            return Ok(());
        }
        // There haul's own names are what a killed run left, which the next one removes.
        let features = Features { like_own: false, ..self.target.features };
        mutate(chance, &self.target.destination, &features)
    }

    /// Gives source and destination to the ordinary user, who can read all of it.
    fn hand_over(&self) -> io::Result<()> {
        for root in [&self.target.source, &self.target.destination] {
            if !root.exists() {
                continue;
            }
            give(root, USER.user, USER.group)?;
            for path in [root.clone()].into_iter().chain(all_below(root)?) {
                let stat = fs::symlink_metadata(&path)?;
                let needed = if stat.is_dir() { 0o500 } else { 0o400 };
                let mode = stat.permissions().mode() & 0o7777;
                if !stat.is_symlink() && mode & needed != needed {
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode | needed))?;
                }
            }
        }
        Ok(())
    }

    fn prepare_destination(&self, runner: Runner) -> io::Result<()> {
        let destination = &self.target.destination;
        if destination.exists() {
            return Ok(());
        }
        fs::create_dir_all(destination).map_err(|error| at("making", destination, &error))?;
        if runner == USER {
            std::os::unix::fs::chown(destination, Some(USER.user), Some(USER.group))?;
        }
        Ok(())
    }

    /// Makes the copy of the destination that rsync works on.
    fn clone_destination(&self) -> io::Result<()> {
        let target = self.target;
        clear(&target.oracle)?;
        if !target.destination.exists() {
            return Ok(());
        }
        let arguments = [
            "-a".into(),
            "-T".into(),
            "--".into(),
            target.destination.clone().into_os_string(),
            target.oracle.clone().into_os_string(),
        ];
        let ran = self.programs.tool(me(), "cp", &arguments)?;
        if ran.status != Some(0) {
            return Err(io::Error::other(format!("{}: {}", ran.line, ran.errors)));
        }
        Ok(())
    }

    /// Removes manifests, and what a killed run left of files that are gone from the source.
    fn tidy(&self) -> io::Result<()> {
        for name in ["SHA256SUMS", "B3SUMS"] {
            match fs::remove_file(self.target.destination.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// One step: what is run, and what for.
struct Step<'a> {
    target: &'a Target,
    programs: &'a Programs,
    runner: Runner,
    options: Options,
    /// The commands so far.
    lines: Vec<String>,
    /// The directory that becomes like the source.
    view: PathBuf,
}

impl Step<'_> {
    fn view_of(&self, destination: &Path) -> PathBuf {
        match (self.options.form, self.target.source.file_name()) {
            (Form::Into, Some(name)) => destination.join(name),
            _ => destination.to_owned(),
        }
    }

    fn haul(&mut self, kill: Option<Kill>) -> io::Result<Ran> {
        let mut arguments = self.options.haul();
        arguments.extend_from_slice(&self.target.arguments);
        let mut source = self.target.source.clone().into_os_string();
        if self.options.form == Form::Content {
            source.push("/");
        }
        arguments.push(source);
        arguments.push(self.target.argument.clone());
        let ran = self.programs.haul(self.runner, &arguments, kill)?;
        let end = kill.map_or(String::new(), |kill| {
            format!("   # {:?} after {:.1} ms", kill.signal, kill.after.as_secs_f64() * 1000.0)
        });
        self.lines.push(format!("{}{end}   # {}", ran.line, ran.ended()));
        Ok(ran)
    }

    fn rsync(&mut self) -> io::Result<Ran> {
        let mut arguments = self.options.rsync();
        let slashed = |path: &Path| {
            let mut text = path.to_owned().into_os_string();
            text.push("/");
            text
        };
        arguments.push(slashed(&self.target.source));
        arguments.push(slashed(&self.view_of(&self.target.oracle)));
        let ran = self.programs.tool(self.runner, "rsync", &arguments)?;
        self.lines.push(format!("{}   # {}", ran.line, ran.ended()));
        Ok(ran)
    }

    /// After a kill every file is the old one or the new one.
    fn half_way(&self, source: &Tree, before: &Tree, there: &Tree) -> Result<(), Vec<Difference>> {
        let mut wrong = Vec::new();
        for (name, node) in &there.0 {
            let Kind::File { .. } = node.kind else { continue };
            if is_part_name(base(name)) {
                continue;
            }
            let is_in = |tree: &Tree| tree.0.get(name).is_some_and(|old| old.kind == node.kind);
            let is_manifest = self.options.manifest && base(name) == b"SHA256SUMS";
            if !is_in(source) && !is_in(before) && !is_manifest {
                wrong.push(Difference { name: name.clone(), what: described(Some(node)) });
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The manifest has to be right, and to hold every file that took part.
    fn check_manifest(&self, want: &Wanted) -> io::Result<Judged> {
        let manifest = self.target.destination.join("SHA256SUMS");
        let text = match fs::read(&manifest) {
            Ok(text) => text,
            // Without a file there is nothing to list.
            Err(error) if error.kind() == io::ErrorKind::NotFound && want.files == 0 => {
                return Ok(Ok(()));
            }
            Err(error) => return Ok(Err(format!("{}: {error}", manifest.display()))),
        };
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        if lines != want.files {
            return Ok(Err(format!("the manifest has {lines} files; wanted {}", want.files)));
        }
        if lines == 0 {
            return Ok(Ok(()));
        }
        let ran = self.sha256sum(&manifest, &self.target.destination)?;
        if ran.status == Some(0) {
            return Ok(Ok(()));
        }
        if self.target.is_server {
            // What is unchanged there, by size and time, is listed as the source has it.
            let source = match (self.options.form, self.target.source.parent()) {
                (Form::Into, Some(above)) => above,
                _ => &self.target.source,
            };
            let here = self.sha256sum(&manifest, source)?;
            let failed = |ran: &Ran| -> BTreeSet<String> {
                let names = ran.output.lines().filter_map(|line| line.rsplit_once(": FAILED"));
                names.map(|(name, _)| name.to_owned()).collect()
            };
            let (there, here) = (failed(&ran), failed(&here));
            if !there.is_empty() && there.is_disjoint(&here) {
                return Ok(Ok(()));
            }
        }
        Ok(Err(format!("the manifest is wrong:\n{}{}", ran.output, ran.errors)))
    }

    /// Checks a manifest against the files below a directory.
    fn sha256sum(&self, manifest: &Path, directory: &Path) -> io::Result<Ran> {
        let script = "cd \"$2\" && sha256sum --check --strict --quiet \"$1\"";
        let mut arguments: Vec<OsString> = vec!["-c".into(), script.into(), "check".into()];
        arguments.extend([manifest, directory].map(|path| path.to_owned().into_os_string()));
        self.programs.tool(me(), "sh", &arguments)
    }

    fn report(
        &self,
        what: &str,
        differences: &[Difference],
        ran: &Ran,
        trees: Option<(&Tree, &Tree)>,
    ) -> String {
        let mut report = format!("{what}\n");
        // Writing to a string does not fail.
        let mut say = |line: String| {
            let _ = writeln!(report, "{line}");
        };
        for difference in differences.iter().take(20) {
            say(format!("  {difference}"));
            if let Some((source, before)) = trees {
                say(format!("      source: {}", described(source.0.get(&difference.name))));
                say(format!("      before: {}", described(before.0.get(&difference.name))));
            }
        }
        if differences.len() > 20 {
            say(format!("  and {} more", differences.len() - 20));
        }
        say("commands:".to_owned());
        for line in &self.lines {
            say(format!("  {line}"));
        }
        say(format!("printed by the last:\n{}", tail(&ran.errors, 12)));
        for line in ran.error_events().iter().take(12) {
            say(format!("  | {line}"));
        }
        report
    }
}

/// The last lines of a text, each with a mark.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines[from..].iter().map(|line| format!("  | {line}\n")).collect()
}

/// The user who runs this.
fn me() -> Runner {
    Runner { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
}

/// Removes whatever is at `path`.
fn clear(path: &Path) -> io::Result<()> {
    let Ok(stat) = fs::symlink_metadata(path) else { return Ok(()) };
    let removed = if stat.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map_err(|error| at("removing", path, &error))
}

/// Removes part files and journals.
fn sweep(root: &Path) -> io::Result<()> {
    for path in all_below(root)? {
        let name = path.file_name().unwrap_or_default();
        if is_part_name(name.as_encoded_bytes()) {
            clear(&path)?;
        }
    }
    Ok(())
}

fn all_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        if !fs::symlink_metadata(&directory).is_ok_and(|stat| stat.is_dir()) {
            continue;
        }
        for entry in fs::read_dir(&directory).map_err(|error| at("listing", &directory, &error))? {
            let path = entry.map_err(|error| at("listing", &directory, &error))?.path();
            pending.push(path.clone());
            found.push(path);
        }
    }
    Ok(found)
}
