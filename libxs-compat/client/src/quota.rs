//! Quotas, for daemons from Xen 4.22 on; older ones say `ENOSYS`.

use crate::client::Client;
use crate::domain::number;
use crate::error::Error;
use crate::nodes::string;
use xenstore_wire::Op;

/// All of these want the rights of the privileged domain and fail with `EACCES` without.
impl Client {
    /// The names of the quotas that the daemon knows.
    ///
    /// # Errors
    /// `ENOSYS`.
    pub fn quota_names(&self) -> Result<Vec<String>, Error> {
        self.call(Op::GetQuota, 0, &[], |names| {
            let names = String::from_utf8_lossy(names.strip_suffix(b"\0").unwrap_or(names)).into_owned();
            names.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        })
    }

    /// A quota's value for domains that have none of their own; 0 is no limit.
    ///
    /// # Errors
    /// `EINVAL` for an unknown name, `ENOSYS`.
    pub fn quota(&self, name: &str) -> Result<u32, Error> {
        self.call(Op::GetQuota, 0, &[string(name.as_bytes())?, b"\0"], number)?
    }

    /// Sets a quota's value for domains that have none of their own.
    ///
    /// # Errors
    /// `EINVAL` for an unknown name, `ENOSYS`.
    pub fn set_quota(&self, name: &str, value: u32) -> Result<(), Error> {
        let name = string(name.as_bytes())?;
        self.call(Op::SetQuota, 0, &[name, b"\0", value.to_string().as_bytes(), b"\0"], |_| ())
    }

    /// A quota's value for one domain.
    ///
    /// # Errors
    /// `ENOENT` for a domain that does not exist; as [`Self::quota`].
    pub fn domain_quota(&self, domain: u16, name: &str) -> Result<u32, Error> {
        let name = string(name.as_bytes())?;
        self.call(Op::GetQuota, 0, &[domain.to_string().as_bytes(), b"\0", name, b"\0"], number)?
    }

    /// Sets a quota's value for one domain.
    ///
    /// # Errors
    /// As [`Self::domain_quota`].
    pub fn set_domain_quota(&self, domain: u16, name: &str, value: u32) -> Result<(), Error> {
        let name = string(name.as_bytes())?;
        let (domain, value) = (domain.to_string(), value.to_string());
        self.call(Op::SetQuota, 0, &[domain.as_bytes(), b"\0", name, b"\0", value.as_bytes(), b"\0"], |_| ())
    }
}
