//! Domains, features and control commands.

use crate::client::Client;
use crate::error::Error;
use crate::nodes::string;
use std::ops::BitOr;
use xenstore_wire::{Op, payload};

/// What a daemon offers, as bits (`XENSTORE_SERVER_FEATURE_*` of `public/io/xs_wire.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u32);

impl Features {
    /// A guest's ring can be connected anew.
    pub const RECONNECTION: Self = Self(1);
    /// The ring's page tells about errors of the connection.
    pub const ERROR: Self = Self(2);
    /// Watches may have a depth.
    pub const WATCH_DEPTH: Self = Self(4);

    /// Whether all bits of `other` are offered.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Most of these want the rights of the privileged domain and fail with `EACCES` without.
impl Client {
    /// Makes a domain known whose ring is in frame `frame`, with the domain's event channel `port`.
    ///
    /// # Errors
    /// `EINVAL` and others when the daemon cannot reach the ring.
    pub fn introduce(&self, domain: u16, frame: u64, port: u32) -> Result<(), Error> {
        self.call(Op::Introduce, 0, &[format!("{domain}\0{frame}\0{port}\0").as_bytes()], |_| ())
    }

    /// Forgets a domain.
    ///
    /// # Errors
    /// `ENOENT` for one that is not introduced, `EINVAL` for the daemon's own.
    pub fn release(&self, domain: u16) -> Result<(), Error> {
        self.for_domain(Op::Release, domain, |_| ())
    }

    /// Lets a domain's next shutdown be told of again.
    ///
    /// # Errors
    /// As [`Self::release`].
    pub fn resume(&self, domain: u16) -> Result<(), Error> {
        self.for_domain(Op::Resume, domain, |_| ())
    }

    /// Gives `domain` the rights of `target`.
    ///
    /// # Errors
    /// `ENOENT` when one of them is not introduced.
    pub fn set_target(&self, domain: u16, target: u16) -> Result<(), Error> {
        self.call(Op::SetTarget, 0, &[format!("{domain}\0{target}\0").as_bytes()], |_| ())
    }

    /// The path of a domain's own nodes, whether the domain exists or not.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn domain_path(&self, domain: u16) -> Result<Vec<u8>, Error> {
        self.for_domain(Op::GetDomainPath, domain, |path| path.strip_suffix(b"\0").unwrap_or(path).to_vec())
    }

    /// Whether a domain is introduced.
    ///
    /// # Errors
    /// `EACCES`; those of the connection.
    pub fn is_introduced(&self, domain: u16) -> Result<bool, Error> {
        match self.for_domain(Op::IsDomainIntroduced, domain, <[u8]>::to_vec)?.as_slice() {
            b"T\0" | b"T" => Ok(true),
            b"F\0" | b"F" => Ok(false),
            _ => Err(Error::Malformed("whether a domain is introduced")),
        }
    }

    /// What the daemon offers to the caller. Daemons before Xen 4.21 do not know the question.
    ///
    /// # Errors
    /// `ENOSYS`.
    pub fn features(&self) -> Result<Features, Error> {
        self.call(Op::GetFeature, 0, &[], number)?.map(Features)
    }

    /// What the daemon offers to a domain.
    ///
    /// # Errors
    /// `ENOENT` for a domain that does not exist, `ENOSYS`.
    pub fn domain_features(&self, domain: u16) -> Result<Features, Error> {
        self.for_domain(Op::GetFeature, domain, number)?.map(Features)
    }

    /// Limits what the daemon offers to a domain that is not introduced yet.
    ///
    /// # Errors
    /// `EBUSY` for one that is, `EINVAL` for a bit that the daemon does not know, `ENOENT`, `ENOSYS`.
    pub fn set_domain_features(&self, domain: u16, features: Features) -> Result<(), Error> {
        self.call(Op::SetFeature, 0, &[format!("{domain}\0{}\0", features.0).as_bytes()], |_| ())
    }

    /// Runs a command of the daemon's own (`help` lists them) and returns what it says, without its final NUL.
    ///
    /// # Errors
    /// `EINVAL` for a command or arguments that it does not know.
    pub fn control(&self, command: impl AsRef<[u8]>, arguments: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let mut payload = string(command.as_ref())?.to_vec();
        payload.push(0);
        for argument in arguments {
            payload.extend_from_slice(string(argument)?);
            payload.push(0);
        }
        self.call(Op::Control, 0, &[&payload], |said| said.strip_suffix(b"\0").unwrap_or(said).to_vec())
    }

    fn for_domain<R>(&self, op: Op, domain: u16, take: impl FnOnce(&[u8]) -> R) -> Result<R, Error> {
        self.call(op, 0, &[format!("{domain}\0").as_bytes()], take)
    }
}

/// The number that an answer consists of.
pub(crate) fn number(payload: &[u8]) -> Result<u32, Error> {
    payload::number(payload.strip_suffix(b"\0").unwrap_or(payload)).map_err(|_| Error::Malformed("a number"))
}
