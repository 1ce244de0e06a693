//! Links, copies and locks without their capability are refused as `Unsupported`; any number of lanes may be set.

use super::fixture::{Fixture, Outcome};
use crate::{ErrorKind, LinkKind, Medium};

pub(super) async fn undeclared_operations_are_unsupported(fixture: Fixture) -> Outcome {
    let (can, storage) = (fixture.can(), &fixture.storage);
    let file = fixture.put("file", b"content").await?;
    let new = fixture.path("new")?;
    if !can.symlinks {
        let result = storage.create_link(&new, &LinkKind::Symbolic(b"file".to_vec()), false).await;
        ensure_error!(result, ErrorKind::Unsupported, "a symbolic link");
    }
    if !can.hard_links {
        let result = storage.create_link(&new, &LinkKind::Hard(file.clone()), false).await;
        ensure_error!(result, ErrorKind::Unsupported, "a hard link");
    }
    if !can.server_copy {
        ensure_error!(storage.copy(&file, &new).await, ErrorKind::Unsupported, "a copy");
    }
    if !can.lock {
        ensure_error!(storage.lock(&file).await, ErrorKind::Unsupported, "a lock");
    }
    fixture.is_free(&new).await?;
    fixture.has(&file, b"content").await
}

pub(super) async fn any_number_of_lanes_is_harmless(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    for lanes in [1, 4, 2, 0, 1] {
        fixture.storage.set_lanes(lanes);
        fixture.has(&path, b"content").await?;
        let link = fixture.storage.link();
        let most = fixture.can().max_lanes.unwrap_or(usize::MAX);
        ensure!(link.open <= most, "{} lanes are open, and at most {most} may be", link.open);
        if fixture.can().medium == Medium::Link {
            ensure!(link.open >= 1, "the storage works without an open lane");
            ensure!(link.rtt.is_some(), "the RTT is unknown after several requests");
            ensure!(link.connect.is_some(), "the time to connect is unknown");
        }
    }
    Ok(())
}
