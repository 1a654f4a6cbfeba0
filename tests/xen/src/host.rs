//! The host: domains, and the daemon that serves them.

use crate::bridge;
use crate::guest::Guest;
use crate::hypervisor::Access;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use xen_sim::{Domain, DomainOptions, ShutdownReason};
use xenstore_wire::Op;
use xenstored_tests::{Client, wait};

/// Where the kernel of guests is, unless `XEN_RIG_KERNEL` says otherwise.
const KERNEL: &str = "/rig/guest-kernel";

/// The host, with a directory for its daemon and the sockets of guests. Dropping it destroys the domains.
#[derive(Debug)]
pub struct Host {
    access: Arc<Access>,
    dir: PathBuf,
}

impl Host {
    /// Opens the hypervisor, and makes `run` in the directory.
    ///
    /// # Errors
    /// Where there is no Xen, or no kernel for guests.
    pub fn start(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir.join("run"))?;
        let kernel = env::var_os("XEN_RIG_KERNEL").map_or_else(|| KERNEL.into(), PathBuf::from);
        Ok(Self { access: Arc::new(Access::start(fs::read(kernel)?)?), dir: dir.canonicalize()? })
    }

    /// The host's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The socket at which the daemon is to listen.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("run/socket")
    }

    /// A command that runs `program` with its run directory here; its arguments are the caller's to add.
    ///
    /// # Errors
    /// Those of making a link.
    pub fn command(&self, program: &Path) -> io::Result<Command> {
        if program.ends_with("oxenstored") {
            // Its socket has a fixed name.
            let _ = fs::remove_file(self.socket());
            symlink("/var/run/xenstored/socket", self.socket())?;
        }
        let mut command = Command::new(program);
        command.env("XENSTORED_RUNDIR", self.dir.join("run")).env_remove("NOTIFY_SOCKET");
        Ok(command)
    }

    // ---- domains ----

    /// Creates a domain whose kernel waits for what it is told. A dead one of that id is waited for.
    ///
    /// # Errors
    /// What the hypervisor or the domain builder said.
    pub fn create(&self, domid: u16) -> io::Result<Domain> {
        self.create_with(domid, &DomainOptions::default())
    }

    /// Creates a domain that is unlike others.
    ///
    /// # Errors
    /// As [`Self::create`].
    ///
    /// # Panics
    /// When the options ask for a port in the ring page, which the hypervisor writes for domains that it boots itself.
    pub fn create_with(&self, domid: u16, options: &DomainOptions) -> io::Result<Domain> {
        assert!(!options.port_in_page, "a toolstack does not write the port into the page");
        let granted = options.granted;
        self.await_absence(domid);
        self.access.run(move |hypervisor| hypervisor.create(domid, "serve", granted))?;
        self.let_run(domid)?;
        self.domain(domid).ok_or_else(|| io::Error::other("the new domain is gone"))
    }

    /// Lets a domain run that is paused.
    ///
    /// # Errors
    /// What the hypervisor said.
    pub fn let_run(&self, domid: u16) -> io::Result<()> {
        self.access.run(move |hypervisor| hypervisor.control.unpause(domid))
    }

    /// Creates a domain whose kernel leads a conversation of its own, once it runs: it is paused.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_talking(&self, domid: u16) -> io::Result<Domain> {
        self.await_absence(domid);
        self.access.run(move |hypervisor| hypervisor.create(domid, "talk", true))?;
        self.domain(domid).ok_or_else(|| io::Error::other("the new domain is gone"))
    }

    fn await_absence(&self, domid: u16) {
        let exists = || self.access.run(move |hypervisor| hypervisor.exists(domid));
        wait::until(&format!("domain {domid} is gone"), || !exists());
    }

    /// Has a domain's kernel shut it down, and waits until it has.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain.
    pub fn shutdown(&self, domid: u16, reason: ShutdownReason) -> io::Result<()> {
        self.guest(domid)?.shut_down(reason.number());
        wait::until("the domain has shut down", || self.access.run(move |hypervisor| hypervisor.has_shut_down(domid)));
        Ok(())
    }

    /// Lets a domain that suspended itself run again.
    ///
    /// # Errors
    /// What the hypervisor said.
    pub fn resume(&self, domid: u16) -> io::Result<()> {
        self.access.run(move |hypervisor| hypervisor.control.resume(domid))
    }

    /// Destroys a domain, but keeps some of its memory mapped, so that it stays there, dying.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain, and what the hypervisor said.
    pub fn begin_destroy(&self, domid: u16) -> io::Result<()> {
        let serial = self.serial(domid)?;
        self.access.run(move |hypervisor| hypervisor.destroy(serial))
    }

    /// Destroys a domain.
    ///
    /// # Errors
    /// As [`Self::begin_destroy`].
    pub fn destroy(&self, domid: u16) -> io::Result<()> {
        let serial = self.serial(domid)?;
        self.access.run(move |hypervisor| {
            let destroyed = hypervisor.destroy(serial);
            hypervisor.forget(serial);
            destroyed
        })
    }

    fn serial(&self, domid: u16) -> io::Result<u64> {
        let serial = self.access.run(move |hypervisor| hypervisor.serial_of(domid));
        serial.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no domain {domid}")))
    }

    /// Has a domain's kernel replace its store port by another one, as a guest does that starts another kernel.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain, and what the kernel said.
    pub fn renew_port(&self, domid: u16) -> io::Result<u32> {
        self.guest(domid)?.renew_port()
    }

    /// A domain as it is now, if there is such.
    #[must_use]
    pub fn domain(&self, domid: u16) -> Option<Domain> {
        self.access.run(move |hypervisor| {
            let serial = hypervisor.serial_of(domid)?;
            let live = hypervisor.domain(serial)?;
            Some(Domain {
                domid,
                port: live.store_port,
                gfn: live.built.store_frame,
                unique_id: serial,
                handle: [0; 16],
                shutdown: None,
                dying: !live.line.is_open(),
            })
        })
    }

    // ---- guests ----

    /// The kernel of a domain. Several may be taken, but only one at a time may write requests, and one read replies.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain.
    pub fn guest(&self, domid: u16) -> io::Result<Guest> {
        Guest::new(&self.access, domid)
    }

    /// Offers a domain's ring as the unix socket `guest-<domid>.sock` in the host's directory, for one client.
    ///
    /// # Errors
    /// As [`Self::guest`], and those of making a socket.
    pub fn offer(&self, domid: u16) -> io::Result<()> {
        bridge::offer(&self.access, domid, &self.dir.join(format!("guest-{domid}.sock")))
    }

    // ---- the toolstack's part ----

    /// Introduces a domain to the daemon, over its socket.
    ///
    /// # Errors
    /// `NotFound` when there is no such domain, and what the daemon answers.
    pub fn introduce(&self, domid: u16) -> io::Result<()> {
        self.introduce_all(&[domid])
    }

    /// Introduces many domains, over one connection.
    ///
    /// # Errors
    /// As [`Self::introduce`].
    pub fn introduce_all(&self, domids: &[u16]) -> io::Result<()> {
        let mut client = Client::connect(&self.socket())?;
        for &domid in domids {
            self.serial(domid)?;
            let domain = self.domain(domid).ok_or_else(|| io::Error::other("the domain is gone"))?;
            let payload = format!("{domid}\0{}\0{}\0", domain.gfn, domain.port);
            let answer = client.request(Op::Introduce, payload.as_bytes());
            answer.map_err(|name| io::Error::other(format!("INTRODUCE {domid}: the daemon says {name}")))?;
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let domids = self.access.run(|hypervisor| {
            let mut domids = Vec::new();
            for serial in hypervisor.serials() {
                domids.extend(hypervisor.domain(serial).map(|live| live.domid));
                // One that is dying already cannot be destroyed again.
                let _ = hypervisor.destroy(serial);
                hypervisor.forget(serial);
            }
            domids
        });
        if !std::thread::panicking() {
            domids.into_iter().for_each(|domid| self.await_absence(domid));
        }
    }
}
