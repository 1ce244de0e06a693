//! Runs scenarios: rounds that alternate between tools; each run is verified and recorded.
//!
//! This is the worker process under the [guard](crate::guard), which cleans up all processes, mounts
//! and files that it leaves.

mod far;
mod fresh;
mod job;
mod mount;
mod progress;
mod repository;
mod sampler;
mod settings;
mod shell;
mod stage;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use far::FarEnd;
use job::{CommandSpec, Job, Measured};
use mount::Visit;
use rustix::process::Signal;
pub use settings::Settings;
use stage::Stage;

use crate::machine;
use crate::record::{self, Measure, Outcome, Part, Record, Run};
use crate::scenario::{Direction, Scenario, Storage};
use crate::tools::{Found, Tool, Tools, Use};

/// Number of runs by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs with the right result.
    pub right: u32,
    /// Runs that failed or had a wrong result, and scenarios that could not be set up.
    pub wrong: u32,
}

/// Runs `scenarios` one after another and appends the records to the results file; `print_line` is called for
/// each scenario and each run.
///
/// # Errors
/// If a record cannot be written, or work of the benchmark itself fails, such as making a scenario's directory. Failed
/// runs, and scenarios that cannot be set up (a server does not start), are only recorded and counted.
pub fn run(
    scenarios: &[&Scenario],
    tools: &Tools,
    settings: &Settings,
    print_line: &mut dyn FnMut(&str),
) -> io::Result<Tally> {
    let mut log = Log::open(&settings.results)?;
    log.write(&Record::Machine(machine::describe(settings.means)?))?;
    let mut tally = Tally::default();
    for scenario in scenarios {
        print_line(&format!("{}: {}", scenario.name, scenario.title));
        let at = |error: io::Error| io::Error::other(format!("{}: {error}", scenario.name));
        Scene {
            scenario,
            settings,
            log: &mut log,
            print_line,
            tally: &mut tally,
            stopped: HashSet::new(),
        }
        .play(tools)
        .map_err(at)?;
    }
    Ok(tally)
}

/// The results file.
struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path);
        let file =
            file.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends a record as one line, in a single write.
    fn write(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        written.map_err(|error| io::Error::other(format!("{}: {error}", self.path.display())))
    }
}

/// One scenario while it runs.
struct Scene<'a> {
    scenario: &'a Scenario,
    settings: &'a Settings,
    log: &'a mut Log,
    print_line: &'a mut dyn FnMut(&str),
    tally: &'a mut Tally,
    /// Tools and settings that once exceeded the time limit; they are not run again.
    stopped: HashSet<(String, String)>,
}

