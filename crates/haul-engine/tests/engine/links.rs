//! Symbolic and hard links whose name another program takes.

use std::sync::Arc;
use std::time::Duration;

use haul_engine::{Overwrite, Settings};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, LinkKind, Storage as _};

use crate::support::{Outcome, job, path, run};

/// Copies a link whose destination another program creates after it was looked up.
async fn copy_meanwhile(
    source: &Arc<MemoryStorage>,
    destination: &Arc<MemoryStorage>,
    overwrite: Overwrite,
) -> Outcome {
    destination.faults().on(Operation::CreateLink).delay(Duration::from_millis(200));
    let settings = Settings { overwrite, retry_pause: Duration::ZERO, ..Settings::default() };
    let another_program = async {
        while destination.faults().count(Operation::CreateLink) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        destination.add_file("link", "of another program");
    };
    tokio::join!(run(job(source, destination), settings), another_program).0
}

/// Formerly, the link replaced it.
#[tokio::test]
async fn with_never_a_link_does_not_replace_a_file_that_was_created_since() {
    for is_hard in [false, true] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("a", "content");
        match is_hard {
            true => {
                let link = LinkKind::Hard(path("a"));
                source.create_link(&path("link"), &link, false).await.unwrap();
            }
            false => source.add_symlink("link", "a"),
        }
        let outcome = copy_meanwhile(&source, &destination, Overwrite::Never).await;
        let failures = outcome.failures();
        assert_eq!(failures.len(), 1, "{is_hard}");
        assert_eq!(failures[0].kind(), ErrorKind::AlreadyExists, "{is_hard}");
        assert_eq!(outcome.warnings(), Vec::<String>::new(), "{is_hard}");
        assert_eq!(destination.content("link"), "of another program", "{is_hard}");
        destination.take_away("link");
        let replaced = copy_meanwhile(&source, &destination, Overwrite::Different).await;
        replaced.assert_clean();
        assert_ne!(destination.entry("link").size, 18, "{is_hard}");
    }
}
