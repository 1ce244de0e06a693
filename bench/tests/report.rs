//! Reports of made-up results: reading, ranking, and what the pages show.
//!
//! [`lines`] makes a benchmark as the runner would write it. The page made of it stays in the
//! build's temporary directory as `report.html`, for inspection.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::path::Path;

use haul_bench::record::{
    ByteSample, LinkShape, Machine, Measure, Outcome, Part, ProgressSample, Record, Run, Scenario,
};
use haul_bench::report::{Results, Row, ScenarioResults, chart, html, markdown};

const LOCAL: &str = "local/copy/one";
const SFTP: &str = "sftp/200ms-500mbit/download/one";
const CONNECT: &str = "sftp/200ms-500mbit/connect";
const MOUNT: &str = "sftp/50ms-500mbit/mount";
const WRITTEN: &str = "sftp/50ms-500mbit/mount-write/one";
const PAYLOAD_LIMIT: f64 = 60.3e6;
const ROUNDS: u32 = 5;

fn machine() -> Record {
    Record::Machine(Machine {
        started: 1_767_225_599,
        processor: "Example 9000 <fast & cool>".to_owned(),
        cores: 4,
        memory: 16 << 30,
        kernel: "6.12.1".to_owned(),
        congestion_control: "cubic".to_owned(),
        tcp_send_buffer: 4 << 20,
        tcp_receive_buffer: 6 << 20,
        links: "tun".to_owned(),
        busy: 0.03,
    })
}

fn scenario(name: &str, title: &str, measure: Measure, rtt: Option<f64>, bytes: u64) -> Scenario {
    let link = |rtt_ms| LinkShape {
        rtt_ms,
        down_bits: Some(500e6),
        up_bits: Some(500e6),
        loss: 0.0,
        jitter_ms: 0.0,
        changes: Vec::new(),
        payload_limit: Some(PAYLOAD_LIMIT),
    };
    Scenario {
        name: name.to_owned(),
        title: title.to_owned(),
        protocol: "sftp".to_owned(),
        measure,
        direction: "download".to_owned(),
        link: rtt.map(link),
        files: 1,
        bytes,
        storage: "ext4".to_owned(),
        in_page_cache: rtt.is_none(),
        rounds: ROUNDS,
    }
}

fn run(scenario: &Scenario, tool: &str, round: u32, seconds: f64) -> Run {
    let linked = scenario.link.is_some();
    let wire = (scenario.bytes as f64 * 1.04) as u64 + 9000;
    Run {
        scenario: scenario.name.clone(),
        tool: tool.to_owned(),
        settings: "default".to_owned(),
        version: format!("{tool} 1.{}", tool.len()),
        command: format!("{tool} --quiet sftp:$HOST/data $DESTINATION"),
        round,
        outcome: Outcome::Ok,
        seconds,
        client_cpu: seconds * 0.21,
        server_cpu: linked.then_some(seconds * 0.13),
        peak_rss: (20 << 20) + (tool.len() as u64 * 3 + u64::from(round)) * (1 << 20),
        wire_up: linked.then_some(wire / 60),
        wire_down: linked.then_some(wire),
        dropped: linked.then_some(0),
        first_byte: None,
        read_rate: None,
        read: Vec::new(),
        parts: Vec::new(),
        wire: Vec::new(),
        progress: Vec::new(),
    }
}

/// A warm-up that is much slower, then counted rounds that scatter by a few per cent.
fn rounds(scenario: &Scenario, tool: &str, seconds: f64) -> Vec<Run> {
    let scatter = [1.6, 1.0, 1.04, 0.97, 1.01, 1.11];
    let runs = (0..).zip(scatter).map(|(round, factor)| {
        let mut run = run(scenario, tool, round, seconds * factor);
        if scenario.link.is_some() && scenario.measure == Measure::Transfer {
            run.wire = wire(run.seconds, run.wire_down.unwrap());
        }
        run
    });
    runs.collect()
}