impl Scene<'_> {
    fn play(&mut self, tools: &Tools) -> io::Result<()> {
        let scenario = self.scenario;
        let work = self.settings.work.join("scenario");
        fs::create_dir(&work)?;
        let rounds = self.settings.rounds.unwrap_or(scenario.rounds);
        self.log.write(&Record::Scenario(self.describe(&work, rounds)?))?;
        let mut rows = Vec::new();
        for (tool, used) in tools.for_scenario(scenario) {
            match &tool.found {
                Ok(found) => rows.push((tool, found, used)),
                Err(cause) => self.missing(tool, used, cause)?,
            }
        }
        let stage = match Stage::set_up(scenario, &work, self.settings) {
            Ok(stage) => stage,
            Err(error) => {
                // Continue with other scenarios: their servers may be installed.
                for (tool, _, used) in rows {
                    self.missing(tool, used, &error.to_string())?;
                }
                self.tally.wrong += 1;
                return tear_down(&work);
            }
        };
        let mut count = 0;
        for round in 0..=rounds {
            // Each round starts with the next tool, so that none has a fixed position in the order.
            if !rows.is_empty() {
                rows.rotate_left(1);
            }
            for &(tool, found, used) in &rows {
                if self.stopped.contains(&(tool.name.clone(), used.settings.clone())) {
                    continue;
                }
                count += 1;
                let result = stage.result(count)?;
                self.one(&stage, (tool, found, used), round, &result, &work)?;
                stage.remove(&result)?;
            }
        }
        drop(stage);
        tear_down(&work)
    }

    /// One run: a fresh home directory, the tool, the check of its result, and the record.
    fn one(
        &mut self,
        stage: &Stage,
        (tool, found, used): (&Tool, &Found, &Use),
        round: u32,
        result: &Path,
        work: &Path,
    ) -> io::Result<()> {
        let home = work.join("home");
        job::fresh_home(&home)?;
        // Flush the previous run's dirty pages, so that this run does not pay for them.
        if self.scenario.storage != Storage::Ram {
            rustix::fs::syncfs(File::open(work)?)?;
            if self.in_page_cache()? {
                stage.data.warm()?;
            }
        }
        let mut run = blank(&self.scenario.name, &tool.name, used, &found.version, round);
        if let Some(measured) = self.measure(stage, (found, used), result, &home, &mut run)? {
            // A mount that has done its work may still take long to exit.
            if measured.timed_out && run.outcome != Outcome::Ok {
                self.stopped.insert((tool.name.clone(), used.settings.clone()));
            }
            fill_in(&mut run, &measured, self.scenario.direction);
        }
        (self.print_line)(&line(&run, self.scenario));
        match run.outcome {
            Outcome::Ok => self.tally.right += 1,
            _ => self.tally.wrong += 1,
        }
        self.log.write(&Record::Run(Box::new(run)))
    }

    /// Starts the far end, if the tool has one, then the tool, and measures what the scenario specifies. `None` if the
    /// far end failed, so that the tool was not started.
    fn measure(
        &self,
        stage: &Stage,
        (found, used): (&Found, &Use),
        result: &Path,
        home: &Path,
        run: &mut Run,
    ) -> io::Result<Option<Measured>> {
        let measure = self.scenario.measure;
        let limit = Duration::from_secs(self.scenario.time_limit);
        let mut variables = stage.variables(result);
        let mut end = None;
        if let Some(far) = &used.far {
            let far_home = home.join("far");
            match FarEnd::start(far, &found.path, &variables, &far_home, stage, limit)? {
                Ok(started) => end = Some(started),
                Err(cause) => {
                    run.outcome = Outcome::Failed { cause };
                    return Ok(None);
                }
            }
        }
        let point = home.join("mount");
        if measure.is_mount() {
            fs::create_dir(&point)?;
            variables.push(("MOUNT", point.clone().into()));
        }
        let spec = CommandSpec {
            shell: &used.run,
            tool: &found.path,
            variables,
            home,
            piped: measure == Measure::FirstByte,
            far: end.as_ref().map(FarEnd::id),
        };
        let job = Job::start(&spec, stage)?;
        let measured = match measure {
            Measure::Transfer | Measure::Connect => transfer(job, stage, result, home, limit, run)?,
            Measure::FirstByte => print(job, stage, home, limit, run)?,
            _ => {
                let (data, result) = (stage.data.clone(), result.to_owned());
                let visit = Visit { measure, data, point, result };
                mounted(job, stage, visit, home, limit, run)?
            }
        };
        Ok(Some(measured))
    }

    fn missing(&mut self, tool: &Tool, used: &Use, cause: &str) -> io::Result<()> {
        let mut run = blank(&self.scenario.name, &tool.name, used, "", 1);
        run.outcome = Outcome::Missing { cause: cause.to_owned() };
        (self.print_line)(&line(&run, self.scenario));
        self.log.write(&Record::Run(Box::new(run)))
    }

    fn describe(&self, work: &Path, rounds: u32) -> io::Result<record::Scenario> {
        let scenario = self.scenario;
        let storage = match scenario.storage {
            Storage::Ram => "tmpfs".to_owned(),
            Storage::Fresh if fresh::available() => fresh::NAME.to_owned(),
            Storage::Disk | Storage::Fresh => machine::file_system(work)?,
        };
        Ok(record::Scenario {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            protocol: scenario.protocol.to_string(),
            measure: scenario.measure,
            direction: match scenario.direction {
                Direction::Copy => "copy",
                Direction::Download => "download",
                Direction::Upload => "upload",
            }
            .to_owned(),
            link: stage::shape(scenario),
            files: scenario.data.files.into(),
            bytes: scenario.data.total(),
            storage,
            in_page_cache: self.in_page_cache()?,
            rounds,
        })
    }
}

