//! The conformance kit on the in-memory backend, in every variant of its capabilities.

use std::sync::Arc;

use haul_storage::conformance;
use haul_storage::memory::MemoryStorage;

#[tokio::test(start_paused = true)]
async fn it_conforms_with_all_capabilities() {
    let storage = MemoryStorage::new();
    conformance::run_all(Arc::clone(&storage) as _).await;
    assert_eq!(storage.paths(), Vec::<String>::new());
}
