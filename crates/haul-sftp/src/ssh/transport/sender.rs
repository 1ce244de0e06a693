//! The task that writes. Each write contains all output that has accumulated during the previous one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::end::End;
use super::link::Sink;

/// How long the last bytes may take after the connection was closed, and how long the reader may take to find the
/// reason of a failed write.
const LAST: Duration = Duration::from_secs(1);

/// Writes until the connection ends.
pub async fn run(connection: Arc<Connection>, mut sink: Sink) {
    let mut buffer = Vec::new();
    while let Some(output) = connection.next_output(buffer).await {
        let written = tokio::select! {
            biased;
            written = sink.write(&output) => written,
            () = overtime(&connection) => break,
            // Otherwise a peer that does not read would block this task, which keeps the link open.
            () = connection.state.ended() => break,
        };
        if let Err(error) = written {
            // A DISCONNECT that the server has sent before it closed is a better explanation.
            if timeout(LAST, connection.state.ended()).await.is_err() {
                connection.finish(End::Broken(error));
            }
            return;
        }
        buffer = output;
    }
    connection.finish(End::ClosedHere);
}

async fn overtime(connection: &Connection) {
    connection.closed().await;
    sleep(LAST).await;
}