impl Scene<'_> {
    /// True if source and copy together take less than 90 % of memory.
    fn in_page_cache(&self) -> io::Result<bool> {
        Ok(self.scenario.data.total() * 2 < machine::memory()? / 10 * 9)
    }
}

/// Unmounts all file systems below `work` and removes it.
fn tear_down(work: &Path) -> io::Result<()> {
    for mount in crate::mounts::mounts_in(work)?.iter().rev() {
        rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH)?;
    }
    fs::remove_dir_all(work)
}

fn blank(scenario: &str, tool: &str, used: &Use, version: &str, round: u32) -> Run {
    Run {
        scenario: scenario.to_owned(),
        tool: tool.to_owned(),
        settings: used.settings.clone(),
        version: version.to_owned(),
        command: used.described(),
        round,
        outcome: Outcome::Ok,
        seconds: 0.0,
        client_cpu: 0.0,
        server_cpu: None,
        peak_rss: 0,
        wire_up: None,
        wire_down: None,
        dropped: None,
        first_byte: None,
        read_rate: None,
        read: Vec::new(),
        parts: Vec::new(),
        wire: Vec::new(),
        progress: Vec::new(),
    }
}

fn fill_in(run: &mut Run, measured: &Measured, direction: Direction) {
    run.client_cpu = measured.client_cpu.as_secs_f64();
    run.server_cpu = measured.server_cpu.map(|cpu| cpu.as_secs_f64());
    run.peak_rss = measured.peak_rss;
    if let Some(traffic) = measured.samples.last() {
        run.wire_up = Some(traffic.up);
        run.wire_down = Some(traffic.down);
        run.dropped = traffic.dropped;
    }
    run.wire = measured.samples.course(|traffic| match direction {
        Direction::Upload => traffic.up,
        Direction::Copy | Direction::Download => traffic.down,
    });
}

/// The failure of the command itself: a timeout, or its exit status with its last error lines.
fn failure(measured: &Measured, home: &Path) -> Option<Outcome> {
    if measured.timed_out {
        let seconds = measured.time.as_secs();
        return Some(Outcome::Failed { cause: format!("stopped after {seconds} s") });
    }
    if measured.status == 0 {
        return None;
    }
    let status = measured.status;
    Some(Outcome::Failed {
        cause: format!("exit status {status}: {}", job::last_error_lines(home)),
    })
}

/// Waits for a transfer, and compares its result with the source.
fn transfer(
    job: Job,
    stage: &Stage,
    result: &Path,
    home: &Path,
    limit: Duration,
    run: &mut Run,
) -> io::Result<Measured> {
    let measured = job.finish(stage, limit)?;
    run.seconds = measured.time.as_secs_f64();
    run.outcome = match failure(&measured, home) {
        Some(failed) => failed,
        None => match stage.data.difference(result)? {
            None => Outcome::Ok,
            Some(cause) => Outcome::Wrong { cause },
        },
    };
    run.progress = progress::samples(File::open(home.join("stdout"))?);
    Ok(measured)
}

/// Times the first byte that a job prints.
fn print(
    job: Job,
    stage: &Stage,
    home: &Path,
    limit: Duration,
    run: &mut Run,
) -> io::Result<Measured> {
    let (measured, first, right) = first_byte(job, stage, limit)?;
    run.outcome = match (first, failure(&measured, home)) {
        (Some(time), _) if right => {
            run.seconds = time.as_secs_f64();
            Outcome::Ok
        }
        (Some(_), _) => Outcome::Wrong { cause: "the bytes are others".to_owned() },
        (None, Some(failed)) => failed,
        (None, None) => Outcome::Failed { cause: "it printed nothing".to_owned() },
    };
    Ok(measured)
}

