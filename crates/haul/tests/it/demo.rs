//! `haul demo`.

use crate::session::Session;

#[test]
fn every_step_is_a_row_and_nothing_stays() {
    let mut session = Session::new().directory("tmp");
    for n in 0..20 {
        session = session.file(format!("data/{}/{n}", n % 3), vec![n; 100_000]);
    }
    let ran = session.haul("demo --source data --dir tmp").status(0);
    let out = ran.out();
    let steps: Vec<_> = out.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(steps, ["step", "copy", "again", "verify", "compare"]);
    assert!(out.contains("20 as listed"), "{out}");
    assert_eq!(session.haul("ls tmp").out(), "");
}

#[test]
fn too_little_room_is_said_before_anything_is_done() {
    let session = Session::new().directory("data");
    session.haul("demo --source data").status(1).stderr_has("data: cannot find data: ");
}