/// A second of slow start, then a steady rate with small variations.
fn wire(seconds: f64, bytes: u64) -> Vec<ByteSample> {
    let weight = |i: u32| (f64::from(i) / 10.0).min(1.0) * (1.0 + 0.08 * f64::from(i / 9 * 7 % 5));
    let steps = (seconds * 10.0) as u32;
    let all: f64 = (0..=steps).map(weight).sum();
    let mut sum = 0.0;
    let samples = (0..=steps).map(|i| {
        sum += weight(i);
        let at = seconds * f64::from(i) / f64::from(steps);
        ByteSample { at, bytes: (bytes as f64 * sum / all) as u64 }
    });
    samples.collect()
}

fn progress(seconds: f64, bytes: u64) -> Vec<ProgressSample> {
    let steps = (seconds * 5.0) as u32;
    let samples = (0..=steps).map(|i| {
        let share = f64::from(i) / f64::from(steps);
        ProgressSample {
            at: seconds * share,
            bytes: (bytes as f64 * share) as u64,
            lanes: (1 + i / 4).min(4),
            window: ((1 << 20) << (i / 3).min(4)).min(15 << 20),
            rtt_ms: (i > 1).then(|| 200.0 + f64::from(i % 7)),
        }
    });
    samples.collect()
}

fn local() -> (Scenario, Vec<Run>) {
    let scenario =
        scenario(LOCAL, "Local copy of one large file", Measure::Transfer, None, 1_073_741_824);
    let seconds = [("cp", 0.41), ("haul", 0.39), ("rsync", 1.92)];
    let runs = seconds.iter().flat_map(|(tool, seconds)| rounds(&scenario, tool, *seconds));
    let runs = runs.collect();
    (scenario, runs)
}

fn sftp() -> (Scenario, Vec<Run>) {
    let title = "SFTP download of one large file";
    let scenario = scenario(SFTP, title, Measure::Transfer, Some(200.0), 1_000_000_000);
    let mut runs = Vec::new();
    for mut run in rounds(&scenario, "haul", 18.2) {
        run.progress = progress(run.seconds, scenario.bytes);
        runs.push(run);
    }
    for mut run in rounds(&scenario, "rclone", 17.6) {
        run.settings = "best".to_owned();
        runs.push(run);
    }
    runs.extend(rounds(&scenario, "rclone", 41.0));
    runs.extend(rounds(&scenario, "scp", 96.0));
    let mut lftp = rounds(&scenario, "lftp", 33.0);
    lftp[2].outcome = Outcome::Failed { cause: "exit 1: pget | queue\nat 0x<script>".to_owned() };
    runs.extend(lftp);
    let mut aria2 = rounds(&scenario, "aria2", 3.0);
    for run in &mut aria2 {
        run.outcome = Outcome::Wrong { cause: "data/one differs at byte 4096".to_owned() };
    }
    runs.extend(aria2);
    let mut ncftp = run(&scenario, "ncftp", 0, 0.0);
    ncftp.outcome = Outcome::Missing { cause: "no ncftp; install the package ncftp".to_owned() };
    runs.push(ncftp);
    (scenario, runs)
}

fn connect() -> (Scenario, Vec<Run>) {
    let title = "SFTP: connecting, one byte";
    let scenario = scenario(CONNECT, title, Measure::Connect, Some(200.0), 1);
    let seconds = [("haul", 1.42), ("scp", 2.31), ("rclone", 2.84)];
    let runs = seconds.iter().flat_map(|(tool, seconds)| rounds(&scenario, tool, *seconds));
    let runs = runs.collect();
    (scenario, runs)
}

