//! The errors that may cross the wire.

/// Declares the error names once: variant, wire name and Linux errno, doc line.
macro_rules! errors {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $errno:literal;)*) => {
        /// Why a request failed: one of the names that both ends know (`xsd_errors` of `xs_wire.h`).
        ///
        /// Nothing else may ever be sent: clients turn any other name into `EINVAL`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum XsError {
            $($(#[$doc])* $variant,)*
        }

        impl XsError {
            /// Every error in the order of the protocol header.
            pub const ALL: &[XsError] = &[$(XsError::$variant),*];

            /// The payload of the error reply: the name and a NUL.
            #[must_use]
            pub const fn as_wire(self) -> &'static [u8] {
                match self { $(XsError::$variant => concat!($name, "\0").as_bytes(),)* }
            }

            /// The name alone.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(XsError::$variant => $name,)* }
            }

            /// The errno value of Linux.
            #[must_use]
            pub const fn errno(self) -> i32 {
                match self { $(XsError::$variant => $errno,)* }
            }
        }
    };
}

errors! {
    /// Malformed path, payload or argument.
    Inval, "EINVAL", 22;
    /// The caller may not, or may not know.
    Access, "EACCES", 13;
    /// It is there already.
    Exist, "EEXIST", 17;
    /// Known to clients, never sent by this daemon.
    IsDir, "EISDIR", 21;
    /// No such node, watch, transaction or domain.
    NoEnt, "ENOENT", 2;
    /// Memory quota or a poisoned transaction.
    NoMem, "ENOMEM", 12;
    /// A quota is used up.
    NoSpc, "ENOSPC", 28;
    /// The daemon failed.
    Io, "EIO", 5;
    /// Known to clients, never sent by this daemon.
    NotEmpty, "ENOTEMPTY", 39;
    /// No such message type.
    NoSys, "ENOSYS", 38;
    /// Known to clients, never sent by this daemon.
    RoFs, "EROFS", 30;
    /// Not now: a nested transaction, or a domain that is introduced already.
    Busy, "EBUSY", 16;
    /// The transaction conflicts with a change made meanwhile: start it again.
    Again, "EAGAIN", 11;
    /// Known to clients, never sent by this daemon.
    IsConn, "EISCONN", 106;
    /// The answer does not fit a message.
    TooBig, "E2BIG", 7;
    /// An unprivileged caller tried to give a node away.
    Perm, "EPERM", 1;
}

impl XsError {
    /// The error with this wire name (without its NUL), if it is one of ours.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|error| error.name().as_bytes() == name)
    }
}

impl core::fmt::Display for XsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for XsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_sixteen_of_the_protocol() {
        let names: Vec<_> = XsError::ALL.iter().map(|error| error.name()).collect();
        let public = "EINVAL EACCES EEXIST EISDIR ENOENT ENOMEM ENOSPC EIO ENOTEMPTY ENOSYS EROFS EBUSY EAGAIN EISCONN \
                      E2BIG EPERM";
        assert_eq!(names.join(" "), public);
    }

    #[test]
    fn names_come_back() {
        for &error in XsError::ALL {
            assert_eq!(XsError::from_name(error.name().as_bytes()), Some(error));
        }
        assert_eq!(XsError::from_name(b"EQUOTA"), None);
    }
}
