//! The prompts of `haul config add` and `haul config edit`.

use std::io::{self, IsTerminal as _};

use haul_net::Prompter as _;
use haul_storage::{Error, ErrorKind};

use crate::exit::Stop;
use crate::terminal::Terminal;

/// Prompts the user at the terminal. Scripts, where standard input is not a terminal, are never prompted.
#[derive(Debug)]
pub(super) struct Prompter {
    terminal: Terminal,
}

impl Prompter {
    /// A prompter, if standard input is a terminal.
    pub(super) fn find() -> Option<Self> {
        io::stdin().is_terminal().then_some(Self { terminal: Terminal { quiet: false } })
    }

    /// Prompts until `check` accepts the input, which may be empty.
    ///
    /// # Errors
    /// If the terminal is closed, or input ends.
    pub(super) async fn prompt<T>(
        &self,
        prompt: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Stop> {
        loop {
            let Some(input) = self.terminal.visible(&format!("{prompt}: ")).await? else {
                let error = Error::new(ErrorKind::Interrupted, "ask").at("the terminal");
                return Err(error.because("nothing was typed").into());
            };
            match check(input.trim()) {
                Ok(value) => return Ok(value),
                Err(cause) => self.terminal.notice(&cause).await,
            }
        }
    }

    /// Prompts for yes or no; empty input means `default`.
    pub(super) async fn agrees(&self, prompt: &str, default: bool) -> Result<bool, Stop> {
        let choice = if default { "yes" } else { "no" };
        let check = |input: &str| match input.to_lowercase().as_str() {
            "" => Ok(default),
            "y" | "yes" => Ok(true),
            "n" | "no" => Ok(false),
            _ => Err("Please type 'yes' or 'no'.".to_owned()),
        };
        self.prompt(&format!("{prompt} (yes/no) [{choice}]"), check).await
    }
}
