//! The message types.

/// Declares the operations once: number, wire name, doc line.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// A message type, named as the wire names it (`enum xsd_sockmsg_type` of `xs_wire.h`).
        ///
        /// Number 20 was RESTRICT and is a hole; 65535 is guaranteed to stay invalid.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Op {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Op {
            /// Every message type in the order of its number.
            pub const ALL: &[Op] = &[$(Op::$variant),*];

            /// The name that traces print, e.g. `TRANSACTION_START`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// The type with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Op> {
                match number { $($number => Some(Op::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    /// Administration of the daemon: a command and its arguments.
    Control = 0, "CONTROL";
    /// Names of a node's children.
    Directory = 1, "DIRECTORY";
    /// Value of a node.
    Read = 2, "READ";
    /// Permissions of a node.
    GetPerms = 3, "GET_PERMS";
    /// Registers a watch.
    Watch = 4, "WATCH";
    /// Removes a watch.
    Unwatch = 5, "UNWATCH";
    /// Opens a transaction.
    TransactionStart = 6, "TRANSACTION_START";
    /// Commits or aborts a transaction.
    TransactionEnd = 7, "TRANSACTION_END";
    /// Makes a domain and its ring known.
    Introduce = 8, "INTRODUCE";
    /// Forgets a domain.
    Release = 9, "RELEASE";
    /// Home path of a domain.
    GetDomainPath = 10, "GET_DOMAIN_PATH";
    /// Sets a node's value, making the node if it is missing.
    Write = 11, "WRITE";
    /// Makes a node if it is missing.
    Mkdir = 12, "MKDIR";
    /// Removes a node and all below it.
    Rm = 13, "RM";
    /// Sets a node's permissions.
    SetPerms = 14, "SET_PERMS";
    /// A watch fired (daemon to client only).
    WatchEvent = 15, "WATCH_EVENT";
    /// A request failed (daemon to client only).
    Error = 16, "ERROR";
    /// Whether a domain is introduced.
    IsDomainIntroduced = 17, "IS_DOMAIN_INTRODUCED";
    /// A domain that was suspended goes on.
    Resume = 18, "RESUME";
    /// Gives one domain the rights of another.
    SetTarget = 19, "SET_TARGET";
    /// Drops the caller's watches and transactions.
    ResetWatches = 21, "RESET_WATCHES";
    /// A slice of the names of a node's children.
    DirectoryPart = 22, "DIRECTORY_PART";
    /// Feature bits offered to a domain.
    GetFeature = 23, "GET_FEATURE";
    /// Limits the feature bits offered to a domain.
    SetFeature = 24, "SET_FEATURE";
    /// Names or values of quotas.
    GetQuota = 25, "GET_QUOTA";
    /// Sets a quota.
    SetQuota = 26, "SET_QUOTA";
}

impl Op {
    /// One more than the highest number in use (`XS_TYPE_COUNT`).
    pub const COUNT: usize = 27;

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_types_are_inverse() {
        for &op in Op::ALL {
            assert_eq!(Op::from_number(op.number()), Some(op));
        }
        let count = u32::try_from(Op::COUNT).unwrap();
        let known = (0..count).filter(|&number| Op::from_number(number).is_some()).count();
        assert_eq!(known, Op::ALL.len(), "20 is the only hole");
    }

    #[test]
    fn holes_and_unknown_numbers_are_none() {
        for number in [20, 27, 1000, 65535, u32::MAX] {
            assert_eq!(Op::from_number(number), None);
        }
    }
}
