//! The task that writes: as much at a time as has gathered while the last was written.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::end::End;
use super::link::Sink;

/// How long the last bytes may take when nobody wants the connection any more, and how long the
/// reader may take to find out why nothing can be written.
const LAST: Duration = Duration::from_secs(1);

/// Writes until the connection ends.
pub async fn run(connection: Arc<Connection>, mut sink: Sink) {
    let mut buffer = Vec::new();
    while let Some(output) = connection.next_output(buffer).await {
        let written = tokio::select! {
            biased;
            written = sink.write(&output) => written,
            () = overtime(&connection) => break,
            // A far end that takes nothing would hold the writer, and the writer the link.
            () = connection.state.ended() => break,
        };
        if let Err(error) = written {
            // What the server said before it closed explains more.
            if timeout(LAST, connection.state.ended()).await.is_err() {
                connection.finish(End::Broken(error));
            }
            return;
        }
        buffer = output;
    }
    connection.finish(End::GivenUp);
}

async fn overtime(connection: &Connection) {
    connection.closed().await;
    sleep(LAST).await;
}
