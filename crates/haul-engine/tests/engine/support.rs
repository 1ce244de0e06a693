//! A transfer between two storages in memory, told as a test wants it.

use std::sync::{Arc, Mutex};

use haul_engine::{Cancel, Event, EventSink, Job, Settings, Summary, transfer};
use haul_storage::memory::MemoryStorage;
use haul_storage::{Error, RelPath, Storage};

/// What a transfer said and how it ended.
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

    /// Panics unless everything went well.
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

/// From the whole of one storage into the whole of another.
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
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let heard = Arc::clone(&heard);
        EventSink::new(move |event| heard.lock().unwrap().push(event))
    };
    let summary = transfer(jobs, settings, sink, cancel).await;
    let events = std::mem::take(&mut *heard.lock().unwrap());
    Outcome { summary, events }
}
