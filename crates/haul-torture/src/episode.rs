//! A random sequence of test steps on one target, reproducible from a seed.
//!
//! Each step changes the source (and sometimes the destination), runs haul with random options, possibly killed and
//! repeated, and compares the destination with the model and with the result of rsync.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haul_storage::is_part_name;
use rustix::process::Signal;

use crate::acl::is_inherited;
use crate::chance::Chance;
use crate::compare::{Difference, differences, unexplained, without_spared};
use crate::counts::Counts;
use crate::extras::{Extras, GENERATION};
use crate::filter::Filter;
use crate::grow::{Features, give, grow, mutate};
use crate::model::{Runner, me, wanted};
use crate::options::{Form, Options};
use crate::run::{Kill, Programs};
use crate::step::{Judged, Step};
use crate::target::Target;
use crate::tree::{Tree, base};
use crate::{at, clear};

/// The unprivileged user of some steps. It need not exist in the user database.
const USER: Runner = Runner { user: 12_345, group: 12_345 };

/// A random sequence of test steps.
#[derive(Debug)]
pub struct Episode<'a> {
    /// Seed of the random number generator.
    pub seed: u64,
    /// Source and destination of the copies.
    pub target: &'a Target,
    /// The programs to run.
    pub programs: &'a Programs,
    /// Counters of the steps so far.
    pub counts: Counts,
    /// Duration of the last run that was neither killed nor a rerun; a kill comes within 1.25 times this duration.
    typical: Duration,
    /// The commands so far, if they are recorded.
    trace: Option<Vec<String>>,
    /// See [`Episode::of_generation`].
    generation: u32,
    /// See [`Episode::until`].
    interrupted: Option<&'a AtomicBool>,
}

/// A failed step.
#[derive(Debug)]
pub struct Failure {
    /// Number of the step, from 1.
    pub step: usize,
    /// The failure with its differences, commands and output.
    pub report: String,
}

impl<'a> Episode<'a> {
    /// An episode without any steps so far.
    pub fn new(seed: u64, target: &'a Target, programs: &'a Programs) -> Self {
        let typical = Duration::from_millis(60);
        Self {
            seed,
            target,
            programs,
            counts: Counts::default(),
            typical,
            trace: None,
            generation: GENERATION,
            interrupted: None,
        }
    }

    /// Limits the random choices to those of a former generation (see [`GENERATION`]).
    #[must_use]
    pub fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// Ends the episode, as if it had fewer steps, once `interrupted` is true.
    #[must_use]
    pub fn until(self, interrupted: &'a AtomicBool) -> Self {
        Self { interrupted: Some(interrupted), ..self }
    }

    /// Makes the episode record its commands; see [`Episode::trace`].
    #[must_use]
    pub fn traced(self) -> Self {
        Self { trace: Some(Vec::new()), ..self }
    }

    /// The recorded runs of haul in all steps, except reruns; empty without [`Episode::traced`].
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Grows a new source tree and runs `steps` steps on it, until one fails.
    ///
    /// # Errors
    /// The outer error means that the test itself could not go on, the inner one is a failed step.
    pub fn run(&mut self, steps: usize) -> io::Result<Result<(), Failure>> {
        let mut chance = Chance::new(self.seed);
        for path in [&self.target.source, &self.target.destination, &self.target.oracle] {
            clear(path)?;
        }
        fs::create_dir_all(&self.target.source)
            .map_err(|error| at("making", &self.target.source, &error))?;
        grow(&mut chance, &self.target.source, 25, &self.target.features)?;
        let mut extras = Extras::new(self.seed, self.generation, self.target)?;
        extras.change(&self.target.source)?;
        for step in 1..=steps {
            let judged = self.step(&mut chance, &mut extras)?;
            // The signal may have reached haul, too.
            if self.interrupted.is_some_and(|interrupted| interrupted.load(Ordering::Relaxed)) {
                break;
            }
            if let Err(report) = judged {
                return Ok(Err(Failure { step, report }));
            }
            self.counts.steps += 1;
        }
        Ok(Ok(()))
    }

