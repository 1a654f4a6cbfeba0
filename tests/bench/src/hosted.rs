//! Daemons on a simulated Xen host, with guests.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use xen_sim::Host;

use crate::client::{Failure, Outcome};
use crate::daemon::{Daemon, Ground, Kind, OXENSTORED_CONF, guarded, spawn};
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
    guests_spin: bool,
}

impl Ground {
    /// Starts a daemon with an empty store on a host of its own without guests, behind the words of `wrapper`.
    pub(crate) fn start_on_host(&mut self, kind: Kind, wrapper: &[&str]) -> Outcome<Hosted> {
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
        let mut guarded = guarded(words);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => guarded.env(name, value),
                None => guarded.env_remove(name),
            };
        }
        let child = spawn(&mut guarded, &dir, places)?;
        let daemon = Daemon::wait_for(kind, child, dir, host.socket())?;
        // It may listen before it has set itself up.
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = host.ask_for_sign_of_life() {
            if Instant::now() > deadline {
                return Err(error.into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Hosted { daemon, host, guests_spin: self.layout.guests_spin })
    }
}

impl Hosted {
    /// The ring of a guest.
    pub(crate) fn guest(&self, domid: u16) -> Outcome<RingClient> {
        Ok(RingClient::new(self.host.guest(domid)?, self.guests_spin, self.daemon.kind == Kind::Floor))
    }
}
