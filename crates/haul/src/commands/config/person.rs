//! Who sits at the terminal, and what they are asked.

use std::io::{self, IsTerminal as _};

use haul_net::Prompter as _;
use haul_storage::{Error, ErrorKind};

use crate::exit::Stop;
use crate::terminal::Terminal;

/// The person at the terminal. In a script there are no prompts.
#[derive(Debug)]
pub(super) struct Person {
    terminal: Terminal,
}

impl Person {
    /// Whoever is there, if anybody is.
    pub(super) fn find() -> Option<Self> {
        io::stdin().is_terminal().then_some(Self { terminal: Terminal { quiet: false } })
    }

    /// Asks until the answer makes sense; an empty one is `check`ed too.
    ///
    /// # Errors
    /// Nothing is typed any more.
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

    /// A question that is answered by yes or no; Enter is `usual`.
    pub(super) async fn agrees(&self, question: &str, usual: bool) -> Result<bool, Stop> {
        let choice = if usual { "yes" } else { "no" };
        let check = |answer: &str| match answer.to_lowercase().as_str() {
            "" => Ok(usual),
            "y" | "yes" => Ok(true),
            "n" | "no" => Ok(false),
            _ => Err("Please type 'yes' or 'no'.".to_owned()),
        };
        self.ask(&format!("{question} (yes/no) [{choice}]"), check).await
    }
}
