//! Changes to permission bits, as `chmod` and rsync's `--chmod` write them.

use std::str::FromStr;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// A list of changes, applied one after the other: `u+w,go-rwx`, `D755,F644`, `a+rX`.
///
/// Each begins with `D` (directories only), `F` (files only) or neither, and is an octal mode or, as with
/// `chmod`, any of `ugoa`, one of `+-=` and any of `rwxXst`. Without `ugoa` it applies to all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModeChanges(Vec<Change>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    of: Of,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    Directories,
    Files,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// These bits and no others.
    Set(u32),
    /// Within `who` (bits of user, group, others): `+`, `-` or `=` the `bits`; `execute`: also the execute
    /// bits if it is a directory or any user may execute it.
    Change { who: u32, sign: Sign, bits: u32, execute: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Add,
    Remove,
    Assign,
}

impl ModeChanges {
    /// Whether nothing is changed.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the changes of another list.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The mode that results from `mode`; both are bits of `0o7777`.
    pub fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let concerned = self.0.iter().filter(|change| match change.of {
            Of::All => true,
            Of::Directories => is_directory,
            Of::Files => !is_directory,
        });
        concerned.fold(mode, |mode, change| change.what.apply(mode, is_directory))
    }
}

impl What {
    fn apply(self, mode: u32, is_directory: bool) -> u32 {
        let (who, sign, bits, execute) = match self {
            Self::Set(bits) => return bits,
            Self::Change { who, sign, bits, execute } => (who, sign, bits, execute),
        };
        let executable = is_directory || mode & 0o111 != 0;
        let bits = if execute && executable { bits | 0o111 } else { bits };
        match sign {
            Sign::Add => mode | (bits & who),
            Sign::Remove => mode & !(bits & who),
            Sign::Assign => (mode & !who) | (bits & who),
        }
    }
}

impl FromStr for ModeChanges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(Change::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Change {
    fn parse(text: &str) -> Result<Self, String> {
        let (of, rest) = match text.as_bytes().first() {
            Some(b'D') => (Of::Directories, &text[1..]),
            Some(b'F') => (Of::Files, &text[1..]),
            _ => (Of::All, text),
        };
        let wrong =
            || format!("'{text}' is not a mode; write 644, D755, F644, u+w, go-rwx or a+rX");
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u32::from_str_radix(rest, 8).map_err(|_| wrong())?;
            return (bits <= 0o7777)
                .then_some(Self { of, what: What::Set(bits) })
                .ok_or_else(wrong);
        }
        let at = rest.find(['+', '-', '=']).ok_or_else(wrong)?;
        let (classes, signed) = rest.split_at(at);
        let sign = match &signed[..1] {
            "+" => Sign::Add,
            "-" => Sign::Remove,
            _ => Sign::Assign,
        };
        let all = 0o777 | SET_USER | SET_GROUP | STICKY;
        let mut who = if classes.is_empty() { all } else { 0 };
        for class in classes.chars() {
            who |= match class {
                'u' => 0o700 | SET_USER,
                'g' => 0o070 | SET_GROUP,
                'o' => 0o007 | STICKY,
                'a' => all,
                _ => return Err(wrong()),
            };
        }
        let (mut bits, mut execute) = (0, false);
        for bit in signed[1..].chars() {
            match bit {
                'r' => bits |= 0o444,
                'w' => bits |= 0o222,
                'x' => bits |= 0o111,
                'X' => execute = true,
                's' => bits |= SET_USER | SET_GROUP,
                't' => {
                    bits |= STICKY;
                    who |= STICKY;
                }
                _ => return Err(wrong()),
            }
        }
        Ok(Self { of, what: What::Change { who, sign, bits, execute } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(changes: &str, mode: u32, is_directory: bool) -> u32 {
        changes.parse::<ModeChanges>().unwrap().apply(mode, is_directory)
    }

    /// As `chmod`, with a umask of 0, changes a file of mode 440 and a directory of mode 550.
    #[test]
    fn changes_have_the_same_effect_as_with_chmod() {
        for (changes, file, directory) in [
            ("600", 0o600, 0o600),
            ("u+w", 0o640, 0o750),
            ("go-rwx", 0o400, 0o500),
            ("a=rX", 0o444, 0o555),
            ("+x", 0o551, 0o551),
            ("u=,g+w", 0o060, 0o070),
            ("ug+s", 0o6440, 0o6550),
            ("o+t", 0o1440, 0o1550),
        ] {
            let modes = (applied(changes, 0o440, false), applied(changes, 0o550, true));
            assert_eq!(modes, (file, directory), "{changes}");
        }
        assert_eq!(applied("a+X", 0o644, false), 0o644);
        assert_eq!(applied("a+X", 0o744, false), 0o755);
    }

    #[test]
    fn d_and_f_are_for_directories_and_files() {
        assert_eq!(applied("D755,F644", 0o700, true), 0o755);
        assert_eq!(applied("D755,F644", 0o700, false), 0o644);
        assert_eq!(applied("Dg+s,Fo-r", 0o755, true), 0o2755);
    }

    #[test]
    fn invalid_modes_are_refused() {
        for wrong in ["", "8", "u", "u+q", "z+r", "10000", "D", "u+w,,", "g=u"] {
            assert!(wrong.parse::<ModeChanges>().is_err(), "{wrong}");
        }
    }
}
