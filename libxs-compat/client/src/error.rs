//! What can go wrong, each with its errno.

use nix::errno::Errno;
use std::io;
use std::path::PathBuf;
use xenstore_wire::XsError;

/// Why a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The daemon closed it.
    #[error("the daemon closed it")]
    Ended,
    /// Sending or receiving failed.
    #[error("{0}")]
    Io(Errno),
    /// A message announced more payload than the protocol allows.
    #[error("a message is too long")]
    TooLong,
    /// An answer came that nobody had asked for.
    #[error("an answer came to no request")]
    Unexpected,
    /// The answer was of another type than its request.
    #[error("an answer is of the wrong type")]
    Mismatch,
    /// A watch event did not carry a path and a token.
    #[error("a watch event is malformed")]
    MalformedEvent,
    /// A request was cut short by its deadline, so that the daemon cannot follow any more.
    #[error("a request was cut short")]
    CutShort,
    /// The process gave up its rights over it.
    #[error("it was given up")]
    GivenUp,
}

impl Cause {
    /// The errno that goes with it.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::Io(errno) => errno as i32,
            Self::TooLong => Errno::E2BIG as i32,
            Self::Unexpected => Errno::EEXIST as i32,
            Self::CutShort => Errno::ETIMEDOUT as i32,
            Self::Ended | Self::Mismatch | Self::MalformedEvent | Self::GivenUp => Errno::EBADF as i32,
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::Io(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}

/// One place that was tried for a daemon, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The socket or device.
    pub path: PathBuf,
    /// Why it could not be used.
    pub errno: Errno,
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.path.display(), self.errno)
    }
}

/// Puts attempts behind each other.
fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Why an operation failed. [`Error::name`] gives the name of the errno that a C program would see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon refused the request.
    #[error("the store refuses: {0}")]
    Refused(XsError),
    /// The daemon refused with a name outside the protocol; it counts as `EINVAL`.
    #[error("the store refuses with an unknown name: {0}")]
    RefusedUnknown(String),
    /// The request does not fit a message.
    #[error("the request is longer than a message may be")]
    TooLong,
    /// An argument cannot be sent at all.
    #[error("{0}")]
    Invalid(&'static str),
    /// An answer does not have the form that the protocol gives it.
    #[error("the store's answer is malformed: {0}")]
    Malformed(&'static str),
    /// The value is no UTF-8.
    #[error("the value is no text")]
    NotText,
    /// The connection came to its end during the operation.
    #[error("the connection is broken: {0}")]
    Broken(Cause),
    /// The connection had come to its end before.
    #[error("the connection is closed")]
    Closed,
    /// The handle came through a fork; only the process that opened it can use it.
    #[error("the connection belongs to another process")]
    Forked,
    /// The deadline passed.
    #[error("nothing came in time")]
    TimedOut,
    /// The transaction was open at a daemon that is gone: it has to be started again.
    #[error("the transaction belongs to a connection that is gone")]
    TransactionLost,
    /// Others were faster, again and again.
    #[error("the transaction conflicts with others")]
    Conflict,
    /// So many events were dropped because they were not taken in time.
    #[error("{lost} events were dropped")]
    Overflow {
        /// How many.
        lost: usize,
    },
    /// No daemon could be reached.
    #[error("no xenstore: {}", list(.0))]
    Unreachable(Vec<Attempt>),
    /// The system refused something that the client needs: a thread, a descriptor.
    #[error("{0}")]
    System(Errno),
}

impl Error {
    /// The errno value of Linux.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused(error) => error.errno(),
            Self::RefusedUnknown(_) | Self::Invalid(_) => Errno::EINVAL as i32,
            Self::TooLong => Errno::E2BIG as i32,
            Self::Malformed(_) => Errno::EBADMSG as i32,
            Self::NotText => Errno::EILSEQ as i32,
            Self::Broken(cause) => cause.errno(),
            Self::Closed | Self::Forked => Errno::EBADF as i32,
            Self::TimedOut => Errno::ETIMEDOUT as i32,
            Self::TransactionLost | Self::Conflict => Errno::EAGAIN as i32,
            Self::Overflow { .. } => Errno::EOVERFLOW as i32,
            Self::Unreachable(attempts) => attempts.last().map_or(Errno::ENOENT, |attempt| attempt.errno) as i32,
            Self::System(errno) => *errno as i32,
        }
    }

    /// The name of [`Self::errno`], such as `ENOENT`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Refused(error) => error.name().to_owned(),
            _ => format!("{:?}", Errno::from_raw(self.errno())),
        }
    }

    /// What the daemon answered, if it is a refusal with a known name.
    #[must_use]
    pub fn refusal(&self) -> Option<XsError> {
        match self {
            Self::Refused(error) => Some(*error),
            _ => None,
        }
    }

    /// The error of an `ERROR` reply with this payload.
    pub(crate) fn from_payload(payload: &[u8]) -> Self {
        let name = payload.split(|&byte| byte == 0).next().unwrap_or_default();
        XsError::from_name(name)
            .map_or_else(|| Self::RefusedUnknown(String::from_utf8_lossy(name).into_owned()), Self::Refused)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::refused(Error::Refused(XsError::NoEnt), "ENOENT", libc_errno(Errno::ENOENT))]
    #[case::unknown(Error::from_payload(b"EQUOTA\0"), "EINVAL", libc_errno(Errno::EINVAL))]
    #[case::too_long(Error::TooLong, "E2BIG", libc_errno(Errno::E2BIG))]
    #[case::closed(Error::Closed, "EBADF", libc_errno(Errno::EBADF))]
    #[case::broken(Error::Broken(Cause::Io(Errno::EPIPE)), "EPIPE", libc_errno(Errno::EPIPE))]
    #[case::lost(Error::TransactionLost, "EAGAIN", libc_errno(Errno::EAGAIN))]
    fn errors_carry_an_errno_and_its_name(#[case] error: Error, #[case] name: &str, #[case] errno: i32) {
        assert_eq!((error.name().as_str(), error.errno()), (name, errno));
    }

    fn libc_errno(errno: Errno) -> i32 {
        errno as i32
    }

    #[test]
    fn every_name_of_the_protocol_becomes_its_error() {
        for &error in XsError::ALL {
            assert_eq!(Error::from_payload(error.as_wire()), Error::Refused(error));
            assert_eq!(Errno::from_raw(error.errno()) as i32, error.errno());
            assert_eq!(format!("{:?}", Errno::from_raw(error.errno())), error.name());
        }
    }

    #[test]
    fn what_was_tried_is_named() {
        let attempts = vec![
            Attempt { path: "/run/xenstored/socket".into(), errno: Errno::ECONNREFUSED },
            Attempt { path: "/dev/xen/xenbus".into(), errno: Errno::ENOENT },
        ];
        let error = Error::Unreachable(attempts);
        assert_eq!(error.to_string(), "no xenstore: /run/xenstored/socket: ECONNREFUSED, /dev/xen/xenbus: ENOENT");
        assert_eq!(error.name(), "ENOENT");
    }
}