/// Times what is done in a mount.
fn mounted(
    job: Job,
    stage: &Stage,
    visit: Visit,
    home: &Path,
    limit: Duration,
    run: &mut Run,
) -> io::Result<Measured> {
    let (measured, seen) = mount::look(job, stage, visit, home, limit)?;
    match seen {
        Ok(view) => {
            run.seconds = view.ready.as_secs_f64();
            run.first_byte = view.first_byte.map(|time| time.as_secs_f64());
            run.read_rate = view.rate;
            run.read = view.read;
            run.parts = view.parts;
            run.outcome = view.outcome;
        }
        Err(cause) => run.outcome = Outcome::Failed { cause },
    }
    Ok(measured)
}

/// Reads the first bytes of a job's output, then kills the job. Returns the measurement, the time to
/// the first byte (`None` if the job printed nothing), and whether the bytes are those of the file.
fn first_byte(
    mut job: Job,
    stage: &Stage,
    limit: Duration,
) -> io::Result<(Measured, Option<Duration>, bool)> {
    let mut output =
        job.output.take().ok_or_else(|| io::Error::other("the command's output is not a pipe"))?;
    let (start, pid) = (job.started(), job.id());
    let reader = std::thread::spawn(move || -> io::Result<_> {
        let mut buffer = vec![0; 4096];
        let mut length = output.read(&mut buffer)?;
        let time = start.elapsed();
        // Read at least 64 bytes, enough to distinguish the file's content from a message.
        while (1..64).contains(&length) {
            let more = output.read(&mut buffer[length..])?;
            if more == 0 {
                break;
            }
            length += more;
        }
        job::stop_group(pid, Signal::KILL);
        buffer.truncate(length);
        Ok((time, buffer))
    });
    let mut measured = job.finish(stage, limit)?;
    let read = reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
    let (time, bytes) = read;
    if bytes.is_empty() {
        return Ok((measured, None, false));
    }
    // The status is that of our SIGKILL.
    measured.status = 0;
    let mut expected = vec![0; bytes.len()];
    if let Some(name) = stage.data.names().next() {
        File::open(stage.data.root().join(name))?.read_exact(&mut expected)?;
    }
    Ok((measured, Some(time), expected == bytes))
}

/// The line printed after a run.
fn line(run: &Run, scenario: &Scenario) -> String {
    let name = match run.settings.as_str() {
        "default" => run.tool.clone(),
        settings => format!("{} ({settings})", run.tool),
    };
    let round = if run.round == 0 { "warm-up".to_owned() } else { format!("run {}", run.round) };
    let what = match &run.outcome {
        Outcome::Missing { cause } => return format!("  {name:33} {cause}"),
        Outcome::Failed { cause } => format!("FAILED: {cause}"),
        Outcome::Wrong { cause } => format!("WRONG: {cause}"),
        Outcome::Ok => match (scenario.measure, run.first_byte, run.read_rate) {
            (Measure::Transfer, ..) => format!(
                "{:8.2} s {:9.1} MB/s",
                run.seconds,
                scenario.data.total() as f64 / run.seconds / 1e6
            ),
            (Measure::Mount, Some(first), Some(rate)) => {
                format!("first byte {:6.0} ms {:7.1} MB/s", first * 1e3, rate / 1e6)
            }
            _ if !run.parts.is_empty() => {
                let part = |part: &Part| format!("{} {:.3} s", part.name, part.seconds);
                run.parts.iter().map(part).collect::<Vec<_>>().join(", ")
            }
            _ => format!("{:8.1} ms", run.seconds * 1e3),
        },
    };
    format!("  {name:33} {round:8} {what}")
}
