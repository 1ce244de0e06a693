//! Tests of the budget for responses.

use super::super::job::NAMED;
use super::*;
use crate::codec::Extensions;
use crate::server::ShareOptions;
use tokio::time::sleep;

#[tokio::test]
async fn responses_with_paths_count_against_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let target = "x".repeat(4000);
    std::os::unix::fs::symlink(target, directory.path().join("link")).unwrap();
    let share = Arc::new(Share::open(directory.path(), ShareOptions::default()).unwrap());
    let (responses, mut unsent) = unbounded_channel();
    let (requests, incoming) = unbounded_channel();
    let incoming = Box::pin(futures_util::stream::unfold(incoming, |mut incoming| async {
        incoming.recv().await.map(|piece| (piece, incoming))
    }));
    let init = Request::Init { version: 3, extensions: Extensions::default() };
    requests.send(init.encode(0)).unwrap();
    const MANY: usize = 2000;
    for id in 0..MANY {
        let request = Request::Readlink(Bytes::from_static(b"link"));
        requests.send(request.encode(id as u32)).unwrap();
    }
    let connected = Arc::new(());
    let client = Arc::downgrade(&connected);
    let session =
        tokio::spawn(Session::new(share, responses, Arc::default(), client).run(incoming));
    let room = limits::RESPONSE_BYTES / NAMED;
    // The response to INIT does not count.
    while unsent.len() < room + 1 {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(200)).await;
    assert_eq!(unsent.len(), room + 1);
    for _ in 0..=MANY {
        unsent.recv().await.unwrap();
    }
    drop(requests);
    assert_eq!(session.await.unwrap(), Ok(()));
}
