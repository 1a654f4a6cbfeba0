//! Telling the service manager how the daemon is (`sd_notify`), without libsystemd.
//!
//! The address is taken from `NOTIFY_SOCKET` once and the variable removed, so that no child can speak for the daemon;
//! messages can be sent all the same until the end. Without the variable (started by hand, another init) nothing is
//! sent. The unit needs `NotifyAccess=all` if the daemon forks away.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

use xen_ffi::process::take_variable;

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    address: Option<SocketAddr>,
}

impl Notifier {
    /// Takes the address out of the environment. Call it while the process has one thread.
    ///
    /// # Errors
    /// If the address is of no known form, or there are several threads. [`Notifier::default`] then goes on without.
    pub fn from_environment() -> io::Result<Self> {
        take_variable("NOTIFY_SOCKET")?.as_deref().map_or_else(|| Ok(Self::default()), Self::new)
    }

    /// Speaks to this address: a path, or a name of the abstract kind with `@` in front. Empty means nobody.
    ///
    /// # Errors
    /// If the address has another form or is too long.
    pub fn new(address: &OsStr) -> io::Result<Self> {
        let address = match address.as_bytes() {
            [] => None,
            [b'@', name @ ..] => Some(SocketAddr::from_abstract_name(name)?),
            [b'/', ..] => Some(SocketAddr::from_pathname(address)?),
            _ => {
                let text = format!("NOTIFY_SOCKET {} is neither a path nor an abstract name", address.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        Ok(Self { address })
    }

    /// Requests are answered from now on; this process is the main one.
    ///
    /// # Errors
    /// If the message cannot be sent. The daemon goes on.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.send(&[NotifyState::Ready, NotifyState::MainPid(std::process::id()), NotifyState::Status(status)])
    }

    /// A line for people; line breaks in it become blanks.
    ///
    /// # Errors
    /// If the message cannot be sent. The daemon goes on.
    pub fn status(&self, status: &str) -> io::Result<()> {
        self.send(&[NotifyState::Status(status)])
    }

    /// The orderly end has begun.
    ///
    /// # Errors
    /// If the message cannot be sent. The daemon goes on.
    pub fn stopping(&self) -> io::Result<()> {
        self.send(&[NotifyState::Stopping])
    }

    fn send(&self, states: &[NotifyState<'_>]) -> io::Result<()> {
        let Some(address) = &self.address else {
            return Ok(());
        };
        let lines: Vec<_> = states.iter().map(|state| state.to_string().replace('\n', " ")).collect();
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not stop the store.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(lines.join("\n").as_bytes(), address).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    #[test]
    fn messages_reach_a_socket_in_the_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(path.as_os_str()).unwrap();
        notifier.ready("serving\nall").unwrap();
        assert_eq!(received(&socket), format!("READY=1\nMAINPID={}\nSTATUS=serving all", std::process::id()));
        notifier.status("busy").unwrap();
        assert_eq!(received(&socket), "STATUS=busy");
        notifier.stopping().unwrap();
        assert_eq!(received(&socket), "STOPPING=1");
    }

    #[test]
    fn messages_reach_an_abstract_socket() {
        let name = format!("xenstored-rs-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::new(OsStr::new(&format!("@{name}"))).unwrap();
        notifier.stopping().unwrap();
        assert_eq!(received(&socket), "STOPPING=1");
    }

    #[test]
    fn without_an_address_nothing_is_sent() {
        Notifier::default().ready("x").unwrap();
        Notifier::new(OsStr::new("")).unwrap().ready("x").unwrap();
    }

    #[test]
    fn addresses_of_another_form_and_dead_ones_are_errors() {
        for address in ["vsock:2:1234", "relative/path"] {
            assert!(Notifier::new(OsStr::new(address)).is_err(), "{address}");
        }
        assert!(Notifier::new(OsStr::new(&format!("/{}", "x".repeat(200)))).is_err());
        let nobody = Notifier::new(OsStr::new("/nonexistent/notify")).unwrap();
        assert!(nobody.stopping().is_err());
    }
}
