//! The completion script for bash, which splits words at `:`, `=` and `@`.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Command;
use clap_complete::engine;
use clap_complete::env::EnvCompleter;

/// The environment variable with the index of the word to complete.
const INDEX: &str = "HAUL_COMPLETE_INDEX";

/// The shell bash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bash;

/// Joins the words that bash has split, calls haul, and removes from each candidate the part that bash treats as other
/// words. Candidates are one per line.
///
/// Servers choose the names, so each is quoted for the shell. Within quotes only names without special
/// characters are offered.
const SCRIPT: &str = r#"_haul() {
    local rest=$COMP_LINE word words=() i candidate cur prefix= piece=${COMP_WORDS[COMP_CWORD]}
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $rest == [![:space:]]* || ( -z $rest && -z $word ) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done
    cur=${words[${#words[@]} - 1]}
    if [[ $cur != "$piece" ]]; then
        prefix=${cur%"${cur##*[:=@]}"}
        prefix=${prefix//\\/}
    fi
    # Unquote, as far as needed here.
    [[ $cur == [\'\"]* ]] && cur=${cur:1}
    cur=${cur//\\/}
    words[${#words[@]} - 1]=$cur
    COMPREPLY=()
    while IFS= read -r candidate; do
        candidate=${candidate#"$prefix"}
        if [[ $piece == [\'\"]* ]]; then
            [[ $candidate == *[\'\"\\\$\`!]* ]] && continue
        elif [[ $candidate == '~/'* ]]; then
            printf -v candidate '~/%q' "${candidate:2}"
        else
            printf -v candidate %q "$candidate"
        fi
        COMPREPLY+=("$candidate")
    done < <(VARIABLE=bash INDEX=$((${#words[@]} - 1)) COMPLETER -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _haul BIN
"#;

/// The template with these names replaced by their values. A value may contain names.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    loop {
        let found =
            values.iter().filter_map(|(name, value)| Some((rest.find(*name)?, name, value)));
        let Some((at, name, value)) = found.min_by_key(|(at, ..)| *at) else { break };
        text.push_str(&rest[..at]);
        text.push_str(value);
        rest = &rest[at + name.len()..];
    }
    text + rest
}

/// A word for the shell, in quotes if it needs them.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    match word.bytes().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', "'\\''"))),
    }
}

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        variable: &str,
        _name: &str,
        bin: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> io::Result<()> {
        let (completer, bin) = (quoted(completer), quoted(bin));
        let values =
            [("VARIABLE", variable), ("INDEX", INDEX), ("COMPLETER", &*completer), ("BIN", &*bin)];
        script.write_all(filled(SCRIPT, &values).as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        arguments: Vec<OsString>,
        directory: Option<&Path>,
        candidates: &mut dyn Write,
    ) -> io::Result<()> {
        let index = env::var(INDEX).ok().and_then(|index| index.parse().ok());
        let index = index.unwrap_or(arguments.len().saturating_sub(1));
        for candidate in engine::complete(command, arguments, index, directory)? {
            candidates.write_all(candidate.get_value().as_bytes())?;
            candidates.write_all(b"\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_haul_is_one_word_of_the_script_and_otherwise_unchanged() {
        let script = |completer| {
            let mut script = Vec::new();
            Bash.write_registration("VAR", "haul", "haul", completer, &mut script).unwrap();
            String::from_utf8(script).unwrap()
        };
        let plain = script("haul");
        assert!(plain.contains("VAR=bash HAUL_COMPLETE_INDEX=$(("), "{plain}");
        assert!(plain.contains(" haul -- ") && plain.ends_with("complete -F _haul haul\n"));
        let odd = script("/opt/BIN's COMPLETER/haul");
        assert!(odd.contains(r" '/opt/BIN'\''s COMPLETER/haul' -- "), "{odd}");
    }
}
