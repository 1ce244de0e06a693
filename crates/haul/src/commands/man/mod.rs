//! `haul man` and `haul completions`: manual pages and shell completions, generated from the command line definition.

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

/// Footer and header of every page.
const SOURCE: &str = concat!("haul ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "User Commands";

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs, printer: &Printer) -> Exit {
    // Writing to memory cannot fail.
    printer.raw(&complete::script(args.shell).unwrap_or_default());
    Exit::Done
}

/// Prints one manual page, of the whole program or of one command, or writes all pages to a directory.
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
    // Writing to memory cannot fail.
    printer.raw(&page.unwrap_or_default());
    Ok(Exit::Done)
}

/// Writes `haul.1`, and `haul-COMMAND.1` for every command and subcommand.
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
    Ok(corrected(&page))
}

/// The page of the program, with a section for each command.
fn whole_page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).title("HAUL").source(SOURCE).manual(MANUAL);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    for (heading, subcommand) in runnable_commands(command, "") {
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
    Ok(corrected(&page))
}

/// All commands that can run by themselves, with their full names in upper case (`SERVE SFTP`). `before` precedes each
/// name.
fn runnable_commands<'a>(command: &'a Command, before: &str) -> Vec<(String, &'a Command)> {
    let mut found = Vec::new();
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("{before}{}", subcommand.get_name().to_uppercase());
        let below = runnable_commands(subcommand, &format!("{name} "));
        if !subcommand.is_subcommand_required_set() {
            found.push((name, subcommand));
        }
        found.extend(below);
    }
    found
}

/// Corrects two things in a page from `clap_mangen`. It calls the text after the options EXTRA; NOTES is the usual
/// name. And it omits an empty date from the title line, so that the next field would be taken for the date.
fn corrected(page: &[u8]) -> Vec<u8> {
    let page = String::from_utf8_lossy(page);
    let page = page.replacen(" 1  \"haul ", " 1 \"\" \"haul ", 1);
    page.replace(".SH EXTRA\n", ".SH NOTES\n").replace(".SS EXTRA\n", ".SS NOTES\n").into_bytes()
}
