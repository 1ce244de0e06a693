//! Lanes of a host that several paths share, and which storages are on one host.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::memory::{MemoryStorage, SimulatedLink};
use haul_storage::{Location, RelPath, Scheme, Storage};

use crate::budget::hosts::{HostLanes, HostLink};
use crate::budget::{LinkBudgets, LinkShare};
use crate::links::Links;
use crate::{Auto, Job, Settings, WindowProfile};

fn at(scheme: Scheme, port: Option<u16>) -> Arc<MemoryStorage> {
    let location = Location::Remote {
        scheme,
        user: None,
        host: "host".to_owned(),
        port,
        path: b"/".to_vec(),
        query: None,
        written: None,
    };
    let link = SimulatedLink::new(Duration::from_millis(200), 50_000_000);
    MemoryStorage::builder().with_location(location).with_link(link).build()
}

fn same(one: &Arc<MemoryStorage>, other: &Arc<MemoryStorage>) -> bool {
    let host = |storage: &Arc<MemoryStorage>| {
        let storage = Arc::clone(storage) as Arc<dyn Storage>;
        Links::to_source(&storage).sources()[0].0.clone()
    };
    host(one) == host(other)
}

#[test]
fn storages_that_share_lanes_are_on_one_host() {
    use Scheme::{Dav, Davs, Ftp, Http, Https, Sftp};
    assert!(same(&at(Sftp, None), &at(Sftp, None)));
    assert!(same(&at(Http, None), &at(Dav, Some(80))));
    assert!(same(&at(Https, Some(443)), &at(Davs, None)));
    assert!(!same(&at(Http, None), &at(Https, None)));
    assert!(!same(&at(Sftp, None), &at(Ftp, None)));
    assert!(!same(&at(Sftp, None), &at(Sftp, Some(2222))));
    assert!(!same(&unnamed(), &unnamed()));
}

/// A storage behind a link, whose location names no host.
fn unnamed() -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_link(SimulatedLink::new(Duration::ZERO, 1)).build()
}

/// A download from `far`, or an upload to it.
fn share(
    budgets: &LinkBudgets,
    settings: &Settings,
    far: &Arc<MemoryStorage>,
    up: bool,
) -> Arc<LinkShare> {
    let near = MemoryStorage::new() as Arc<dyn Storage>;
    let far = Arc::clone(far) as Arc<dyn Storage>;
    let (source, destination) = if up { (near, far) } else { (far, near) };
    let root = RelPath::root();
    let (source_path, destination_path) = (root.clone(), root);
    let job = Job { source, source_path, destination, destination_path, expected: None };
    let on_disk = crate::window::Window::new(crate::window::Limits::default()).decision();
    budgets.join(settings, &Links::of(&[job]), up, on_disk)
}

/// Formerly, uploads to a peer over a long path had only 6 MiB in flight for the first second or longer.
#[tokio::test(start_paused = true)]
async fn writes_bounded_by_the_backend_begin_with_a_wide_window() {
    let first_window = async |bounded_writes| {
        let link = SimulatedLink::new(Duration::from_millis(200), 50_000_000);
        let far = MemoryStorage::builder().with_link(link);
        let far = far.with_capabilities(|can| can.bounded_writes = bounded_writes).build();
        let (budgets, settings) = (LinkBudgets::default(), Settings::default());
        let [up, down] = [true, false].map(|up| share(&budgets, &settings, &far, up));
        settle(&[&up, &down]).await;
        [up, down].map(|share| share.decision().window_bytes)
    };
    let ([up, down], [wide_up, other]) = (first_window(false).await, first_window(true).await);
    assert!(wide_up >= 3 * up, "{up} and {wide_up}");
    assert_eq!(down, other, "reads are not affected");
}

/// Lets lanes open and windows follow.
async fn settle(shares: &[&Arc<LinkShare>]) {
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(25)).await;
        for share in shares {
            share.tick();
        }
    }
}

fn lanes(far: &Arc<MemoryStorage>) -> usize {
    let link = far.link();
    link.open + link.opening
}

#[tokio::test(start_paused = true)]
async fn a_host_gets_the_lanes_of_all_its_paths() {
    let (budgets, settings, far) =
        (LinkBudgets::default(), Settings::default(), at(Scheme::Sftp, None));
    let down = share(&budgets, &settings, &far, false);
    settle(&[&down]).await;
    assert_eq!(lanes(&far), 12, "the target of the path");
    let second = share(&budgets, &settings, &far, false);
    settle(&[&down, &second]).await;
    assert_eq!(lanes(&far), 12, "a second transfer has no lanes of its own");
    let up = share(&budgets, &settings, &far, true);
    settle(&[&down, &second, &up]).await;
    assert_eq!(lanes(&far), 24, "an upload is another path");
    assert_eq!((down.link().open, up.link().open), (12, 12), "each path knows its part");
    drop(down);
    settle(&[&second, &up]).await;
    assert_eq!(lanes(&far), 24, "another download uses the path");
    drop(second);
    settle(&[&up]).await;
    assert_eq!(lanes(&far), 12);
    drop(up);
    assert_eq!(lanes(&far), 12, "lanes stay open after the last path");
}

/// Formerly, a member that had set 12 before did not set it again after another one had set 20.
#[tokio::test(start_paused = true)]
async fn a_number_of_lanes_that_another_member_has_changed_is_set_again() {
    let (far, host) = (at(Scheme::Sftp, None), Arc::new(HostLanes::default()));
    let member = || HostLink::new(Arc::clone(&host), Arc::clone(&far) as Arc<dyn Storage>, 64);
    let (one, other) = (member(), member());
    one.set_target(1, 12);
    other.set_target(2, 8);
    settle(&[]).await;
    assert_eq!(lanes(&far), 20);
    one.set_target(1, 4);
    settle(&[]).await;
    assert_eq!(lanes(&far), 12);
}

#[tokio::test(start_paused = true)]
async fn paths_together_stay_within_the_limit_of_the_host() {
    for (profile, fixed, most) in
        [(WindowProfile::Safe, Auto::Auto, 4), (WindowProfile::Default, Auto::Fixed(6), 6)]
    {
        let settings = Settings { profile, lanes: fixed, ..Settings::default() };
        let (budgets, far) = (LinkBudgets::default(), at(Scheme::Sftp, None));
        let down = share(&budgets, &settings, &far, false);
        let up = share(&budgets, &settings, &far, true);
        settle(&[&down, &up]).await;
        assert_eq!(lanes(&far), most);
    }
}
