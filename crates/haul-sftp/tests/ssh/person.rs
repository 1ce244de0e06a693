//! A user at a terminal, with prepared responses to prompts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use haul_sftp::ssh::{Prompter, Secret};
use haul_storage::Result;

/// Responds to prompts in order. After the last response, every prompt is cancelled.
#[derive(Debug, Default)]
pub struct Person {
    answers: Mutex<VecDeque<String>>,
    /// All prompts and notices so far.
    heard: Mutex<Vec<String>>,
}

impl Person {
    pub fn answering(answers: &[&str]) -> Arc<Self> {
        let answers = answers.iter().map(|&answer| answer.to_owned()).collect();
        Arc::new(Self { answers: Mutex::new(answers), heard: Mutex::default() })
    }

    /// All prompts and notices so far.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// The number of prompts and notices that contain `text`.
    pub fn heard_of(&self, text: &str) -> usize {
        self.heard().iter().filter(|heard| heard.contains(text)).count()
    }

    fn answer(&self, prompt: &str) -> Option<String> {
        self.heard.lock().unwrap().push(prompt.to_owned());
        self.answers.lock().unwrap().pop_front()
    }
}

#[async_trait]
impl Prompter for Person {
    async fn secret(&self, prompt: &str) -> Result<Option<Secret>> {
        Ok(self.answer(prompt).map(Secret::new))
    }

    async fn visible(&self, prompt: &str) -> Result<Option<String>> {
        Ok(self.answer(prompt))
    }

    async fn notice(&self, text: &str) {
        self.heard.lock().unwrap().push(text.to_owned());
    }
}
