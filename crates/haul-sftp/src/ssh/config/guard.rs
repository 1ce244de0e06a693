//! Checks that only the user and root can write a configuration file: it decides which commands are
//! run.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Refuses a file that others can write. As in OpenSSH, it has to belong to the user or to root and
/// must not be writable by others. As in Debian's OpenSSH, it may be writable by the user's own
/// group, if that is private: many systems have a umask of 002 and a group per user.
///
/// # Errors
/// `PermissionDenied`, with an explanation.
pub fn check(metadata: &Metadata) -> io::Result<()> {
    let user = rustix::process::getuid().as_raw();
    let owner = metadata.uid();
    let mode = metadata.mode();
    let by_group = mode & 0o020 != 0
        && !is_private(&read("/etc/passwd"), &read("/etc/group"), user, metadata.gid());
    if (owner == 0 || owner == user) && mode & 0o002 == 0 && !by_group {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "bad owner or permissions: it belongs to user {owner} and group {}, mode {:o}; only you \
             may have write access",
            metadata.gid(),
            mode & 0o777
        ),
    ))
}

/// A file that cannot be read counts as empty, so that no group is private.
fn read(path: &str) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Whether a group is the user's primary group, has the user's name, and no other members.
fn is_private(passwd: &str, groups: &str, user: u32, group: u32) -> bool {
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let accounts: Vec<Vec<String>> = passwd.lines().map(fields).filter(|f| f.len() == 7).collect();
    let Some(own) = accounts.iter().find(|account| account[2].parse() == Ok(user)) else {
        return false;
    };
    let name = &own[0];
    let alone = accounts
        .iter()
        .filter(|account| account[3].parse() == Ok(group))
        .all(|account| account[2].parse() == Ok(user));
    let mut entries =
        groups.lines().map(fields).filter(|f| f.len() == 4 && f[2].parse() == Ok(group)).peekable();
    own[3].parse() == Ok(group)
        && alone
        && entries.peek().is_some()
        && entries.all(|entry| {
            let mut members = entry[3].split(',').filter(|member| !member.is_empty());
            entry[0] == *name && members.all(|member| member == name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_group_is_the_users_own_without_other_members() {
        let passwd = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/h:/bin/sh\nbob:x:1001:1001::/h:/bin/sh\n\
                      eve:x:1002:100::/h:/bin/sh\nmia:x:1003:1003::/h:/bin/sh\ntom:x:1004:1003::/h:/bin/sh\n";
        let groups =
            "root:x:0:\nada:x:1000:ada\nbob:x:1001:eve\nusers:x:100:\nmia:x:1003:\nteam:x:1000:\n";
        let private = |groups: &str, user, group| is_private(passwd, groups, user, group);
        let plain = groups.replace("team:x:1000:\n", "");
        assert!(private(&plain, 1000, 1000));
        // A second name of the group, a member, a group of another name, another user with that
        // group.
        assert!(!private(groups, 1000, 1000));
        assert!(!private(&plain, 1001, 1001));
        assert!(!private(&plain, 1002, 100));
        assert!(!private(&plain, 1003, 1003));
        // Another user's group; unknown groups and users.
        assert!(
            !private(&plain, 1000, 1001) && !private(&plain, 1000, 5) && !private(&plain, 7, 7)
        );
        assert!(!is_private("", "", 1000, 1000));
    }
}
