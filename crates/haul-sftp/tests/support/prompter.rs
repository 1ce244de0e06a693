//! A user at a terminal, with prepared responses to prompts.
//!
//! A test binary includes it with `#[path = "../support/prompter.rs"] mod prompter;`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use haul_sftp::ssh::{Prompter, Secret};
use haul_storage::Result;

/// Responds to prompts in order. After the last response, every prompt is cancelled.
#[derive(Debug, Default)]
pub struct ScriptedUser {
    responses: Mutex<VecDeque<String>>,
    /// All prompts and notices so far.
    shown: Mutex<Vec<String>>,
}

impl ScriptedUser {
    pub fn responding(responses: &[&str]) -> Arc<Self> {
        let responses = responses.iter().map(|&response| response.to_owned()).collect();
        Arc::new(Self { responses: Mutex::new(responses), shown: Mutex::default() })
    }

    /// All prompts and notices so far.
    pub fn prompts_shown(&self) -> Vec<String> {
        self.shown.lock().unwrap().clone()
    }

    /// The number of prompts and notices that contain `text`.
    pub fn shown_count(&self, text: &str) -> usize {
        self.prompts_shown().iter().filter(|shown| shown.contains(text)).count()
    }

    fn respond(&self, prompt: &str) -> Option<String> {
        self.shown.lock().unwrap().push(prompt.to_owned());
        self.responses.lock().unwrap().pop_front()
    }
}

#[async_trait]
impl Prompter for ScriptedUser {
    async fn secret(&self, prompt: &str) -> Result<Option<Secret>> {
        Ok(self.respond(prompt).map(Secret::new))
    }

    async fn visible(&self, prompt: &str) -> Result<Option<String>> {
        Ok(self.respond(prompt))
    }

    async fn notice(&self, text: &str) {
        self.shown.lock().unwrap().push(text.to_owned());
    }
}
