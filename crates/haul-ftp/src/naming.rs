//! Gives a finished file its name.
//!
//! On most servers a rename replaces an existing file. If a server refuses that, the old file is renamed
//! aside, the new one gets the name, and the old one is removed; if the new one cannot get the name, the old
//! one is renamed back. A run that is killed in between leaves the old file aside; the next run that writes
//! this name renames it back, or removes it if the name is taken.

use haul_storage::{Error, ErrorKind, RelPath, Result, Retry, aside_name};

use crate::error::{protocol, refused};
use crate::inner::Inner;
use crate::learnt::Lesson;
use crate::wire::{Command, Reply};

/// A rename that failed.
struct Refused {
    error: Error,
    /// The new name was refused (RNTO).
    name: bool,
    /// A file may have been left aside, as [`Inner::try_rename`] documents.
    aside: bool,
}

impl Inner {
    /// Renames `from` (a path on the server) to `to`.
    pub(crate) async fn take_name(&self, from: &[u8], to: &RelPath, replace: bool) -> Result<()> {
        if !replace {
            self.recover(to).await?;
            if self.find(to).await?.is_some() {
                return Err(self.in_the_way(to));
            }
        }
        let on_server = self.on_server(to);
        let aside = self.on_server(&self.aside_of(to)?);
        let Refused { error, name, aside: may_be_aside } =
            match self.try_rename(from, &on_server, &aside).await {
                Ok(false) => return Ok(()),
                // An earlier run may have been killed before it removed the old file.
                Ok(true) if replace => {
                    let cleared = self.clear_older(&aside, to).await;
                    self.warn_unless_cleared(cleared, &aside);
                    return Ok(());
                }
                Ok(true) => return self.give_way(from, &aside, to).await,
                Err(refused) => refused,
            };
        let is_transient = error.retry() == Retry::Later;
        if !name || is_transient || error.kind() == ErrorKind::NotFound {
            // An existing file is not the reason.
            return Err(self.explain(error, to).await);
        }
        // In this order: what was aside before the name was seen to be taken is older than the present file. Otherwise
        // it may be the only copy of a file that another machine replaces at the same time.
        let is_aside = may_be_aside && self.is_aside(&aside, to).await?;
        match self.find(to).await? {
            Some(found) if found.is_dir() => {
                let kind = ErrorKind::IsADirectory;
                Err(self.at(Error::new(kind, error.operation()).because(error.cause()), to))
            }
            Some(_) if replace => {
                if is_aside {
                    // A failure shows when the present file cannot be renamed aside.
                    drop(self.remove_aside(&aside, to).await);
                }
                self.replace(from, to, &aside, error).await
            }
            Some(_) => Err(self.in_the_way(to)),
            None => {
                self.recover(to).await?;
                Err(self.explain(error, to).await)
            }
        }
    }

    /// Called after a rename to a free name, without permission to replace. If a killed run left the old file aside,
    /// the new file is renamed back to `from`, the old one gets its name back, and this fails.
    async fn give_way(&self, from: &[u8], aside: &[u8], to: &RelPath) -> Result<()> {
        if !self.is_aside(aside, to).await? {
            return Ok(());
        }
        // Such a file is left only where a rename does not replace.
        self.server.learnt.learn(Lesson::RenameDoesNotReplace);
        let replies = self.host.exchange(&rename(&self.on_server(to), from)?).await;
        let replies = replies.map_err(|error| self.at(error, to))?;
        if let Some(reply) = replies.iter().find(|reply| !reply.is_pending() && !reply.is_done()) {
            return Err(self.at(refused("rename", reply), to));
        }
        self.put_back(aside, to).await?;
        Err(self.in_the_way(to))
    }

    /// Replaces the file at `to` on a server whose rename does not replace. Removes nothing before the new file has the
    /// name: what is aside may be the only copy of a file that another machine replaces at the same time.
    async fn replace(&self, from: &[u8], to: &RelPath, aside: &[u8], refusal: Error) -> Result<()> {
        let on_server = self.on_server(to);
        let commands = [rename(&on_server, aside)?, rename(from, &on_server)?].concat();
        let replies = match self.host.exchange(&commands).await {
            Ok(replies) => replies,
            Err(error) => {
                // It is unknown which commands succeeded. If recovering fails too, the next run does it.
                self.server.learnt.learn(Lesson::RenameDoesNotReplace);
                drop(self.recover(to).await);
                return Err(self.at(error, to));
            }
        };
        let [_, moved, _, placed] = &replies[..] else {
            return Err(self.at(refusal, to));
        };
        if !moved.is_done() {
            if placed.is_done() {
                // If another machine has put the old file aside, its own file finds the name taken, and it removes
                // nothing.
                self.clear_aside(aside, to).await;
                return Ok(());
            }
            let cause = format!("{}; and the old file cannot be renamed: {moved}", refusal.cause());
            return Err(self.at(Error::new(refusal.kind(), "replace").because(cause), to));
        }
        self.server.learnt.learn(Lesson::RenameDoesNotReplace);
        if placed.is_done() {
            self.clear_aside(aside, to).await;
            return Ok(());
        }
        let error = refused("rename", placed);
        let back = self.put_back(aside, to).await.err().map(|why| {
            format!(
                "{}; the old file is now {}, the new one {}: {}",
                error.cause(),
                shown(aside),
                shown(from),
                why.cause()
            )
        });
        match back {
            Some(cause) => {
                Err(self.at(Error::new(error.kind(), error.operation()).because(cause), to))
            }
            None => Err(self.explain(error, to).await),
        }
    }

