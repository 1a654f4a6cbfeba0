//! Daemons on a simulated Xen host, with guests.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use xen_sim::Host;

use crate::client::{Failure, Outcome};
use crate::daemon::{Daemon, Ground, Kind, OXENSTORED_CONF, guarded, spawn};
use crate::process::Places;
use crate::ring::RingClient;

/// A daemon that takes longer than this to be ready is not going to be.
const PATIENCE: Duration = Duration::from_secs(30);

/// What oxenstored must be told on a simulated host, beside Debian's settings.
const OXENSTORED_HOST: &str = "xenstored-kva = /proc/xen/xsd_kva
xenstored-port = /proc/xen/xsd_port
";

/// A daemon on a host of its own. The daemon ends first.
#[derive(Debug)]
pub(crate) struct Hosted {
    /// The daemon.
    pub(crate) daemon: Daemon,
    /// The host, on which the guests are.
    pub(crate) host: Host,
    /// How the daemon was started.
    pub(crate) launch: Launch,
    guests_spin: bool,
}

/// What a daemon is started with, once and again.
#[derive(Debug)]
pub(crate) struct Launch {
    words: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
    dir: PathBuf,
    places: Option<Places>,
}

impl Launch {
    /// Starts the daemon.
    pub(crate) fn spawn(&self) -> io::Result<Child> {
        let mut guarded = guarded(&self.words);
        for (name, value) in &self.environment {
            match value {
                Some(value) => guarded.env(name, value),
                None => guarded.env_remove(name),
            };
        }
        spawn(&mut guarded, &self.dir, self.places)
    }
}

impl Ground {
    /// Starts a daemon with an empty store on a host of its own without guests, behind the words of `wrapper` and with
    /// these arguments beside its own.
    pub(crate) fn start_on_host(&mut self, kind: Kind, wrapper: &[&str], more: &[&str]) -> Outcome<Hosted> {
        let program = self.offers(kind).map_err(Failure::Unusable)?;
        let places = self.layout.guests;
        // The host's threads stay where they are started: with the guests.
        if let Some(places) = places {
            places.take_client()?;
        }
        let dir = self.directory(kind)?;
        let host = Host::start(&dir)?;
        let mut command = host.command(&program)?;
        let pid_file = dir.join("pid");
        match kind {
            Kind::Ours | Kind::C => command.args(["-N", "--pid-file"]).arg(pid_file),
            Kind::Floor => command.arg("ring-floor").arg(host.socket()),
            Kind::O => {
                let config = dir.join("oxenstored.conf");
                fs::write(&config, [OXENSTORED_CONF, OXENSTORED_HOST].concat())?;
                command.args(["--no-fork", "--no-access-log", "--config-file"]).arg(config)
            }
        };
        let mut words: Vec<_> = wrapper.iter().map(|&word| word.into()).collect();
        words.push(command.get_program().to_owned());
        words.extend(command.get_args().map(ToOwned::to_owned));
        words.extend(more.iter().map(Into::into));
        let environment = command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)));
        let launch = Launch { words, environment: environment.collect(), dir: dir.clone(), places };
        let child = launch.spawn()?;
        let daemon = Daemon::wait_for(kind, child, dir, host.socket())?;
        // It may listen before it has set itself up.
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = host.ask_for_sign_of_life() {
            if Instant::now() > deadline {
                return Err(error.into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Hosted { daemon, host, launch, guests_spin: self.layout.guests_spin })
    }
}

impl Hosted {
    /// The ring of a guest.
    pub(crate) fn guest(&self, domid: u16) -> Outcome<RingClient> {
        Ok(RingClient::new(self.host.guest(domid)?, self.guests_spin, self.daemon.kind == Kind::Floor))
    }
}
