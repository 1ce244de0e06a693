//! `mount.haul`: the program that mount(8) runs for file systems of type `haul`, also for those in /etc/fstab.
//!
//! ```text
//! mount.haul SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
//! ```
//!
//! The arguments become those of `haul mount --daemon`. `-o` takes options of mount, sshfs and SSH, and the long
//! options of `haul mount`, without dashes: `memory=256M,cache_dir=/var/cache/nas`. Their values are checked later, as
//! those of any `haul mount`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::{Arg, CommandFactory as _};

use super::Cli;

/// The name under which haul is a mount helper.
const NAME: &str = "mount.haul";

const USAGE: &str = "mount.haul SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]";

/// Long options that `-o` does not take: they are not properties of a mount.
const WITHOUT: &[&str] =
    &["daemon", "foreground", "help", "in-background", "pending", "sloppy", "status", "version"];

/// The parsed arguments of a mount helper.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Helper {
    /// The command line of `haul mount`; empty if nothing is to be mounted (`-f`).
    pub(crate) line: Vec<OsString>,
    /// The mount namespace, as a path.
    pub(crate) namespace: Option<PathBuf>,
}

/// Reads the arguments of a mount helper; `None` if the program is not called as one.
///
/// # Errors
/// A usage error, as text.
pub(crate) fn helper(arguments: &[OsString]) -> Option<Result<Helper, String>> {
    let (program, words) = arguments.split_first()?;
    let is_helper = Path::new(program).file_name().is_some_and(|name| name == NAME);
    is_helper.then(|| Words::read(words).and_then(Words::translated))
}

/// The arguments as they were written.
#[derive(Debug, Default)]
struct Words {
    positional: Vec<OsString>,
    options: Vec<String>,
    namespace: Option<PathBuf>,
    is_sloppy: bool,
    is_fake: bool,
    is_verbose: bool,
}

impl Words {
    fn read(words: &[OsString]) -> Result<Self, String> {
        let mut read = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_bytes() {
                [b'-', letters @ ..] if !letters.is_empty() && letters != b"-" => {
                    read.take(letters, &mut words)?;
                }
                b"--" => read.positional.extend(words.by_ref().cloned()),
                _ => read.positional.push(word.clone()),
            }
        }
        Ok(read)
    }

    /// Takes the letters after a dash, and the next word if the last of them has a value.
    fn take<'a>(
        &mut self,
        letters: &[u8],
        words: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), String> {
        for (at, letter) in letters.iter().enumerate() {
            match letter {
                b's' => self.is_sloppy = true,
                b'f' => self.is_fake = true,
                b'v' => self.is_verbose = true,
                // Do not write /etc/mtab; haul never does.
                b'n' => {}
                b'o' | b'N' | b't' => {
                    let rest = OsStr::from_bytes(&letters[at + 1..]);
                    let rest = (!rest.is_empty()).then_some(rest);
                    let value = rest.or_else(|| words.next().map(OsString::as_os_str));
                    let value = value.ok_or_else(usage)?;
                    return self.value(*letter, value);
                }
                _ => return Err(usage()),
            }
        }
        Ok(())
    }

    fn value(&mut self, letter: u8, value: &OsStr) -> Result<(), String> {
        match letter {
            b'o' => {
                let text = value.to_str();
                let text = text.ok_or_else(|| "the options are not UTF-8".to_owned())?;
                self.options.extend(split(text));
            }
            // A process ID stands for the namespace of that process.
            b'N' if value.as_bytes().iter().all(u8::is_ascii_digit) => {
                self.namespace = Some(Path::new("/proc").join(value).join("ns/mnt"));
            }
            b'N' => self.namespace = Some(value.into()),
            // `-t`: the type is always `haul`.
            _ => {}
        }
        Ok(())
    }

    fn translated(self) -> Result<Helper, String> {
        let [location, point] = <[OsString; 2]>::try_from(self.positional).map_err(|_| usage())?;
        if self.is_fake {
            return Ok(Helper::default());
        }
        let all = Cli::command();
        let mount = all.find_subcommand("mount");
        let mut line: Vec<OsString> = ["haul", "mount", "--daemon"].map(OsString::from).into();
        line.extend(self.is_sloppy.then(|| OsString::from("--sloppy")));
        line.extend(self.is_verbose.then(|| OsString::from("-v")));
        for option in &self.options {
            let (name, value) =
                option.split_once('=').map_or((&**option, None), |(n, v)| (n, Some(v)));
            match (name, value) {
                // mount(8) adds `rw` wherever `ro` is not given, so it does not mean `read_write`. It adds `user=NAME`
                // where the option `user` in fstab allows a user to mount.
                ("rw", None) | ("user", Some(_)) => {}
                ("remount", None) => {
                    return Err(
                        "a mount of haul cannot be changed\nhint: unmount it first".to_owned()
                    );
                }
                _ => {
                    let known = [mount, Some(&all)].into_iter().flatten();
                    let long = known
                        .flat_map(|command| command.get_arguments())
                        .find_map(|arg| long(arg, name));
                    line.push(match (long, value) {
                        (Some(long), Some(value)) => format!("--{long}={value}").into(),
                        (Some(long), None) => format!("--{long}").into(),
                        (None, _) => format!("-o{option}").into(),
                    });
                }
            }
        }
        line.extend(["--".into(), location, point]);
        Ok(Helper { line, namespace: self.namespace })
    }
}

