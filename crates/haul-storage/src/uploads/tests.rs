use super::*;

#[tokio::test]
async fn uploads_of_two_machines_to_one_name_have_different_part_files() {
    let [one, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let [one, other] = &[&one, &other].map(|at| Uploads::new(Some(at.path().to_owned())));
    let [first, second] = [one.claim(b"k".to_vec()).await, other.claim(b"k".to_vec()).await];
    assert_ne!(first.part_name(b"f"), second.part_name(b"f"));
    let brief = |uploads: &Uploads| uploads.claim_brief(b"k".to_vec()).part_name(b"f");
    assert_ne!(brief(one), brief(other));
    assert_eq!(brief(one), brief(one));
    assert_eq!(one.part_name(b"f"), first.part_name(b"f"));
}

#[tokio::test]
async fn a_second_upload_of_one_machine_has_its_own_part_file_until_the_first_one_ends() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(Some(directory.path().to_owned()));
    let first = uploads.claim(b"k".to_vec()).await;
    let (name, journal) = (first.part_name(b"f"), first.journal());
    assert!(journal.is_some());
    for _ in 0..2 {
        let second = uploads.claim(b"k".to_vec()).await;
        assert_ne!(second.part_name(b"f"), name);
        assert_eq!(second.journal(), None);
    }
    assert!(uploads.claim(b"another".to_vec()).await.journal().is_some());
    first.release();
    let next = uploads.claim(b"k".to_vec()).await;
    assert_eq!((next.part_name(b"f"), next.journal()), (name, journal));
    drop((first, next));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 2, "besides the ID and the lock of this process: {left:?}");
}

#[test]
fn a_second_small_file_of_one_name_has_its_own_part_file_until_the_first_one_ends() {
    let directory = tempfile::tempdir().unwrap();
    let uploads = Uploads::new(Some(directory.path().to_owned()));
    let claim = || uploads.claim_brief(b"k".to_vec());
    let first = claim();
    let name = first.part_name(b"f");
    let second = claim();
    assert_ne!(second.part_name(b"f"), name);
    assert_ne!(claim().part_name(b"f"), second.part_name(b"f"));
    drop(first);
    assert_eq!(claim().part_name(b"f"), name);
}

#[tokio::test]
async fn without_a_directory_no_name_occurs_twice() {
    let uploads = Uploads::new(None);
    let [first, second] = [uploads.claim(b"k".to_vec()).await, uploads.claim(b"k".to_vec()).await];
    assert_ne!(first.part_name(b"f"), second.part_name(b"f"));
    assert_eq!(first.journal(), None);
}
