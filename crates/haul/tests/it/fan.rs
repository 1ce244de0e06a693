//! `haul cp` to and from many hosts. The hosts are remotes of the configuration on this machine, so
//! that everything but the network is real.

use crate::session::Session;

/// Three hosts `n1` to `n3`, one `old`, one `dead`, and a tree `src`.
fn session() -> Session {
    let session = Session::new()
        .file("src/a", "aaa")
        .file("src/d/b", "bb")
        .file("src/big", vec![7; 5 << 20])
        .directory("src/empty")
        .link("src/link", "a");
    let mut config = String::new();
    for host in ["n1", "n2", "n3", "old"] {
        std::fs::create_dir_all(session.path(format!("hosts/{host}"))).unwrap();
        let root = session.path(format!("hosts/{host}"));
        config.push_str(&format!("[remote.{host}]\nurl = \"{}\"\n", root.display()));
    }
    // A host on which nothing can be created: a file is where its directory would be.
    session.write("dead", "");
    let dead = session.path("dead/in");
    config.push_str(&format!("[remote.dead]\nurl = \"{}\"\n", dead.display()));
    session.file("config.toml", config)
}

#[test]
fn a_tree_goes_to_every_host_of_the_list_and_a_rerun_sends_nothing() {
    let session = session();
    let line = "cp --config config.toml src n[1-3],old:data/";
    let ran = session.haul(line).status(0);
    for host in ["n1", "n2", "n3", "old"] {
        session.tool(&format!("diff -r --no-dereference src hosts/{host}/data/src"));
        assert!(ran.out().contains(&format!("{host}: 3 files, 5.00 MiB in ")), "{}", ran.out());
    }
    assert_eq!(ran.out().lines().count(), 4);
    assert!(
        ran.err().starts_with("4 hosts; 12 files, 20.0 MiB; moved 20.0 MiB in "),
        "{}",
        ran.err()
    );
    let again = session.haul(line).status(0);
    assert!(again.out().contains("n2: 3 files, 5.00 MiB in "), "{}", again.out());
    assert!(again.out().contains("; 3 unchanged"), "{}", again.out());
    assert!(again.err().contains("moved 0 B in"), "{}", again.err());
}

/// Standard output and standard error often go to one terminal or log. Formerly, results could come after the summary.
#[test]
fn the_summary_comes_after_all_results() {
    let session = session();
    let many = "cp --config config.toml src/ n[1-3],old:data";
    for (line, last) in [(many, "4 hosts"), ("cp -v --overwrite always src/ other", "3 files")] {
        for _ in 0..10 {
            let log = std::fs::File::create(session.path("log")).unwrap();
            let mut command = session.command(line);
            command.stdout(log.try_clone().unwrap()).stderr(log);
            assert!(command.status().unwrap().success());
            let text = session.read("log");
            assert!(text.lines().next_back().unwrap().starts_with(last), "{text}");
        }
    }
}

#[test]
fn the_events_of_a_host_have_its_name_and_the_summary_counts_source_bytes_once() {
    let session = session();
    let ran = session.haul("cp --json --config config.toml src/ n[1-3]:data").status(0);
    let objects = ran.objects();
    let of = |event: &str| objects.iter().filter(|one| one["event"] == event).collect::<Vec<_>>();
    let hosts = of("host");
    assert_eq!(hosts.len(), 3);
    for host in hosts {
        assert_eq!(
            (&host["status"], &host["files"], &host["failed"]),
            (&"done".into(), &3.into(), &0.into())
        );
        assert!(host["host"].as_str().unwrap().starts_with('n') && host["error"].is_null());
        assert!(host["bytes_per_second"].as_u64().unwrap() > 0);
    }
    assert!(of("file").iter().all(|file| file["host"].is_string()));
    assert_eq!(of("plan").len(), 3);
    let summary = ran.summary();
    assert_eq!((&summary["hosts"], &summary["failed_hosts"]), (&3.into(), &0.into()));
    assert_eq!(summary["files"], 9);
    assert_eq!(summary["source_bytes"], (5 << 20) + 5);
    // The summary of a copy to one destination has no hosts.
    let one = session.haul("cp --json src/ other").status(0).summary();
    assert!(one.get("hosts").is_none());
}

#[test]
fn a_host_that_fails_does_not_affect_the_others() {
    let session = session();
    let ran = session.haul("cp --config config.toml src n1,dead,n2:data/").status(1);
    session.tool("diff -r --no-dereference src hosts/n1/data/src");
    session.tool("diff -r --no-dereference src hosts/n2/data/src");
    assert!(
        ran.out().contains("dead: failed: [ROOT]/dead/in/data/: cannot open ("),
        "{}",
        ran.out()
    );
    assert!(ran.err().contains("haul: dead: [ROOT]/dead/in/data/: cannot open ("), "{}", ran.err());
    assert!(ran.err().contains("3 hosts, 1 failed; 6 files"), "{}", ran.err());

    let ran = session.haul("cp --json --config config.toml src n1,dead:data/").status(1);
    let failed =
        ran.objects().into_iter().find(|one| one["event"] == "host" && one["host"] == "dead");
    let failed = failed.unwrap();
    assert_eq!((&failed["status"], &failed["failed"]), (&"failed".into(), &1.into()));
    assert!(failed["error"].as_str().unwrap().contains("cannot open"));
}

