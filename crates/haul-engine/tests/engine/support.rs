//! Transfers between two storages in memory, and their outcome.

use std::sync::{Arc, Mutex};

use haul_engine::{Cancel, Event, EventSink, Job, Settings, Summary, transfer};
use haul_storage::memory::MemoryStorage;
use haul_storage::{Error, RelPath, Storage};

/// The events and the summary of a transfer.
pub struct Outcome {
    pub summary: Summary,
    pub events: Vec<Event>,
}

impl Outcome {
    pub fn failures(&self) -> Vec<&Error> {
        let failed = |event: &'_ Event| matches!(event, Event::Failed(_));
        self.events
            .iter()
            .filter(|event| failed(event))
            .map(|event| match event {
                Event::Failed(error) => error,
                _ => unreachable!("filtered"),
            })
            .collect()
    }

    pub fn warnings(&self) -> Vec<String> {
        let text = |event: &Event| match event {
            Event::Warning { location, message } => Some(format!("{location}: {message}")),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }

    /// Panics if there were failures.
    #[track_caller]
    pub fn assert_clean(&self) -> &Self {
        assert!(self.failures().is_empty(), "failures: {:?}", self.failures());
        assert_eq!(self.summary.failed, 0);
        self
    }
}

pub fn path(text: impl AsRef<[u8]>) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// From the root of one storage to the root of another.
pub fn job(source: &Arc<MemoryStorage>, destination: &Arc<MemoryStorage>) -> Job {
    job_at(source, "", destination, "")
}

pub fn job_at(
    source: &Arc<MemoryStorage>,
    from: &str,
    destination: &Arc<MemoryStorage>,
    to: &str,
) -> Job {
    Job {
        source: Arc::clone(source) as Arc<dyn Storage>,
        source_path: path(from),
        destination: Arc::clone(destination) as Arc<dyn Storage>,
        destination_path: path(to),
        expected: None,
    }
}

pub async fn run(job: Job, settings: Settings) -> Outcome {
    run_until(job, settings, Cancel::default()).await
}

pub async fn run_until(job: Job, settings: Settings, cancel: Cancel) -> Outcome {
    run_jobs(vec![job], settings, cancel).await
}

pub async fn run_jobs(jobs: Vec<Job>, settings: Settings, cancel: Cancel) -> Outcome {
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let received = Arc::clone(&received);
        EventSink::new(move |event| received.lock().unwrap().push(event))
    };
    let summary = transfer(jobs, settings, sink, cancel).await;
    let events = std::mem::take(&mut *received.lock().unwrap());
    Outcome { summary, events }
}