fn mount() -> (Scenario, Vec<Run>) {
    let title = "SFTP mounted: reading one file";
    let scenario = scenario(MOUNT, title, Measure::Mount, Some(50.0), 400_000_000);
    let mut runs = Vec::new();
    for (tool, first_byte, read_rate) in [("sshfs", 0.11, 21e6), ("haul", 0.06, 54e6)] {
        let seconds = 400e6 / read_rate;
        for mut run in rounds(&scenario, tool, seconds) {
            run.first_byte = Some(first_byte * run.seconds / seconds);
            run.read_rate = Some(400e6 / run.seconds);
            run.read = wire(run.seconds, scenario.bytes);
            // How long mounting takes has no part in the other figures.
            run.seconds = 1.0 / f64::from(run.round + 1);
            runs.push(run);
        }
    }
    (scenario, runs)
}

fn written() -> (Scenario, Vec<Run>) {
    let title = "SFTP: one file written into a mount";
    let scenario = scenario(WRITTEN, title, Measure::MountWrite, Some(50.0), 400_000_000);
    let mut runs = Vec::new();
    // rclone closes the file sooner, but finishes the upload later.
    for (tool, closed, uploaded) in [("rclone", 1.0, 14.0), ("haul", 1.5, 8.0)] {
        for mut run in rounds(&scenario, tool, uploaded) {
            let part = |name: &str, seconds| Part { name: name.to_owned(), seconds };
            let scatter = run.seconds / uploaded;
            run.parts = vec![part("until closed", closed * scatter), part("uploaded", run.seconds)];
            run.seconds = 0.2;
            runs.push(run);
        }
    }
    (scenario, runs)
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).unwrap() + "\n"
}

/// The results file of the given scenarios.
fn file(scenarios: impl IntoIterator<Item = (Scenario, Vec<Run>)>) -> String {
    let mut text = line(&machine());
    for (scenario, runs) in scenarios {
        text.push_str(&line(&Record::Scenario(scenario)));
        for run in runs {
            text.push_str(&line(&Record::Run(Box::new(run))));
        }
    }
    text
}

/// A whole made-up benchmark.
fn lines() -> String {
    file([local(), sftp(), connect(), mount(), written()])
}

fn read(text: &str) -> Results {
    Results::read([("results.jsonl", text)]).unwrap()
}

fn only(scenario: (Scenario, Vec<Run>)) -> ScenarioResults {
    read(&file([scenario])).sections.remove(0).scenarios.remove(0)
}

fn row<'a>(results: &'a ScenarioResults, label: &str) -> &'a Row {
    results.rows.iter().find(|row| row.label() == label).unwrap()
}

fn labels(results: &ScenarioResults) -> Vec<String> {
    results.rows.iter().map(Row::label).collect()
}

fn error(text: &str) -> String {
    Results::read([("results.jsonl", text)]).unwrap_err().to_string()
}