/// The long option that a name after `-o` stands for, if it is `arg`.
fn long(arg: &Arg, name: &str) -> Option<String> {
    let name = name.replace('_', "-");
    let aliases = arg.get_all_aliases().unwrap_or_default();
    let is_it = arg.get_long() == Some(&*name) || aliases.contains(&&*name);
    (is_it && !WITHOUT.contains(&&*name)).then_some(name)
}

/// The options between commas. In double quotes, a comma is part of a value.
fn split(text: &str) -> Vec<String> {
    let (mut options, mut option, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => options.push(std::mem::take(&mut option)),
            _ => option.push(letter),
        }
    }
    options.push(option);
    options.retain(|option| !option.is_empty());
    options
}

fn usage() -> String {
    format!("the arguments are not those of a mount helper\nhint: {USAGE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: &str) -> Result<String, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        helper(&words).unwrap().map(|helper| {
            let words: Vec<_> = helper.line.iter().map(|word| word.to_str().unwrap()).collect();
            words.join(" ")
        })
    }

    #[test]
    fn haul_is_a_mount_helper_only_when_called_as_mount_haul() {
        let arguments = |program: &str| [program, "a", "b"].map(OsString::from);
        assert!(helper(&arguments("haul")).is_none());
        assert!(helper(&arguments("/usr/sbin/mount.haul")).is_some());
        assert!(helper(&[]).is_none());
    }

    #[test]
    fn the_arguments_of_mount_become_a_command_line() {
        for (given, expected) in [
            ("mount.haul nas:p /mnt -o rw", "haul mount --daemon -- nas:p /mnt"),
            (
                "/sbin/mount.haul nas:p /mnt -v -t haul -o ro,noauto,_netdev,x-systemd.automount",
                "haul mount --daemon -v -oro -onoauto -o_netdev -ox-systemd.automount -- nas:p /mnt",
            ),
            (
                "mount.haul -sno allow_other,IdentityFile=/k,port=22 nas: /mnt",
                "haul mount --daemon --sloppy --allow-other -oIdentityFile=/k -oport=22 -- nas: /mnt",
            ),
            (
                "mount.haul nas: /m -o cache_dir=/c,cache-size=1G,memory=64M,config=/e,uid=7",
                "haul mount --daemon --cache-dir=/c --cache-size=1G --memory=64M --config=/e --uid=7 \
                 -- nas: /m",
            ),
            (
                "mount.haul nas: /m -o noexec,nosuid,nodev,user=ada -oCiphers=\"a,b\"",
                "haul mount --daemon -onoexec -onosuid -onodev -oCiphers=a,b -- nas: /m",
            ),
            (
                "mount.haul nas: /m -o rw,read_write,sync_close,spool_dir=/var/spool/nas",
                "haul mount --daemon --read-write --sync-close --spool-dir=/var/spool/nas -- nas: /m",
            ),
            ("mount.haul -- -n -v", "haul mount --daemon -- -n -v"),
            ("mount.haul -f nas: /m", ""),
        ] {
            assert_eq!(line(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn long_options_that_are_not_for_mounts_stay_after_o() {
        for name in [
            "daemon",
            "foreground",
            "help",
            "in-background",
            "in_background",
            "pending",
            "sloppy",
            "status",
            "version",
        ] {
            let line = line(&format!("mount.haul nas: /m -o {name}")).unwrap();
            assert_eq!(line, format!("haul mount --daemon -o{name} -- nas: /m"));
        }
    }

    #[test]
    fn other_arguments_are_refused() {
        for given in
            ["mount.haul nas:", "mount.haul a b c", "mount.haul a b -x", "mount.haul a b -o"]
        {
            assert!(line(given).unwrap_err().contains(USAGE), "{given}");
        }
        assert!(line("mount.haul a b -o remount,ro").unwrap_err().contains("unmount it first"));
    }

    #[test]
    fn a_namespace_is_a_path_or_a_process() {
        for (given, expected) in [("123", "/proc/123/ns/mnt"), ("/run/ns/x", "/run/ns/x")] {
            let words = ["mount.haul", "nas:", "/m", "-N", given].map(OsString::from);
            let found = helper(&words).unwrap().unwrap();
            assert_eq!(found.namespace.as_deref(), Some(Path::new(expected)));
        }
    }
}
