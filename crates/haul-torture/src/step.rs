//! One step of an episode: its commands, the checks that need no model, and the report of a failure.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use haul_storage::is_part_name;

use crate::compare::{Difference, described};
use crate::model::{Runner, Wanted, me};
use crate::options::{Form, Options};
use crate::run::{Kill, Programs, Ran};
use crate::target::Target;
use crate::tree::{Kind, Tree, base};

/// The result of a step; the error is the report.
pub(crate) type Judged = Result<(), String>;

/// One step: the options to run haul with, and the commands so far.
pub(crate) struct Step<'a> {
    pub(crate) target: &'a Target,
    pub(crate) programs: &'a Programs,
    pub(crate) runner: Runner,
    pub(crate) options: Options,
    /// The commands so far.
    pub(crate) lines: Vec<String>,
    /// The directory that becomes a copy of the source.
    pub(crate) view: PathBuf,
}

impl Step<'_> {
    pub(crate) fn view_of(&self, destination: &Path) -> PathBuf {
        match (self.options.form, self.target.source.file_name()) {
            (Form::Into, Some(name)) => destination.join(name),
            _ => destination.to_owned(),
        }
    }

    pub(crate) fn haul(&mut self, kill: Option<Kill>) -> io::Result<Ran> {
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

    pub(crate) fn rsync(&mut self, may_hang: bool) -> io::Result<Ran> {
        let mut arguments = self.options.rsync();
        if self.options.preserve.xattrs && self.runner.user == 0 {
            arguments.extend(self.target.oracle_arguments.iter().map(OsString::from));
        }
        let slashed = |path: &Path| {
            let mut text = path.to_owned().into_os_string();
            text.push("/");
            text
        };
        arguments.push(slashed(&self.target.source));
        arguments.push(slashed(&self.view_of(&self.target.oracle)));
        let ran = self.programs.rsync(self.runner, &arguments, may_hang)?;
        self.lines.push(format!("{}   # {}", ran.line, ran.ended()));
        Ok(ran)
    }

    /// Checks after a kill that every file is either the old or the new version.
    pub(crate) fn check_kill(
        &self,
        source: &Tree,
        before: &Tree,
        left: &Tree,
    ) -> Result<(), Vec<Difference>> {
        let mut wrong = Vec::new();
        for (name, node) in &left.0 {
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

    /// Checks that the manifest is correct and lists every included source file.
    pub(crate) fn check_manifest(&self, want: &Wanted) -> io::Result<Judged> {
        let manifest = self.target.destination.join("SHA256SUMS");
        let text = match fs::read(&manifest) {
            Ok(text) => text,
            // A run without files writes no manifest.
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
            // A file on a server that is unchanged by size and time is listed with the source's digest.
            let source = match (self.options.form, self.target.source.parent()) {
                (Form::Into, Some(above)) => above,
                _ => &self.target.source,
            };
            let on_source = self.sha256sum(&manifest, source)?;
            let failed = |ran: &Ran| -> BTreeSet<String> {
                let names = ran.output.lines().filter_map(|line| line.rsplit_once(": FAILED"));
                names.map(|(name, _)| name.to_owned()).collect()
            };
            let (at_destination, at_source) = (failed(&ran), failed(&on_source));
            if !at_destination.is_empty() && at_destination.is_disjoint(&at_source) {
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

    pub(crate) fn report(
        &self,
        what: &str,
        differences: &[Difference],
        ran: &Ran,
        trees: Option<(&Tree, &Tree)>,
    ) -> String {
        let mut report = format!("{what}\n");
        // Writing to a string does not fail.
        let mut add = |line: String| {
            let _ = writeln!(report, "{line}");
        };
        for difference in differences.iter().take(20) {
            add(format!("  {difference}"));
            if let Some((source, before)) = trees {
                add(format!("      source: {}", described(source.0.get(&difference.name))));
                add(format!("      before: {}", described(before.0.get(&difference.name))));
            }
        }
        if differences.len() > 20 {
            add(format!("  and {} more", differences.len() - 20));
        }
        add("commands:".to_owned());
        for line in &self.lines {
            add(format!("  {line}"));
        }
        add(format!("printed by the last:\n{}", tail(&ran.errors, 12)));
        for line in ran.error_events().iter().take(12) {
            add(format!("  | {line}"));
        }
        report
    }
}

/// The last `count` lines of a text, each prefixed with `|`.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines[from..].iter().map(|line| format!("  | {line}\n")).collect()
}
