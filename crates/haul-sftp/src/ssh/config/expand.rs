//! Expands tokens (`%h`), environment variables (`${NAME}`) and `~` in values of ssh_config(5).

use std::path::PathBuf;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// Returns the value of an environment variable.
type Variables = dyn Fn(&str) -> Option<String>;

/// Values of the tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// `%h`: the host to connect to.
    pub host_name: String,
    /// `%n`: the host as the user wrote it.
    pub original_host: String,
    /// `%k`: the host key alias, or else the host as the user wrote it.
    pub host_key_alias: String,
    /// `%p`: the port.
    pub port: u16,
    /// `%r`: the remote user.
    pub user: String,
    /// `%u`: the local user.
    pub local_user: String,
    /// `%d` and `~`: the home directory.
    pub home: PathBuf,
    /// `%l`: this machine's name, and `%L` up to its first dot.
    pub local_host: String,
    /// `%j`: the last host of ProxyJump, as in OpenSSH without its user and port; empty without one.
    pub jump_host: String,
}

impl Tokens {
    /// Replaces every `%x` once. `%%` is a percent sign.
    ///
    /// # Errors
    /// Names an unknown token.
    pub fn expand(&self, text: &str) -> Result<String, String> {
        self.replace(text, None)
    }

    /// Replaces every `%x`, and every `${NAME}` if `variables` is given. As in OpenSSH, this is a single pass: a `%` in
    /// the value of a variable stays.
    fn replace(&self, text: &str, variables: Option<&Variables>) -> Result<String, String> {
        let mut result = String::new();
        let mut characters = text.chars();
        while let Some(c) = characters.next() {
            if let (Some(variables), '$') = (variables, c)
                && let Some(after) = characters.as_str().strip_prefix('{')
            {
                let (value, rest) = variable(variables, after, text)?;
                result.push_str(&value);
                characters = rest.chars();
                continue;
            }
            if c != '%' {
                result.push(c);
                continue;
            }
            match characters.next() {
                Some('%') => result.push('%'),
                Some('h') => result.push_str(&self.host_name),
                Some('n') => result.push_str(&self.original_host),
                Some('k') => result.push_str(&self.host_key_alias),
                Some('p') => result.push_str(&self.port.to_string()),
                Some('r') => result.push_str(&self.user),
                Some('u') => result.push_str(&self.local_user),
                Some('d') => result.push_str(&self.home.to_string_lossy()),
                Some('l') => result.push_str(&self.local_host),
                Some('L') => {
                    result.push_str(self.local_host.split('.').next().unwrap_or_default());
                }
                Some('j') => result.push_str(&self.jump_host),
                Some('C') => result.push_str(&self.connection_hash()),
                Some('i') => result.push_str(&rustix::process::getuid().as_raw().to_string()),
                Some(other) => return Err(format!("unknown token \"%{other}\" in \"{text}\"")),
                None => return Err(format!("\"{text}\" ends with a single \"%\"")),
            }
        }
        Ok(result)
    }

    /// `%C`: SHA-1 of `%l%h%p%r%j`.
    fn connection_hash(&self) -> String {
        let port = self.port.to_string();
        let parts = [&self.local_host, &self.host_name, &port, &self.user, &self.jump_host];
        let text: String = parts.into_iter().map(String::as_str).collect();
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Expands a path: `~`, tokens and environment variables.
    ///
    /// # Errors
    /// Names an unknown token, variable or user.
    pub fn path(&self, text: &str) -> Result<PathBuf, String> {
        self.home(&self.replace(text, Some(&|name| std::env::var(name).ok()))?)
    }

    /// Expands `~` or `~user` at the beginning of a path.
    ///
    /// # Errors
    /// Names an unknown user.
    pub fn home(&self, text: &str) -> Result<PathBuf, String> {
        if text == "~" {
            return Ok(self.home.clone());
        }
        match text.strip_prefix('~') {
            None => Ok(PathBuf::from(text)),
            Some(rest) => {
                let (user, below) = rest.split_once('/').unwrap_or((rest, ""));
                let home = if user.is_empty() {
                    self.home.clone()
                } else {
                    super::account::home_of(user).ok_or_else(|| format!("no user {user}"))?
                };
                Ok(home.join(below))
            }
        }
    }
}

/// The value of the variable whose name ends at the first `}` in `after`, and the rest. `text` is for messages.
fn variable<'a>(
    variables: &Variables,
    after: &'a str,
    text: &str,
) -> Result<(String, &'a str), String> {
    let (name, rest) =
        after.split_once('}').ok_or_else(|| format!("\"${{\" in \"{text}\" is not closed"))?;
    let value = variables(name)
        .ok_or_else(|| format!("the environment variable {name} in \"{text}\" is not set"))?;
    Ok((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens {
            host_name: "real.example.org".to_owned(),
            original_host: "alias".to_owned(),
            host_key_alias: "alias".to_owned(),
            port: 2222,
            user: "them".to_owned(),
            local_user: "me".to_owned(),
            home: PathBuf::from("/home/me"),
            local_host: "here.lan".to_owned(),
            jump_host: String::new(),
        }
    }

    #[test]
    fn every_token_is_replaced_once() {
        let expanded = tokens().expand("%h %n %p %r %u %d %l %L %k %%h").unwrap();
        assert_eq!(expanded, "real.example.org alias 2222 them me /home/me here.lan here alias %h");
        assert!(tokens().expand("%Q").is_err());
        assert!(tokens().expand("100%").is_err());
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        assert_eq!(tokens().path("~/.ssh/%r").unwrap(), PathBuf::from("/home/me/.ssh/them"));
        assert_eq!(tokens().path("/a~b").unwrap(), PathBuf::from("/a~b"));
    }

    #[test]
    fn environment_variables_are_replaced_and_missing_ones_refused() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(tokens().path("<${PATH}>").unwrap(), PathBuf::from(format!("<{path}>")));
        assert!(tokens().path("${HAUL_IS_NOT_SET_HERE}").is_err());
        assert!(tokens().path("${PATH").is_err());
        assert_eq!(tokens().expand("${PATH}").unwrap(), "${PATH}", "only in paths");
    }

    /// Regression: the value was expanded again: `%h` in it became the host, and `%x` an error.
    #[test]
    fn values_of_variables_are_not_expanded_again() {
        let expanded = tokens().replace("${A}%r${A}", Some(&|_| Some("%h%x${B}".to_owned())));
        assert_eq!(expanded.unwrap(), "%h%x${B}them%h%x${B}");
    }
}
