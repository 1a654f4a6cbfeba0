//! The store daemons that a simulated host carries.

use crate::{our_binary, tools};
use std::fs;
use std::path::{Path, PathBuf};

/// A store daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// This project's.
    Ours,
    /// Debian's C xenstored 4.17.
    C,
    /// Debian's oxenstored 4.17.
    Ocaml,
}

/// What a test wants other than the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// So many nodes may a domain own.
    Nodes(u32),
    /// After so many seconds an event for a guest that does not read is dropped; 0 is never.
    EventTimeout(u32),
    /// So many mappings does the host say that a process may have.
    Mappings(u32),
}

impl Store {
    /// The daemon that `XENSTORED_TEST_DAEMON` names: `ours`, which is the default, `c` or `ocaml`.
    ///
    /// # Panics
    /// When it names anything else.
    #[must_use]
    pub fn chosen() -> Self {
        match std::env::var("XENSTORED_TEST_DAEMON").as_deref() {
            Err(_) | Ok("ours") => Self::Ours,
            Ok("c") => Self::C,
            Ok("ocaml") => Self::Ocaml,
            Ok(other) => panic!("XENSTORED_TEST_DAEMON is {other:?}, not ours, c or ocaml"),
        }
    }

    /// Its program.
    ///
    /// # Panics
    /// When our daemon cannot be built.
    #[must_use]
    pub fn program(self) -> PathBuf {
        match self {
            Self::Ours => our_binary().to_owned(),
            Self::C => Path::new(tools::XEN_BIN).join("xenstored"),
            Self::Ocaml => Path::new(tools::XEN_BIN).join("oxenstored"),
        }
    }

    /// What it finds in its environment beside what a host says.
    #[must_use]
    pub fn environment(settings: &[Setting]) -> Vec<(String, String)> {
        let set = |setting: &Setting| match setting {
            Setting::Mappings(most) => Some(("XEN_SIM_MAX_MAP_COUNT".into(), most.to_string())),
            Setting::Nodes(_) | Setting::EventTimeout(_) => None,
        };
        settings.iter().filter_map(set).collect()
    }

    /// Its command line on a host in `dir`; writes the file that it names.
    ///
    /// # Panics
    /// When that file cannot be written.
    #[must_use]
    pub fn arguments(self, dir: &Path, settings: &[Setting]) -> Vec<String> {
        let pid_file = dir.join("pid").display().to_string();
        // No test leaves a process behind; those about keeping say so.
        let own = match self {
            Self::Ours => vec!["--keep".into(), "0".into()],
            Self::C => Vec::new(),
            Self::Ocaml => return oxenstored(dir, settings),
        };
        let set = settings.iter().flat_map(|setting| match (self, setting) {
            (Self::C, Setting::Nodes(nodes)) => vec!["--entry-nb".into(), nodes.to_string()],
            (_, Setting::Nodes(nodes)) => vec!["--quota".into(), format!("nodes={nodes}")],
            (_, Setting::EventTimeout(seconds)) => vec!["-w".into(), format!("watch-event={seconds}")],
            (_, Setting::Mappings(_)) => Vec::new(),
        });
        ["-N".into(), "--pid-file".into(), pid_file].into_iter().chain(own).chain(set).collect()
    }
}

fn oxenstored(dir: &Path, settings: &[Setting]) -> Vec<String> {
    let config = dir.join("oxenstored.conf");
    let mut text = "pid-file = /run/xenstored/pid\n\
                    xenstored-kva = /proc/xen/xsd_kva\nxenstored-port = /proc/xen/xsd_port\n"
        .to_owned();
    for setting in settings {
        // Its events do not expire.
        if let Setting::Nodes(nodes) = setting {
            text += &format!("quota-maxentity = {nodes}\n");
        }
    }
    fs::write(&config, text).expect("a file in the host's directory");
    let config = config.display().to_string();
    ["--no-fork".into(), "--no-access-log".into(), "--config-file".into(), config].into()
}