    fn step(&mut self, chance: &mut Chance, extras: &mut Extras) -> io::Result<Judged> {
        let target = self.target;
        let features = target.features;
        let as_user = target.users && chance.one_in(6);
        if chance.one_in(25) {
            clear(&target.destination)?;
        }
        mutate(chance, &target.source, &features)?;
        extras.regrow(target)?;
        extras.change(&target.source)?;
        if target.destination.exists() && chance.one_in(2) {
            self.disturb(chance, extras)?;
        }
        let mut options = Options::random(chance, !as_user);
        extras.vary(&mut options, target)?;
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
            // `cp SOURCE DEST` copies to `DEST/src` only if DEST is an existing directory.
            self.prepare_destination(runner, options.form)?;
        }
        options.acl_above = options.form == Form::Into && is_inherited(&target.destination);
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
        if as_user && extras.lock(&step.options, target, &source, &before)? {
            source = target.tree(&target.source)?;
        }
        let kills = if chance.one_in(3) { 1 + chance.below(3) } else { 0 };
        for _ in 0..kills {
            match self.kill(chance, &mut step, &source, &before)? {
                Ok(left) => before = left,
                Err(report) => return Ok(Err(report)),
            }
        }
        if kills > 0 {
            before.0.retain(|name, _| !is_part_name(base(name)));
            if step.options.manifest {
                self.remove_manifests()?;
                before.0.remove(&b"SHA256SUMS"[..]);
            }
            if chance.one_in(4) {
                // After this change, part files of the killed runs belong to another version of a file, or to
                // a file that the source no longer has. haul does not look for the latter, so they are removed.
                mutate(chance, &target.source, &features)?;
                extras.change(&target.source)?;
                if as_user {
                    self.hand_over()?;
                }
                source = target.tree(&target.source)?;
                sweep(&step.view)?;
                // Directories that a killed run finished may have been made readable.
                before = target.tree(&step.view)?;
            }
        }
        self.clone_destination()?;
        if kills > 0 {
            sweep(&target.oracle)?;
        }
        let judged = self.judge(&mut step, &source, &before);
        self.remove_manifests()?;
        judged
    }

    /// Runs haul and kills it after a random time. Returns the tree that it left at the destination.
    fn kill(
        &mut self,
        chance: &mut Chance,
        step: &mut Step<'_>,
        source: &Tree,
        before: &Tree,
    ) -> io::Result<Result<Tree, String>> {
        let target = self.target;
        let signal = *chance.pick(&[Signal::KILL, Signal::KILL, Signal::INT, Signal::TERM]);
        let after = self.typical.mul_f64(chance.below(1000) as f64 / 800.0);
        let ran = step.haul(Some(Kill { signal, after }))?;
        self.counts.kills += 1;
        if ran.hung {
            return Ok(Err(step.report(&format!("haul {}", ran.ended()), &[], &ran, None)));
        }
        let left = if target.is_server {
            target.tree_at_rest(&step.view)?
        } else {
            target.tree(&step.view)?
        };
        if let Err(differences) = step.check_kill(source, before, &left) {
            let trees = Some((source, before));
            return Ok(Err(step.report(
                "a killed run left a file that is neither the old nor the new one",
                &differences,
                &ran,
                trees,
            )));
        }
        Ok(Ok(left))
    }

    fn judge(&mut self, step: &mut Step<'_>, source: &Tree, before: &Tree) -> io::Result<Judged> {
        let target = self.target;
        let mut want = wanted(source, before, &step.options, &target.keeps, step.runner);
        if step.options.manifest && step.options.form != Form::Into {
            // Writing the manifest into the finished root directory changes the directory's time.
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
        let mut result = target.tree(&step.view)?;
        if step.options.manifest {
            if let Err(why) = step.check_manifest(&want)? {
                return Ok(Err(step.report(&why, &[], &ran, trees)));
            }
            if step.options.form != Form::Into {
                result.0.remove(&b"SHA256SUMS"[..]);
            }
        }
        let spared = |found| match target.renames {
            true => without_spared(found, &want, &result),
            false => found,
        };
        let found = spared(differences(&want, &result));
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
        if !target.keeps.reports_links {
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
            let mut result = target.tree(&step.view)?;
            if step.options.manifest && step.options.form != Form::Into {
                result.0.remove(&b"SHA256SUMS"[..]);
            }
            let mut found = differences(&want, &result);
            if target.renames {
                found = without_spared(found, &want, &result);
            }
            if !found.is_empty() {
                return Ok(Err(step.report("a rerun changed something", &found, &again, trees)));
            }
        }
        Ok(Ok(()))
    }

    /// Runs rsync on a copy of the destination. The result has to match the model, except where a rule allows a
    /// difference.
    fn judge_rsync(
        &mut self,
        step: &mut Step<'_>,
        source: &Tree,
        before: &Tree,
    ) -> io::Result<Judged> {
        let target = self.target;
        let options = step.options.of_rsync();
        let mut want = wanted(source, before, &options, &target.oracle_keeps, step.runner);
        let ran = step.rsync(want.rsync_may_hang)?;
        // 23 to 25: some files could not be transferred, vanished, or were not deleted. With any other status
        // rsync aborted, as rsync 3.5.0 does if an entry is in the way of a hard link. Below a path that is too long,
        // which rsync does not open in steps, it neither copies nor deletes.
        let is_too_long =
            ran.errors.contains("opendir") && ran.errors.contains("File name too long");
        if is_too_long || !matches!(ran.status, Some(0 | 23..=25)) {
            self.counts.without_oracle += 1;
            return Ok(Ok(()));
        }
        if ran.output.contains("skipping file deletion") {
            want.deletion_stopped(before);
        }
        let result = target.tree(&step.view_of(&target.oracle))?;
        let found = unexplained(differences(&want, &result), &want);
        if found.is_empty() {
            return Ok(Ok(()));
        }
        let what = "rsync made something else than the model says, and no rule explains it";
        Ok(Err(step.report(what, &found, &ran, Some((source, before)))))
    }

    /// Changes the destination between two runs of haul.
    fn disturb(&self, chance: &mut Chance, extras: &mut Extras) -> io::Result<()> {
        let is_directory = fs::symlink_metadata(&self.target.destination)?.is_dir();
        if !is_directory {
            return Ok(());
        }
        // At the destination, haul takes files with its reserved names for leftovers of a killed run, and removes them.
        let features = Features { like_own: false, ..self.target.features };
        mutate(chance, &self.target.destination, &features)?;
        extras.change(&self.target.destination)
    }

    /// Changes the owner of source and destination to the unprivileged user, and makes everything readable for it.
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

    fn prepare_destination(&self, runner: Runner, form: Form) -> io::Result<()> {
        let destination = &self.target.destination;
        if let Ok(stat) = fs::symlink_metadata(destination) {
            let mode = stat.permissions().mode() & 0o7777;
            let must_write = runner == USER && form == Form::Into;
            if must_write && stat.is_dir() && mode & 0o200 == 0 {
                // Neither haul nor rsync changes the mode of the directory that `cp SOURCE DEST` copies into.
                fs::set_permissions(destination, fs::Permissions::from_mode(mode | 0o200))?;
            }
            return Ok(());
        }
        fs::create_dir_all(destination).map_err(|error| at("making", destination, &error))?;
        if runner == USER {
            std::os::unix::fs::chown(destination, Some(USER.user), Some(USER.group))?;
        }
        Ok(())
    }

    /// Copies the destination for rsync to work on.
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

    /// Removes manifests from the destination.
    fn remove_manifests(&self) -> io::Result<()> {
        for name in ["SHA256SUMS", "B3SUMS"] {
            match fs::remove_file(self.target.destination.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes part files, journals and other temporary files of haul.
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
