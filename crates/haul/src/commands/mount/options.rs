//! The options of a mount: those of haul, and those that sshfs, mount and fstab write after `-o`.
//!
//! As in sshfs, `-o` also takes options of SSH: every option that begins with a capital, with commas in its value if
//! need be, and every `name=value` that is not an option of a mount. `X-...` is for other programs that read fstab.

use std::time::Duration;

use haul_mount::MountBuilder;
use rustix::process::{getegid, geteuid};

use crate::args::MountArgs;

/// Options that have no meaning for haul, or name what it always does.
const ACCEPTED: &[&str] = &[
    "ro",
    "reconnect",
    "idmap=user",
    "default_permissions",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "noatime",
    "atime",
    "nodiratime",
    "diratime",
    "relatime",
    "norelatime",
    "strictatime",
    "sync",
    "async",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "defaults",
    "transform_symlinks",
    "auto_cache",
    "kernel_cache",
    "large_read",
    "big_writes",
];

/// Options with another spelling or without a counterpart, and what to do instead.
const HINTS: &[(&str, &str)] = &[
    ("rw", "a mount is read-only without the option --read-write"),
    ("follow_symlinks", "haul shows links as links, and programs follow them; omit it"),
    ("idmap", "haul shows all files as yours; --uid and --gid choose another owner"),
    ("cache", "write --attribute-age SECONDS"),
    ("cache_timeout", "write --attribute-age SECONDS"),
    ("dcache_timeout", "write --attribute-age SECONDS"),
    ("max_read", "haul reads up to 1 MiB at a time; omit it"),
    ("allow_root", "write --allow-other"),
];

/// The options of a mount, from the long options and from `-o`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountOptions {
    owner: (u32, u32),
    umask: u32,
    age: Duration,
    allow_other: bool,
    nonempty: bool,
    noexec: bool,
    /// Whether unknown options after `-o`, and those with a hint, are ignored.
    is_sloppy: bool,
    /// The options of SSH.
    pub(super) ssh: Vec<String>,
}

impl MountOptions {
    /// Reads the options of the command line, and those after `-o`.
    ///
    /// # Errors
    /// A usage error, as text.
    pub(super) fn of(args: &MountArgs) -> Result<Self, String> {
        let own = (geteuid().as_raw(), getegid().as_raw());
        let mut options = Self {
            owner: (args.uid.unwrap_or(own.0), args.gid.unwrap_or(own.1)),
            umask: args.umask.as_deref().map_or(Ok(0), umask)?,
            age: Duration::from_secs(args.attribute_age.0),
            allow_other: args.allow_other,
            nonempty: args.nonempty,
            noexec: false,
            is_sloppy: args.sloppy,
            ssh: Vec::new(),
        };
        for list in &args.remote.ssh.options {
            let is_ssh = list.starts_with(|first: char| first.is_ascii_uppercase());
            if is_ssh && !list.starts_with("X-") {
                options.ssh.push(list.clone());
                continue;
            }
            for option in list.split(',').filter(|option| !option.is_empty()) {
                if option == "ro" && args.read_write {
                    return Err("-o ro and --read-write contradict each other".to_owned());
                }
                if option == "rw" && args.read_write {
                    continue;
                }
                options.take(option)?;
            }
        }
        Ok(options)
    }

    /// Takes an option of `-o`.
    fn take(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "allow_other" => self.allow_other = true,
            "nonempty" => self.nonempty = true,
            "noexec" if value.is_empty() => self.noexec = true,
            "exec" if value.is_empty() => self.noexec = false,
            "uid" => self.owner.0 = number(option, value)?,
            "gid" => self.owner.1 = number(option, value)?,
            "umask" => self.umask = umask(value)?,
            "attr_timeout" | "entry_timeout" => {
                self.age = Duration::from_secs(u64::from(number(option, value)?));
            }
            _ if ACCEPTED.contains(&option) || is_comment(name) => {}
            _ if has_hint(name) || value.is_empty() => {
                if !self.is_sloppy {
                    return Err(refused(option, name));
                }
            }
            _ => self.ssh.push(option.to_owned()),
        }
        Ok(())
    }

    /// Sets the options in a builder.
    pub(super) fn apply(&self, builder: MountBuilder) -> MountBuilder {
        builder
            .owner(self.owner.0, self.owner.1)
            .umask(self.umask)
            .attribute_age(self.age)
            .missing_age(self.age.min(Duration::from_secs(1)))
            .allow_other(self.allow_other)
            .nonempty(self.nonempty)
            .noexec(self.noexec)
    }
}

/// Whether an option is for other programs that read fstab.
fn is_comment(name: &str) -> bool {
    name == "comment" || name.starts_with("x-") || name.starts_with("X-")
}

fn number(option: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("-o {option}: '{value}' is not a valid number"))
}

fn umask(text: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| format!("'{text}' is not a umask; write three octal digits: 077"))
}

fn has_hint(name: &str) -> bool {
    HINTS.iter().any(|(known, _)| *known == name)
}

fn refused(option: &str, name: &str) -> String {
    match HINTS.iter().find(|(known, _)| *known == name) {
        Some((_, hint)) => format!("haul has no option -o {option}\nhint: {hint}"),
        None => format!("unknown option -o {option}\nhint: haul mount --help lists the options"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(options: &str) -> Result<MountOptions, String> {
        let line = format!("haul mount a b {options}");
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Mount(args) => MountOptions::of(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_after_o_mean_the_same_as_the_long_options() {
        let ours = parsed("--allow-other --uid 7 --gid 8 --umask 077 --attribute-age 9").unwrap();
        let theirs =
            parsed("-o ro,allow_other,uid=7,gid=8,_netdev -o reconnect,umask=077,attr_timeout=9");
        assert_eq!(theirs.unwrap(), ours);
    }

    #[test]
    fn options_without_a_counterpart_have_a_hint() {
        assert!(parsed("-o follow_symlinks").unwrap_err().contains("hint: haul shows links"));
        assert!(parsed("-o rw").unwrap_err().contains("read-only"));
        assert!(parsed("-o nothing").unwrap_err().starts_with("unknown option -o nothing"));
        assert!(parsed("-o uid=ada").unwrap_err().contains("not a valid number"));
        assert!(parsed("--read-write -o ro").unwrap_err().contains("contradict"));
        assert!(parsed("--umask 9").unwrap_err().contains("077"));
    }

    #[test]
    fn options_of_fstab_are_accepted() {
        let plain = parsed("").unwrap();
        let list = "ro,noauto,_netdev,user,users,nosuid,nodev,exec,suid,dev,nofail,X-a,comment=b";
        let fstab = parsed(&format!("-o {list} -o x-systemd.automount -o X-mount.mkdir=0755"));
        assert_eq!(fstab.unwrap(), plain);
        assert_ne!(parsed("-o noexec").unwrap(), plain);
        // As in mount, the last one of two opposites applies.
        assert_eq!(parsed("-o noexec,exec").unwrap(), plain);
        assert_ne!(parsed("-o exec -o noexec").unwrap(), plain);
        assert_eq!(parsed("--read-write -o rw").unwrap(), plain);
        assert!(parsed("-o wrong").is_err());
        let sloppy = parsed("--sloppy -o wrong,cache=yes,uid=7").unwrap();
        assert_eq!((sloppy.owner.0, sloppy.ssh), (7, vec![]));
    }

    #[test]
    fn options_of_ssh_are_collected() {
        let options = parsed("-o Ciphers=a,b -o ro,port=22").unwrap();
        assert_eq!(options.ssh, ["Ciphers=a,b", "port=22"]);
    }
}