    /// Renames back the old `path` that a killed run left aside, or removes it if the name is taken. Does nothing
    /// on servers whose rename is assumed to replace: there, [`Self::take_name`] does this after its rename.
    pub(crate) async fn recover(&self, path: &RelPath) -> Result<()> {
        if self.server.rename_replaces() {
            return Ok(());
        }
        let aside = self.on_server(&self.aside_of(path)?);
        let replies = self.host.exchange_retrying(&[Command::new("RNFR", &aside)?]).await;
        let replies = replies.map_err(|error| self.at(error, path))?;
        if !replies.iter().all(Reply::is_pending) {
            return Ok(());
        }
        if !self.is_aside(&aside, path).await? {
            return Ok(());
        }
        match self.find(path).await? {
            Some(_) => self.remove_aside(&aside, path).await.map_err(|error| {
                let (shown, cause) = (shown(&aside), error.cause());
                error.because(format!("an older version of it is {shown}: {cause}"))
            }),
            None => self.put_back(&aside, path).await,
        }
    }

    async fn put_back(&self, aside: &[u8], path: &RelPath) -> Result<()> {
        let replies = self.host.exchange_retrying(&rename(aside, &self.on_server(path))?).await;
        let replies = replies.map_err(|error| self.at(error, path))?;
        match replies.iter().find(|reply| !reply.is_pending() && !reply.is_done()) {
            // If the file is back, the rename succeeded and only its reply was lost.
            Some(reply) if self.find(path).await?.is_none() => {
                Err(self.at(refused("put the old file back", reply), path))
            }
            _ => Ok(()),
        }
    }

    /// Whether a file is aside. A positive reply to RNFR does not show it: some servers accept RNFR for every name, and
    /// check at RNTO.
    async fn is_aside(&self, aside: &[u8], path: &RelPath) -> Result<bool> {
        let found = self.host.look(aside).await.map_err(|error| self.at(error, path))?;
        Ok(found.is_some())
    }

    /// Removes what is aside if it is older than the file at `path`: if the name is still taken after it was seen
    /// aside. Otherwise it may be the only copy of a file that another machine replaces at the same time.
    async fn clear_older(&self, aside: &[u8], path: &RelPath) -> Result<()> {
        match self.is_aside(aside, path).await? && self.find(path).await?.is_some() {
            true => self.remove_aside(aside, path).await,
            false => Ok(()),
        }
    }

    /// Removes the old file that was renamed aside, now that the new one is complete and has the name. A failure is a
    /// warning.
    async fn clear_aside(&self, aside: &[u8], path: &RelPath) {
        let cleared = self.remove_aside(aside, path).await;
        self.warn_unless_cleared(cleared, aside);
    }

    fn warn_unless_cleared(&self, cleared: Result<()>, aside: &[u8]) {
        if let Err(error) = cleared {
            let (shown, cause) = (shown(aside), error.cause());
            let message = format!("the old version of a replaced file stays as {shown} ({cause})");
            self.host.warn(&message);
        }
    }

    async fn remove_aside(&self, aside: &[u8], path: &RelPath) -> Result<()> {
        let commands = [Command::new("DELE", aside)?];
        let replies =
            self.host.exchange_retrying(&commands).await.map_err(|error| self.at(error, path))?;
        let Some(reply) = replies.iter().find(|reply| !reply.is_done()) else { return Ok(()) };
        let found = self.host.look(aside).await.map_err(|error| self.at(error, path))?;
        if found.is_none() {
            return Ok(());
        }
        Err(self.at(refused("remove the old file", reply), path))
    }

    /// The name of the old file while a new one takes its place.
    fn aside_of(&self, path: &RelPath) -> Result<RelPath> {
        path.with_name(aside_name(path.name())).map_err(|error| {
            let invalid = Error::new(ErrorKind::InvalidInput, "replace");
            self.at(invalid.because(format!("the name {error}")), path)
        })
    }

    /// Renames, and returns whether a file may have been left at `aside`: whether the server accepts RNFR for it, which
    /// some servers do for every name.
    async fn try_rename(&self, from: &[u8], to: &[u8], aside: &[u8]) -> Result<bool, Refused> {
        let failed = |error| Refused { error, name: false, aside: false };
        let mut commands = rename(from, to).map_err(failed)?.to_vec();
        commands.push(Command::new("RNFR", aside).map_err(failed)?);
        let replies = self.host.exchange(&commands).await.map_err(failed)?;
        let [from, to, aside] = &replies[..] else {
            return Err(failed(protocol("rename", "a reply is missing")));
        };
        if !from.is_pending() && !from.is_done() {
            return Err(failed(refused("rename", from)));
        }
        match to.is_done() {
            true => Ok(aside.is_pending()),
            false => {
                let (error, aside) = (refused("rename", to), aside.is_pending());
                Err(Refused { error, name: true, aside })
            }
        }
    }

    fn in_the_way(&self, path: &RelPath) -> Error {
        let error = Error::new(ErrorKind::AlreadyExists, "rename");
        self.at(error.because("the name already exists"), path)
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_debug().to_string()
}

fn rename(from: &[u8], to: &[u8]) -> Result<[Command; 2]> {
    Ok([Command::new("RNFR", from)?, Command::new("RNTO", to)?])
}
