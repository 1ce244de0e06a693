//! Processes of this machine, from `/proc`.

use std::fs::{self, File};
use std::io::{self, Read};

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: u32,
    pub(crate) parent: u32,
    /// Processor time of the process and of the children that it has waited for, in clock ticks.
    pub(crate) ticks: u64,
}

/// All visible processes.
pub(crate) fn processes() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // The process may have ended since the directory was read.
        let mut stat = String::new();
        let read = File::open(format!("/proc/{id}/stat"))
            .and_then(|mut file| file.read_to_string(&mut stat));
        if read.is_ok()
            && let Some(process) = parse_stat(id, &stat)
        {
            processes.push(process);
        }
    }
    Ok(processes)
}

/// Parses `/proc/PID/stat` (proc(5)). The name is in parentheses and may contain any character.
fn parse_stat(id: u32, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // Field numbers as in the manual: the first field after the name, the state, is number 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    Some(Process { id, parent: u32::try_from(number(4)?).ok()?, ticks })
}

/// Process `root` and all its descendants among `processes`.
pub(crate) fn tree(processes: &[Process], root: u32) -> Vec<Process> {
    let mut tree: Vec<Process> = processes.iter().filter(|p| p.id == root).copied().collect();
    let mut seen = 0;
    while seen < tree.len() {
        let parent = tree[seen].id;
        tree.extend(processes.iter().filter(|p| p.parent == parent && p.id != root));
        seen += 1;
    }
    tree
}

/// The peak resident set of a process in bytes; `None` if it has ended.
pub(crate) fn peak_rss(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_and_spaces_is_parsed() {
        let stat = "77 (a) b) (c) S 5 77 77 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99";
        assert_eq!(parse_stat(77, stat), Some(Process { id: 77, parent: 5, ticks: 100 }));
        assert_eq!(parse_stat(77, "77 (a S 5"), None);
    }

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id();
        assert!(processes().expect("a list").iter().any(|process| process.id == me));
        assert!(peak_rss(me).is_some_and(|bytes| bytes > 4096));
    }

    #[test]
    fn a_tree_contains_all_descendants_and_no_other_process() {
        let process = |id, parent| Process { id, parent, ticks: 0 };
        let all = [process(1, 0), process(5, 1), process(7, 5), process(8, 7), process(9, 1)];
        let ids: Vec<u32> = tree(&all, 5).iter().map(|process| process.id).collect();
        assert_eq!(ids, [5, 7, 8]);
    }
}
