//! An example backend: a tree in the memory of a server, over TCP. `docs/backends.md` explains it.
//! `backend` is all that a new backend needs beyond the client library of its service; `toy` is the service.
//! This program starts the server and runs the conformance suite against the backend.

mod backend;
mod toy;

use std::process::ExitCode;
use std::sync::Arc;

use haul_storage::{Storage, conformance};

#[expect(clippy::print_stdout, reason = "a program that prints its results")]
#[tokio::main]
async fn main() -> std::io::Result<ExitCode> {
    let address = toy::server::start().await?;
    let storage: Arc<dyn Storage> = Arc::new(backend::TcpStorage::new(address));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in conformance::cases() {
        if !case.applies(storage.capabilities()) {
            skipped += 1;
            println!("not claimed  {}", case.name());
        } else if let Err(failure) = case.run(Arc::clone(&storage)).await {
            failed += 1;
            println!("FAILED       {}: {failure}", case.name());
        } else {
            passed += 1;
            println!("passed       {}", case.name());
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} not claimed; {:?}", storage.link());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
