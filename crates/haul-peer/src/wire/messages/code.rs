//! Enumerations. Numbers of later versions have no variant here.

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$case_doc])* $case = $number,)* }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$case),*];

            /// The number in messages.
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// The variant with this number, if this version knows it.
            pub fn of(number: i32) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.number() == number)
            }
        }
    };
}

codes! {
    /// The kind of an entry.
    EntryKind {
        /// A regular file.
        File = 1,
        /// A directory.
        Directory = 2,
        /// A symbolic link.
        Symlink = 3,
        /// A special file whose kind the server does not know.
        Special = 4,
        /// A named pipe.
        Fifo = 5,
        /// A Unix socket.
        Socket = 6,
        /// A block device.
        BlockDevice = 7,
        /// A character device.
        CharDevice = 8,
    }
}

codes! {
    /// A digest function.
    DigestKind {
        /// BLAKE3 with 256 bits.
        Blake3 = 1,
        /// SHA-256.
        Sha256 = 2,
    }
}

codes! {
    /// The kind of an error, as [`haul_storage::ErrorKind`].
    ErrorKind {
        /// No entry has that name.
        NotFound = 1,
        /// Access is denied.
        PermissionDenied = 2,
        /// An entry may not be replaced.
        AlreadyExists = 3,
        /// A directory, where a file is needed.
        IsADirectory = 4,
        /// Not a directory, where one is needed.
        NotADirectory = 5,
        /// A directory is not empty.
        NotEmpty = 6,
        /// The device or quota is full.
        NoSpace = 7,
        /// The source has changed, or the target of a commit is not the expected version.
        Changed = 8,
        /// Data has another digest.
        Corrupt = 9,
        /// The storage does not support it.
        Unsupported = 10,
        /// No credentials, or wrong ones.
        Unauthenticated = 11,
        /// Something behind the server cannot be reached.
        Unreachable = 12,
        /// It is in use, or the server cannot do it at the moment.
        Busy = 13,
        /// A protocol was violated.
        Protocol = 14,
        /// The server stopped the operation.
        Interrupted = 15,
        /// The request is invalid.
        InvalidInput = 16,
        /// An input or output error.
        Io = 17,
        /// Anything else.
        Other = 18,
    }
}

codes! {
    /// Whether a retry can help.
    Retry {
        /// It fails the same way.
        Never = 1,
        /// After a pause.
        Later = 2,
        /// With the whole file.
        FromStart = 3,
    }
}

codes! {
    /// Why a lane is refused, or why the session of an open lane ends.
    Refusal {
        /// Anything else; see the text.
        Other = 1,
        /// No common version.
        Version = 2,
        /// The secret is wrong, or has been revoked.
        Secret = 3,
        /// The ticket has expired. Also sent on lanes that are open.
        Expired = 4,
        /// The ticket permits one use, and has been used.
        Used = 5,
        /// Too many sessions or lanes, or a temporary failure of the server; a later attempt may succeed.
        Busy = 6,
        /// The session does not exist (any longer), or the lane does not prove that it belongs to it.
        Session = 7,
        /// The first frame is no valid Hello, or came too late.
        Hello = 8,
        /// The share has ended. Sent on lanes that are open.
        Ended = 9,
    }
}

codes! {
    /// What lies between the server and its storage.
    Medium {
        /// A disk.
        Disk = 1,
        /// A link.
        Link = 2,
    }
}

codes! {
    /// The order in which a file may be written.
    Writes {
        /// From the first byte to the last.
        InOrder = 1,
        /// At any offset.
        AnyOrder = 2,
    }
}
