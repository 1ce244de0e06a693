use super::*;

async fn brief(uploads: &Uploads, key: &[u8]) -> BriefClaim {
    uploads.claim_brief(key.to_vec()).await
}

#[tokio::test]
async fn uploads_of_two_machines_to_one_name_have_different_part_files() {
    let [one, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let [one, other] = &[&one, &other].map(|at| Uploads::new(Some(at.path().to_owned())));
    let [first, second] = [one.claim(b"k".to_vec()).await, other.claim(b"k".to_vec()).await];
    assert_ne!(first.part_name(b"f"), second.part_name(b"f"));
    let name = brief(one, b"k").await.part_name(b"f");
    assert_ne!(brief(other, b"k").await.part_name(b"f"), name);
    assert_eq!(brief(one, b"k").await.part_name(b"f"), name);
    assert_eq!(one.part_name(b"k", b"f"), first.part_name(b"f"));
}

/// Formerly, only their journals differed: a run took what the other one had written to the same part file for its own.
#[tokio::test]
async fn two_addresses_of_a_server_have_different_part_files() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(Some(directory.path().to_owned()));
    let first = uploads.claim(b"nas".to_vec()).await;
    let second = uploads.claim(b"192.168.1.5".to_vec()).await;
    assert_ne!(first.part_name(b"f"), second.part_name(b"f"));
    assert_ne!(first.journal(), second.journal());
    let (first, second) = (brief(&uploads, b"nas").await, brief(&uploads, b"192.168.1.5").await);
    assert_ne!(first.part_name(b"f"), second.part_name(b"f"));
}

#[tokio::test]
async fn a_second_upload_of_one_machine_has_its_own_part_file_until_the_first_one_ends() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(Some(directory.path().to_owned()));
    let first = uploads.claim(b"k".to_vec()).await;
    let (name, journal) = (first.part_name(b"f"), first.journal());
    assert!(journal.is_some() && !first.has_journal());
    std::fs::write(journal.as_ref().unwrap(), "").unwrap();
    let second = uploads.claim(b"k".to_vec()).await;
    let third = uploads.claim(b"k".to_vec()).await;
    let others = [&second, &third].map(|claim| (claim.part_name(b"f"), claim.journal()));
    assert!(others[0].0 != name && others[1].0 != name && others[0].0 != others[1].0);
    assert!(others.iter().all(|(_, journal)| journal.is_none()));
    // One that starts again has the same name, so that it replaces what could not be removed.
    drop(second);
    assert_eq!(uploads.claim(b"k".to_vec()).await.part_name(b"f"), others[0].0);
    assert!(uploads.claim(b"another".to_vec()).await.journal().is_some());
    first.release();
    let next = uploads.claim(b"k".to_vec()).await;
    assert_eq!((next.part_name(b"f"), next.journal()), (name, journal));
    assert!(next.has_journal());
    drop((first, third, next));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 3, "journal, number and process lock may stay: {left:?}");
}

#[tokio::test]
async fn a_second_small_file_of_one_name_has_its_own_part_file_until_the_first_one_ends() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(Some(directory.path().to_owned()));
    let first = brief(&uploads, b"k").await;
    let name = first.part_name(b"f");
    let second = brief(&uploads, b"k").await;
    assert_ne!(second.part_name(b"f"), name);
    assert_ne!(brief(&uploads, b"k").await.part_name(b"f"), second.part_name(b"f"));
    drop(first);
    assert_eq!(brief(&uploads, b"k").await.part_name(b"f"), name);
}

#[tokio::test]
async fn without_a_directory_a_name_occurs_once_at_a_time_and_is_used_again() {
    for journals in [None, Some("/dev/null/none".into())] {
        let uploads = Uploads::new(journals);
        let first = uploads.claim(b"k".to_vec()).await;
        let name = first.part_name(b"f");
        let second = uploads.claim(b"k".to_vec()).await;
        assert_ne!(second.part_name(b"f"), name);
        assert_eq!((first.journal(), second.journal()), (None, None));
        drop(first);
        assert_eq!(uploads.claim(b"k".to_vec()).await.part_name(b"f"), name);
    }
}

/// Formerly, it counted as a file system without locks, so that two runs had the same part file.
#[tokio::test]
async fn a_lock_that_cannot_be_opened_is_replaced_or_respected() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(Some(directory.path().to_owned()));
    let first = uploads.claim(b"k".to_vec()).await;
    let is_lock = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.ends_with(".lock") && !name.starts_with("uploader")
    };
    let mut paths = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let lock = paths.find(|path| is_lock(path)).unwrap();
    first.release();
    std::os::unix::fs::symlink("elsewhere", &lock).unwrap();
    let claim = uploads.claim(b"k".to_vec()).await;
    assert!(claim.journal().is_some());
    drop(claim);
    std::fs::create_dir(&lock).unwrap();
    assert_eq!(uploads.claim(b"k".to_vec()).await.journal(), None);
}
