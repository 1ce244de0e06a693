//! The commands, one per file. Each takes its arguments and returns how it ended.

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
mod mv;
mod pipe;
mod rm;
mod serve;
mod sync;
mod transfer;
mod verify;

use crate::args::{Cli, Command};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

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
        Command::Verify(args) => verify::run(&args, &config()?, printer).await,
        Command::Serve(args) => serve::run(&args, printer).await,
        Command::Config(args) => Box::pin(config::run(&args, named, printer)).await,
        Command::Demo(args) => demo::run(&args, printer).await,
        Command::Completions(args) => Ok(man::completions(&args, printer)),
        Command::Man(args) => man::manual(&args, printer),
    }
}