#[test]
fn fail_fast_starts_no_host_after_the_first_failure() {
    let session = session();
    let line = "cp --config config.toml --fail-fast --fanout 1 src dead,n1,n2:data/";
    let ran = session.haul(line).status(1);
    assert!(ran.out().ends_with("n1: not started\nn2: not started\n"), "{}", ran.out());
    assert!(!session.has("hosts/n1/data"));
}

#[test]
fn a_missing_source_is_reported_once() {
    let session = session();
    let ran = session.haul("cp --config config.toml src/a src/none n[1-2]:data/").status(1);
    assert_eq!(ran.err().matches("src/none: cannot open").count(), 1, "{}", ran.err());
    assert_eq!(session.read("hosts/n1/data/a"), "aaa");
    assert_eq!(session.read("hosts/n2/data/a"), "aaa");
}

#[test]
fn hosts_come_from_a_file_and_some_are_left_out() {
    let session = session();
    session.write("hosts.txt", "# the rack\nn[1-3]\nold,n1  # twice\n");
    session
        .haul("cp -q --config config.toml --hosts hosts.txt --exclude-hosts n2,x src/a :data/")
        .status(0)
        .stdout("")
        .stderr("");
    for (host, is_copied) in [("n1", true), ("n2", false), ("n3", true), ("old", true)] {
        assert_eq!(session.has(&format!("hosts/{host}/data/a")), is_copied, "{host}");
    }
}

#[test]
fn a_copy_from_many_hosts_has_a_directory_for_each() {
    let session = session();
    for host in ["n1", "n2"] {
        session.write(format!("hosts/{host}/log/syslog"), format!("of {host}"));
    }
    session.write("hosts/n2/etc/motd", "hello");
    for _ in 0..2 {
        session.haul("cp -q --config config.toml n[1-2]:log n[2]:etc/motd all").status(0);
        let listed = "n1/\nn2/\nn1/log/\nn1/log/syslog\nn2/log/\nn2/motd\nn2/log/syslog\n";
        assert_eq!(session.haul("ls -R all").out(), listed);
        assert_eq!(session.read("all/n1/log/syslog"), "of n1");
    }
    let ran = session.haul("cp --config config.toml n[1-2]:log n[1-2]:etc/motd all").status(1);
    assert!(ran.err().contains("haul: n1: [ROOT]/hosts/n1/etc/motd: cannot open"), "{}", ran.err());
    assert!(ran.out().contains("n1: 1 file, "), "{}", ran.out());
    let gone = session.haul("cp --config config.toml n[1-3]:log all").status(1);
    assert!(gone.out().contains("n3: failed: "), "{}", gone.out());
}

#[test]
fn every_host_gets_a_manifest_of_its_own() {
    let session = session();
    session.haul("cp -q --config config.toml --manifest src/ n[1-2]:data").status(0);
    for host in ["n1", "n2"] {
        session.haul(&format!("verify --strict hosts/{host}/data")).status(0);
    }
    session
        .haul("cp --config config.toml --manifest=sums src/ n[1-2]:data")
        .status(2)
        .stderr_has("many hosts cannot share one manifest");
}

#[test]
fn errors_in_host_lists_name_the_position_and_nothing_is_done() {
    let session = session();
    session.write("bad.txt", "n1\nn[2-\n");
    session.write("empty.txt", "# nobody\n");
    let cases = [
        ("cp src n[3-1]:x", "hosts 'n[3-1]', character 3: this range ends before it begins"),
        ("cp src n[1-3:x", "haul: 'n[1-3:x'"),
        ("cp src n[1-70000]:x", "more than 65 536 hosts"),
        ("cp src n[1-2]:x --exclude-hosts n[", "--exclude-hosts: 'n[', character"),
        ("cp src n[1-2]:x --exclude-hosts n[0-9]", "no host remains"),
        ("cp src dst --exclude-hosts n1", "needs a list of hosts"),
        ("cp --hosts bad.txt src :x", "bad.txt: line 2: 'n[2-', character 2: '[' without ']'"),
        ("cp --hosts empty.txt src :x", "no host remains"),
        ("cp --hosts bad.txt src n[1-2]:x", "not both"),
        ("cp --hosts config.toml src dst", "line 1: "),
        ("cp n[1-2]:a n[1-2]:b", "in DEST or in SOURCE, not in both"),
        ("cp n[1-2]:a src dst", "each must have one"),
        ("cp --fanout 0 src n[1-2]:x", "not a number between 1 and 128"),
    ];
    for (line, text) in cases {
        session.haul(line).status(2).stderr_has(text);
    }
    assert!(!session.has("dst"));
    session.haul("cp --hosts none.txt src :x").status(1).stderr_has("none.txt: cannot read");
    let ran = session.haul("cp src sftp://ada:geheim@n[1-2]/x").status(2);
    assert!(!ran.err().contains("geheim"), "{}", ran.err());
}

#[test]
fn the_help_shows_how_to_write_hosts() {
    Session::new()
        .haul("cp --help")
        .status(0)
        .stdout_has("--exclude-hosts <LIST>")
        .stdout_has("haul cp DIR 'ada@node[01-20]:/data/'");
}

#[test]
fn a_dry_run_prints_for_every_host_what_it_would_do() {
    let session = session();
    let ran = session.haul("cp -n --config config.toml src/ n[1-2]:data").status(0);
    assert!(ran.out().contains("n1: would copy d/b (new, 2 B)\n"), "{}", ran.out());
    assert!(ran.out().contains("n2: would copy d/b (new, 2 B)\n"), "{}", ran.out());
    assert!(!session.has("hosts/n1/data"));
}
