//! The commands, and what several of them have in common. A command takes its arguments and returns how it ended.

mod cat;
mod check;
mod config;
mod cp;
mod demo;
mod du;
mod fan;
mod ls;
mod man;
mod mkdir;
mod mount;
mod mv;
mod nesting;
mod peers;
mod pipe;
mod receive;
mod rm;
mod serve;
mod sync;
mod transfer;
mod verify;

use std::ffi::OsString;

use crate::args::{Cli, Command, order};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::network_switch;
use crate::output::Printer;

pub(crate) use mount::enter as enter_namespace;

/// Starts a mount with `--daemon` in a background process; `None` for everything else. `arguments` are those of the
/// command line.
pub(crate) fn background(
    cli: &Cli,
    arguments: &[OsString],
    printer: &Printer,
) -> Option<Result<Exit, Stop>> {
    let Command::Mount(args) = &cli.command else { return None };
    // There is a command: the line was parsed.
    let command = order::command_at(arguments).unwrap_or(1);
    args.starts_daemon().then(|| mount::start(arguments, command, printer))
}

/// Runs the command of a command line.
pub(crate) async fn run(cli: Cli, printer: &Printer) -> Result<Exit, Stop> {
    let named = cli.config.as_deref();
    let config = || Config::load(named).map_err(|faults| Stop::Usage(faults.to_string()));
    match cli.command {
        Command::Cp(args) => Box::pin(cp::run(&args, &config()?, printer)).await,
        Command::Sync(args) => sync::run(&args, &config()?, printer).await,
        Command::Ls(args) => ls::run(&args, &config()?, printer).await,
        Command::Mv(args) => Box::pin(mv::run(&args, &config()?, printer)).await,
        Command::Cat(args) => Box::pin(cat::run(&args, &config()?, printer)).await,
        Command::Du(args) => du::run(&args, &config()?, printer).await,
        Command::Check(args) => check::run(&args, &config()?, printer).await,
        Command::Rm(args) => rm::run(&args, &config()?, printer).await,
        Command::Mkdir(args) => mkdir::run(&args, &config()?, printer).await,
        Command::Mount(args) => Box::pin(mount::run(&args, &config()?, printer)).await,
        Command::Verify(args) => verify::run(&args, &config()?, printer).await,
        Command::Serve(args) => serve::run(&args, printer).await,
        Command::Bridge(args) => serve::bridge(&args, printer).await,
        Command::Share(mut args) => {
            let config = config()?;
            args.no_lan = !network_switch::uses_lan(args.no_lan, &config);
            args.no_port_mapping = !network_switch::maps_ports(args.no_port_mapping, &config);
            if args.code && args.bridge.is_none() {
                args.bridge = config.bridge;
            }
            Box::pin(serve::share(&args, printer)).await
        }
        Command::Peers(args) => peers::run(&args, &config()?, printer).await,
        Command::Config(args) => Box::pin(config::run(&args, named, printer)).await,
        Command::Demo(args) => demo::run(&args, printer).await,
        Command::Completions(args) => Ok(man::completions(&args, printer)),
        Command::Man(args) => man::manual(&args, printer),
    }
}