#[test]
fn a_torn_last_line_is_an_error_with_file_and_line() {
    let whole = file([connect()]);
    let torn = &whole[..whole.len() - 40];
    let last = whole.lines().count();
    let error = error(torn);
    let start = format!("results.jsonl, line {last}: the line is truncated");
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn an_unknown_record_is_an_error_that_lists_the_known_ones() {
    let error = error("{\"record\":\"weather\",\"rain\":true}\n");
    assert!(error.starts_with("results.jsonl, line 1: not a record of a benchmark"), "{error}");
    assert!(error.contains("weather") && error.contains("scenario"), "{error}");
}

#[test]
fn stray_and_duplicate_runs_are_errors() {
    let (scenario, runs) = connect();
    let stray = line(&Record::Run(Box::new(runs[0].clone())));
    assert!(error(&stray).contains("no machine record"));
    assert!(error(&(line(&machine()) + &stray)).contains("no line before defines it"));
    let twice = file([(scenario, vec![runs[1].clone(), runs[1].clone()])]);
    assert!(error(&twice).contains("round 1 of haul (default) is there already"));
}

#[test]
fn figures_are_medians_of_counted_rounds() {
    let results = only(sftp());
    let haul = row(&results, "haul");
    let seconds = haul.seconds.unwrap();
    assert_eq!(seconds.count, 5);
    assert!((seconds.median - 18.2 * 1.01).abs() < 1e-9, "{seconds:?}");
    assert!((seconds.max - 18.2 * 1.11).abs() < 1e-9, "without the warm-up: {seconds:?}");
    let rate = haul.rate.unwrap().median;
    assert!((rate - 1e9 / (18.2 * 1.01)).abs() < 1.0);
    assert!((haul.share.unwrap() - rate / PAYLOAD_LIMIT).abs() < 1e-9);
    assert_eq!(haul.typical.as_ref().unwrap().round, 4);
    assert_eq!(haul.peak_rss, Some((20 + 4 * 3 + 5) << 20));
    assert!((haul.wire_overhead.unwrap() - 1.04 * 61.0 / 60.0).abs() < 1e-3);
}

#[test]
fn the_median_of_an_even_count_of_rounds_lies_between_two_of_them() {
    let (scenario, mut runs) = connect();
    runs.truncate(5);
    let results = only((scenario, runs));
    let latency = row(&results, "haul").latency.unwrap();
    assert_eq!(latency.count, 4);
    assert!((latency.median - 1.42 * 1.005).abs() < 1e-9, "{latency:?}");
}

#[test]
fn rows_are_sorted_by_speed_and_missing_tools_come_last() {
    let results = only(sftp());
    let sorted = ["rclone · best", "haul", "lftp", "rclone", "scp", "aria2", "ncftp"];
    assert_eq!(labels(&results), sorted);
    let missing = row(&results, "ncftp").note().unwrap();
    assert_eq!(missing, "missing: no ncftp; install the package ncftp");
    assert_eq!(labels(&only(connect())), ["haul", "scp", "rclone"], "less time is more speed");
}

#[test]
fn speed_is_compared_to_haul_or_to_the_fastest_where_haul_did_not_run() {
    let results = only(sftp());
    assert_eq!(row(&results, "haul").against_reference, Some(1.0));
    let best = row(&results, "rclone · best").against_reference.unwrap();
    assert!((best - 18.2 / 17.6).abs() < 1e-9);
    let (scenario, mut runs) = sftp();
    runs.retain(|run| run.tool != "haul");
    let results = only((scenario, runs));
    assert_eq!(row(&results, "rclone · best").against_reference, Some(1.0));
}

#[test]
fn a_failed_run_has_no_figures_and_its_cause_is_shown() {
    let results = only(sftp());
    let lftp = row(&results, "lftp");
    assert_eq!((lftp.counted, lftp.correct_runs()), (5, 4));
    assert!(lftp.note().unwrap().starts_with("failed 1 of 5: exit 1: pget"));
}

#[test]
fn a_wrong_result_is_shown_as_a_failure_and_not_as_a_time() {
    let results = only(sftp());
    let aria2 = row(&results, "aria2");
    assert_eq!((aria2.seconds, aria2.rate, aria2.typical.as_ref()), (None, None, None));
    let note = "failed 5 of 5: wrong result: data/one differs at byte 4096";
    assert_eq!(aria2.note().unwrap(), note);
    let page = html(&read(&file([sftp()])));
    assert!(page.contains(note));
    assert!(!page.contains("330 MB/s"), "the rate it would have had");
}

#[test]
fn a_failure_in_the_warm_up_is_noted() {
    let (scenario, mut runs) = connect();
    runs.truncate(1);
    runs[0].outcome = Outcome::Failed { cause: "exit 255".to_owned() };
    let results = only((scenario, runs));
    assert_eq!(results.rows[0].note().unwrap(), "failed in the warm-up: exit 255");
}

#[test]
fn each_file_is_a_section_unless_it_belongs_to_the_same_benchmark() {
    let other = file([mount()]).replace("1767225599", "1767300000");
    let (first, second) = (file([local()]), file([sftp()]));
    let results = Results::read([("a", &*first), ("b", &*second), ("c", &*other)]).unwrap();
    let scenarios: Vec<usize> = results.sections.iter().map(|s| s.scenarios.len()).collect();
    assert_eq!(scenarios, [2, 1]);
    assert!(html(&results).contains("2026-01-01 20:40 UTC"));
}

#[test]
fn markdown_keeps_pipes_and_line_breaks_of_a_cause_in_its_cell() {
    let text = markdown(&read(&lines()));
    let lftp = text.lines().find(|line| line.starts_with("| lftp")).unwrap();
    assert!(lftp.contains("exit 1: pget \\| queue at 0x\\<script\\> |"), "{lftp}");
    let sftp = text.split("### ").find(|part| part.starts_with("SFTP download")).unwrap();
    let table = sftp.lines().filter(|line| line.starts_with('|'));
    let bars: Vec<usize> = table.map(|row| row.replace("\\|", "").matches('|').count()).collect();
    assert_eq!(bars.len(), 9);
    assert!(bars.iter().all(|count| *count == bars[0]), "{bars:?}");
}

#[test]
fn columns_without_a_figure_are_left_out() {
    let text = markdown(&read(&lines()));
    let part = |title: &str| text.split("### ").find(|part| part.starts_with(title)).unwrap();
    assert!(part("SFTP download").contains("| Server CPU, s |"));
    assert!(!part("Local copy").contains("Server CPU"));
    assert!(!part("Local copy").contains("Of limit"));
    assert!(!part("SFTP: connecting").contains("MB/s |"));
    assert!(part("SFTP mounted").contains("| First byte, ms | Reading, MB/s |"));
}

#[test]
fn a_copy_within_memory_is_flagged_in_both_reports() {
    let results = read(&file([local()]));
    for text in [markdown(&results), html(&results)] {
        assert!(text.contains("page cache: no figure of a disk"));
    }
    assert!(!html(&read(&file([connect()]))).contains("page cache"));
}

#[test]
fn the_page_escapes_texts_from_tools_and_systems() {
    let page = html(&read(&lines()));
    assert!(!page.contains("<script"));
    assert!(page.contains("0x&lt;script&gt;"));
    assert!(page.contains("Example 9000 &lt;fast &amp; cool&gt;"));
}

#[test]
fn the_page_is_self_contained() {
    let page = html(&read(&lines()));
    for outside in ["http://", "https://", "src=", "@import", "url(", "<link", "<object"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn plots_follow_the_readers_colours_and_have_titles_and_captions() {
    let page = html(&read(&lines()));
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html"), &page).unwrap();
    let (_, body) = page.split_once("</style>").unwrap();
    let colour = body.split("=\"#").skip(1).find(|rest| !rest.starts_with('s'));
    assert_eq!(colour, None, "a colour of the plotting crate was left");
    assert!(body.contains("stroke-dasharray"), "limits and other settings are dashed");
    for class in ["plot wide", "plot narrow"] {
        let plots = body.matches(&format!("<svg class=\"{class}\"")).count();
        assert_eq!(plots, 11, "bars of 7, a wire, a reader, haul's lanes and window");
    }
    assert_eq!(body.matches("<title>").count(), 22);
    assert_eq!(body.matches("<figcaption>").count(), 11);
}

#[test]
fn the_rate_of_a_reader_in_a_mount_is_drawn_over_time_for_each_tool() {
    let page = html(&read(&file([mount()])));
    let title = "<title>SFTP mounted: reading one file: MB/s read over time</title>";
    assert_eq!(page.matches(title).count(), 2, "for wide and for narrow screens");
    let figures = page.split("<figure>").find(|figure| figure.contains(title));
    let figure = figures.unwrap();
    for tool in ["haul", "sshfs", "payload limit 60.3 MB/s"] {
        assert!(figure.contains(&format!("</svg>{tool}</li>")), "{tool}: {figure}");
    }
    let (scenario, mut runs) = mount();
    for run in &mut runs {
        run.read.clear();
    }
    let page = html(&read(&file([(scenario, runs)])));
    assert!(!page.contains("over time"), "results of an earlier version have no samples");
}

#[test]
fn a_mounts_typical_run_is_that_of_the_median_rate() {
    let results = only(mount());
    for tool in ["haul", "sshfs"] {
        // The factor 1.01 of `rounds`.
        assert_eq!(row(&results, tool).typical.as_ref().unwrap().round, 4);
    }
}

#[test]
fn each_timed_part_of_a_mount_has_a_column_and_the_last_one_decides_the_order() {
    let results = only(written());
    assert_eq!(labels(&results), ["haul", "rclone"]);
    let haul = row(&results, "haul");
    assert!((haul.part("until closed").unwrap().median - 1.5 * 1.01).abs() < 1e-9);
    assert!((haul.part("uploaded").unwrap().median - 8.0 * 1.01).abs() < 1e-9);
    assert_eq!(haul.part("until mounted"), None);
    let rclone = row(&results, "rclone").against_reference.unwrap();
    assert!((rclone - 8.0 / 14.0).abs() < 1e-9);
    let heads = "| Tool | until closed, s | until closed, range, s | uploaded, s | uploaded, range, s \
                 | Speed (uploaded), haul = 1 |";
    let text = markdown(&read(&file([written()])));
    assert!(text.contains(heads), "{text}");
    assert!(html(&read(&file([written()]))).contains("uploaded: seconds, less is better"));
}

#[test]
fn results_of_an_earlier_version_can_be_read() {
    let text = file([mount()]);
    let run = text.lines().find(|line| line.contains("\"run\"")).unwrap();
    let mut fields: serde_json::Value = serde_json::from_str(run).unwrap();
    for added in ["read", "parts"] {
        assert!(fields.as_object_mut().unwrap().remove(added).is_some(), "{added}");
    }
    assert!(serde_json::from_value::<Record>(fields).is_ok());
}

#[test]
fn a_scenario_without_runs_is_shown_as_such() {
    let results = read(&file([(mount().0, Vec::new())]));
    assert!(markdown(&results).contains("No runs."));
    assert!(html(&results).contains("No runs."));
}

#[test]
fn the_chart_has_a_bar_for_each_tool_and_the_limit_of_the_link() {
    let svg = chart(&read(&file([sftp()]))).unwrap();
    assert!(svg.contains("Download at 200 ms round trip, 500 Mbit/s (MB/s)"), "{svg}");
    assert!(svg.contains("60.3: all that the link carries"), "{svg}");
    let description = "MB/s. SFTP: rclone, best 56.3, haul 54.4, lftp 30.2, rclone 24.1, scp 10.3. \
                       The link carries 60.3 MB/s.";
    assert!(svg.contains(description), "{svg}");
    let bars = svg.matches("<rect class=").count();
    assert_eq!((bars, svg.matches("<rect class=\"haul\"").count()), (5, 1));
    assert!(!svg.contains("ncftp") && !svg.contains("aria2"), "no figure, no bar: {svg}");
}

#[test]
fn results_that_cannot_be_compared_are_not_drawn_in_one_chart() {
    let error = chart(&read(&file([sftp(), local()]))).unwrap_err();
    assert!(error.contains(SFTP) && error.contains(LOCAL), "{error}");
    assert!(chart(&read(&file([connect()]))).is_err());
}

/// Redraw it with: haul-bench report bench/results/readme.jsonl --chart docs/chart.svg
#[test]
fn the_chart_in_the_documentation_matches_the_recorded_results() {
    let recorded = include_str!("../results/readme.jsonl");
    let results = Results::read([("readme.jsonl", recorded)]).unwrap();
    assert!(chart(&results).unwrap() == include_str!("../../docs/chart.svg"), "redraw it");
}
