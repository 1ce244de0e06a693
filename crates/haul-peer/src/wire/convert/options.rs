//! Options of writes, links, and small files.

use bytes::Bytes;
use haul_storage::{
    CommitOptions, CreateOptions, LinkKind, Replaces, SmallFile, SourceVersion, Whole,
};

use super::super::messages::{self, link::Target};
use super::{PATH_MAX, TARGET_MAX, WireError, path, path_bytes, required};

impl From<&SourceVersion> for messages::SourceVersion {
    fn from(source: &SourceVersion) -> Self {
        Self { name: source.name.clone(), identity: Some((&source.identity).into()) }
    }
}

impl TryFrom<messages::SourceVersion> for SourceVersion {
    type Error = WireError;

    fn try_from(source: messages::SourceVersion) -> Result<Self, WireError> {
        // Not truncated: names identify sources.
        if source.name.len() > PATH_MAX {
            return Err(WireError::LongField("name of the source"));
        }
        let identity = required(source.identity, "version of the source")?.try_into()?;
        Ok(Self { name: source.name, identity })
    }
}

impl From<&CreateOptions> for messages::CreateOptions {
    fn from(options: &CreateOptions) -> Self {
        Self {
            source: options.source.as_ref().map(Into::into),
            resume: options.resume,
            size: options.size,
            sparse: options.sparse,
        }
    }
}

impl TryFrom<messages::CreateOptions> for CreateOptions {
    type Error = WireError;

    fn try_from(options: messages::CreateOptions) -> Result<Self, WireError> {
        Ok(Self {
            source: options.source.map(TryInto::try_into).transpose()?,
            resume: options.resume,
            size: options.size,
            sparse: options.sparse,
            // Not sent: a peer writes part files.
            replaces: Replaces::Any,
        })
    }
}

impl From<&CommitOptions> for messages::CommitOptions {
    fn from(options: &CommitOptions) -> Self {
        Self {
            metadata: Some((&options.metadata).into()),
            replace: options.replace,
            sync: options.sync,
            expected: options.expected.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<messages::CommitOptions> for CommitOptions {
    type Error = WireError;

    fn try_from(options: messages::CommitOptions) -> Result<Self, WireError> {
        Ok(Self {
            metadata: options.metadata.unwrap_or_default().try_into()?,
            replace: options.replace,
            sync: options.sync,
            expected: options.expected.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&LinkKind> for messages::Link {
    fn from(link: &LinkKind) -> Self {
        Self {
            target: Some(match link {
                LinkKind::Symbolic(target) => Target::Symbolic(Bytes::copy_from_slice(target)),
                LinkKind::Hard(path) => Target::Hard(path_bytes(path)),
            }),
        }
    }
}

impl TryFrom<messages::Link> for LinkKind {
    type Error = WireError;

    fn try_from(link: messages::Link) -> Result<Self, WireError> {
        match required(link.target, "kind of link")? {
            Target::Symbolic(target) if target.len() > TARGET_MAX => {
                Err(WireError::LongField("link target"))
            }
            Target::Symbolic(target) => Ok(Self::Symbolic(target.to_vec())),
            Target::Hard(target) => Ok(Self::Hard(path(&target)?)),
        }
    }
}

/// The content is shared, not copied.
impl From<&SmallFile> for messages::WriteWhole {
    fn from(file: &SmallFile) -> Self {
        Self {
            path: path_bytes(&file.path),
            data: file.bytes.clone(),
            options: Some((&file.options).into()),
        }
    }
}

impl TryFrom<messages::WriteWhole> for SmallFile {
    type Error = WireError;

    fn try_from(file: messages::WriteWhole) -> Result<Self, WireError> {
        let options = required(file.options, "options")?.try_into()?;
        Ok(Self::new(path(&file.path)?, file.data, options))
    }
}

/// The content is shared, not copied.
impl From<&Whole> for messages::Whole {
    fn from(whole: &Whole) -> Self {
        Self {
            data: whole.bytes.clone(),
            identity: Some((&whole.identity).into()),
            metadata: Some((&whole.metadata).into()),
        }
    }
}

impl TryFrom<messages::Whole> for Whole {
    type Error = WireError;

    fn try_from(whole: messages::Whole) -> Result<Self, WireError> {
        let identity = required(whole.identity, "version of the file")?.try_into()?;
        Ok(Self::new(whole.data, identity, whole.metadata.unwrap_or_default().try_into()?))
    }
}
