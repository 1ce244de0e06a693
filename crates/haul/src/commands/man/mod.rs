//! `haul man` and `haul completions`: what packagers and shells want to know of the command line.

mod sections;

use std::path::Path;
use std::{fs, io};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use haul_storage::Error;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::complete;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Foot and head of every page.
const SOURCE: &str = concat!("haul ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "User Commands";

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs, printer: &Printer) -> Exit {
    // It is made in memory, where writing cannot fail.
    printer.raw(&complete::script(args.shell).unwrap_or_default());
    Exit::Done
}

/// Prints a manual page, of everything or of one command, or writes all pages to a directory.
pub(crate) fn manual(args: &ManArgs, printer: &Printer) -> Result<Exit, Stop> {
    let mut command = Cli::command();
    command.build();
    if let Some(directory) = &args.dir {
        write_pages(&command, directory)?;
        return Ok(Exit::Done);
    }
    let page = match args.command.first() {
        None => whole_page(&command),
        Some(_) => {
            let mut found = &command;
            for name in &args.command {
                let below = found.find_subcommand(name).filter(|found| found.get_name() != "help");
                found = below
                    .ok_or_else(|| Stop::Usage(format!("no command '{}'", name.escape_debug())))?;
            }
            page_of(found, &args.command.join(" "))
        }
    };
    // It is made in memory, where writing cannot fail.
    printer.raw(&page.unwrap_or_default());
    Ok(Exit::Done)
}

/// Writes `haul.1`, and `haul-COMMAND.1` for every command and those below it.
fn write_pages(command: &Command, directory: &Path) -> Result<(), Error> {
    let write = |name: &str, page: io::Result<Vec<u8>>| {
        let path = directory.join(name);
        page.and_then(|page| fs::write(&path, page))
            .map_err(|error| Error::from_io("write", error).at(path.display()))
    };
    fs::create_dir_all(directory)
        .map_err(|error| Error::from_io("create", error).at(directory.display()))?;
    write("haul.1", whole_page(command))?;
    let mut commands: Vec<_> =
        command.get_subcommands().map(|found| (String::new(), found)).collect();
    while let Some((above, found)) = commands.pop() {
        if found.get_name() == "help" {
            continue;
        }
        let name = format!("{above}{}", found.get_name());
        write(&format!("haul-{}.1", name.replace(' ', "-")), page_of(found, &name))?;
        commands.extend(found.get_subcommands().map(|below| (format!("{name} "), below)));
    }
    Ok(())
}

/// The page of one command: `haul-cp(1)`.
fn page_of(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let title = format!("HAUL-{}", name.to_uppercase().replace(' ', "-"));
    let man = Man::new(command.clone()).title(title).source(SOURCE).manual(MANUAL);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if command.get_after_long_help().is_some() {
        man.render_extra_section(&mut page)?;
    }
    page.extend_from_slice(sections::sections(name).as_bytes());
    Ok(notes(&page))
}

/// The page of the program with that of every command as a section of its own.
fn whole_page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).title("HAUL").source(SOURCE).manual(MANUAL);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    for (heading, subcommand) in below(command, "") {
        let mut section = Vec::new();
        let man = Man::new(subcommand.clone());
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        man.render_options_section(&mut section)?;
        if subcommand.get_after_long_help().is_some() {
            man.render_extra_section(&mut section)?;
        }
        page.extend_from_slice(format!(".SH \"{heading}\"\n").as_bytes());
        page.extend_from_slice(
            String::from_utf8_lossy(&section).replace(".SH ", ".SS ").as_bytes(),
        );
    }
    man.render_extra_section(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(notes(&page))
}

/// The commands that do something, with their names in full: of `serve` those of its protocols.
fn below<'a>(command: &'a Command, before: &str) -> Vec<(String, &'a Command)> {
    let mut found = Vec::new();
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("{before}{}", subcommand.get_name().to_uppercase());
        if subcommand.has_subcommands() {
            found.extend(below(subcommand, &format!("{name} ")));
        } else {
            found.push((name, subcommand));
        }
    }
    found
}

/// clap's name for what comes after the options says nothing, and it leaves out an empty date, whose place the next
/// field of the title then takes.
fn notes(page: &[u8]) -> Vec<u8> {
    let page = String::from_utf8_lossy(page);
    let page = page.replacen(" 1  \"haul ", " 1 \"\" \"haul ", 1);
    page.replace(".SH EXTRA\n", ".SH NOTES\n").replace(".SS EXTRA\n", ".SS NOTES\n").into_bytes()
}
