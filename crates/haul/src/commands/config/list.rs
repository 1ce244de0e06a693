//! `haul config list`.

use crate::backends::location_of;
use crate::config::{Config, Entry, Section};
use crate::exit::Exit;
use crate::output::{Printer, json};

/// Runs `haul config list`.
pub(super) fn run(config: &Config, printer: &Printer) -> Exit {
    let file = config.file.as_deref().map(|file| file.display().to_string()).unwrap_or_default();
    let mut remotes: Vec<_> = config.remote.iter().collect();
    remotes.sort_by_key(|(_, remote)| remote.line);
    let options: Vec<_> =
        config.entries.iter().filter(|entry| entry.section.remote().is_none()).collect();
    if printer.is_json() {
        for (name, remote) in remotes {
            let location = location_of(remote).to_string();
            printer.object(&json::Event::remote(name, location, file.clone(), remote.line));
        }
        for entry in options {
            printer.object(&json::Event::Setting(setting(entry, &file)));
        }
        return Exit::Done;
    }
    if remotes.is_empty() && options.is_empty() {
        match file.is_empty() {
            true => printer.note("no configuration file; haul config add adds a remote"),
            false => printer.note(format!("{file}: no remotes and no defaults")),
        }
        return Exit::Done;
    }
    let width = remotes.iter().map(|(name, _)| name.chars().count() + 1).max().unwrap_or(0);
    let mut is_first = remotes.is_empty();
    for (name, remote) in remotes {
        printer.result(format!("{:width$}  {}", format!("{name}:"), location_of(remote)));
    }
    let mut last: Option<&Section> = None;
    for entry in options {
        if last != Some(&entry.section) {
            if !std::mem::take(&mut is_first) {
                printer.result("");
            }
            printer.result(entry.section.to_string());
            last = Some(&entry.section);
        }
        let value = entry.shown.as_deref().unwrap_or("(not shown)");
        printer.result(format!("{} = {value}", entry.key));
    }
    Exit::Done
}

fn setting<'a>(entry: &'a Entry, file: &str) -> json::SettingFields<'a> {
    json::SettingFields {
        section: Some(entry.section.name()),
        name: &entry.key,
        value: entry.shown.as_deref(),
        source: "file",
        file: Some(file.to_owned()),
        line: Some(entry.line),
        of: None,
    }
}
