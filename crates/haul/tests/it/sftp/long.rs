//! A long path, on which lanes are opened in parallel and everything is requested as early as possible:
//! a client and a server with network stacks of their own, and the link between them.

use std::net::IpAddr;
use std::time::Duration;

use haul_bench::link::{LinkSpec, Means, Namespace, Network};

use super::files::arrives_in_one_version;
use super::limits::{both_ways, tree};
use super::sshd::Sshd;
use super::{Running, SftpSession, content};

/// Runs `test` at the near end of a long path. Without the right to create namespaces it is skipped,
/// with the reason printed.
fn far_away(test: impl FnOnce(&SftpSession) + Send) {
    if let Err(error) = Namespace::new() {
        eprintln!("skipped: {error}");
        return;
    }
    let way = LinkSpec::new(Duration::from_millis(50), Some(3e8));
    let network = Network::new(&[way], Means::of_this_machine()).unwrap();
    let link = &network.links()[0];
    let sshd = || Sshd::builder().on(IpAddr::V4(link.address())).start();
    // The server ends with the thread that starts it.
    let at_both_ends = || {
        let sftp = SftpSession::on(sshd());
        network.client().within(|| test(&sftp)).unwrap();
    };
    link.server().within(at_both_ends).unwrap();
}

#[test]
fn every_file_has_the_right_content() {
    far_away(|sftp| {
        tree(sftp, 3 << 20);
        both_ways(sftp, "");
    });
}

#[test]
fn a_single_file_has_the_right_content_whatever_its_length() {
    far_away(|sftp| {
        // The file is opened, and a piece of it read, along with the greeting of every lane.
        for (n, length) in [0, 1, 60_000, 65_536, 70_000, 600_000, 5 << 20].into_iter().enumerate()
        {
            sftp.session.write("src/one", content(n as u64, length));
            sftp.session.write("far/src/one", content(n as u64, length));
            sftp.haul("cp @/src/one one").status(0);
            sftp.same("src/one", "one");
            sftp.haul("cp src/one @/up/").status(0);
            sftp.same("src/one", "far/up/one");
        }
        std::os::unix::fs::symlink("one", sftp.far("src/link")).unwrap();
        sftp.haul("cp @/src/link linked").status(0);
        sftp.same("src/one", "linked");
    });
}

#[test]
fn a_new_part_file_is_not_confused_with_the_old_one_on_any_lane() {
    far_away(|sftp| {
        sftp.session.write("src/one", content(1, 12 << 20));
        for other in [content(2, 14 << 20), Vec::new()] {
            let line = sftp.line("cp --json --bwlimit 8M src/one @/up/");
            let mut running = Running::start(&sftp.session, &line);
            running.until_moved(4 << 20);
            running.kill();
            // Without a journal, the old part file (here `other`) is not resumed.
            sftp.session.forget_uploads();
            sftp.session.write(sftp.session.part_of("far/up/one").unwrap(), other);
            sftp.haul("cp src/one @/up/").status(0);
            sftp.same("src/one", "far/up/one");
            std::fs::remove_file(sftp.far("up/one")).unwrap();
        }
    });
}

#[test]
fn a_source_that_changes_while_it_is_read_arrives_in_one_version() {
    // The check for changes is sent right behind the last READs.
    far_away(arrives_in_one_version);
}

#[test]
fn a_run_that_was_killed_is_resumed() {
    far_away(|sftp| {
        sftp.session.write("src/one", content(1, 24 << 20));
        sftp.session.write("far/src/one", content(1, 24 << 20));
        for (running, rerun, one, other) in [
            ("cp --json --bwlimit 8M @/src/one .", "cp --json @/src/one .", "src/one", "one"),
            (
                "cp --json --bwlimit 8M src/one @/up/",
                "cp --json src/one @/up/",
                "src/one",
                "far/up/one",
            ),
        ] {
            let mut running = sftp.spawn(running);
            running.until_moved(14 << 20);
            running.kill();
            let again = sftp.haul(rerun).status(0).out();
            let resumed = again.lines().any(|line| {
                line.contains("resumed_bytes") && !line.contains("\"resumed_bytes\":0")
            });
            assert!(resumed, "{again}");
            sftp.same(one, other);
        }
    });
}
