//! Prompts for the user at the terminal.

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

    /// Asks a question until `check` accepts the answer, which may be empty.
    ///
    /// # Errors
    /// If the terminal is closed, or input ends.
    pub(super) async fn ask<T>(
        &self,
        question: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Stop> {
        loop {
            let Some(answer) = self.terminal.visible(&format!("{question}: ")).await? else {
                let error = Error::new(ErrorKind::Interrupted, "ask").at("the terminal");
                return Err(error.because("nothing was typed").into());
            };
            match check(answer.trim()) {
                Ok(answer) => return Ok(answer),
                Err(cause) => self.terminal.notice(&cause).await,
            }
        }
    }

    /// Asks a yes-or-no question; an empty answer means `default`.
    pub(super) async fn agrees(&self, question: &str, default: bool) -> Result<bool, Stop> {
        let choice = if default { "yes" } else { "no" };
        let check = |answer: &str| match answer.to_lowercase().as_str() {
            "" => Ok(default),
            "y" | "yes" => Ok(true),
            "n" | "no" => Ok(false),
            _ => Err("Please type 'yes' or 'no'.".to_owned()),
        };
        self.ask(&format!("{question} (yes/no) [{choice}]"), check).await
    }
}
