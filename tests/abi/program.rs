//! The test programs: compiled once, run on either library.

use crate::compiler::{compile, compiler, include, source};
use crate::library::Library;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use xenstored_tests::tools::Outcome;

/// Seconds after which a program that hangs is ended, where nothing else is said.
const PATIENCE: u64 = 120;

/// What a program is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Built {
    /// Debian's headers and library, as every program of the field.
    Debian,
    /// Our headers and library: for what Debian has not.
    Ours,
    /// Our headers and static library.
    Static,
    /// As [`Self::Debian`], with the compiler's checks of addresses, leaks and undefined behaviour.
    Checked,
    /// As [`Self::Debian`], with the compiler's checks for races.
    Raced,
}

/// A program, compiled.
///
/// # Panics
/// When it does not compile without a warning.
pub(crate) fn program(name: &'static str, built: Built) -> PathBuf {
    static PROGRAMS: Mutex<BTreeMap<(&str, Built), PathBuf>> = Mutex::new(BTreeMap::new());
    let mut programs = PROGRAMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let made = programs.entry((name, built)).or_insert_with(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abi-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for programs");
        let path = dir.join(format!("{name}-{built:?}"));
        let mut command = compiler("gnu11");
        command.args(["-O1", "-g", "-pthread"]);
        match built {
            Built::Debian => {}
            Built::Static => drop(command.arg("-I").arg(include())),
            Built::Ours => drop(command.arg("-I").arg(include()).arg("-L").arg(Library::Ours.dir())),
            Built::Checked => drop(command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])),
            Built::Raced => {
                // The library finds the names in the program.
                command.args(["-fsanitize=thread", "-fno-builtin", "-rdynamic"]).arg(source("sanitized.c"));
            }
        }
        command.arg(source(&format!("{name}.c"))).arg("-o").arg(&path);
        if built == Built::Static {
            // Each file is looked at by its name, not as C.
            command.args(["-x", "none"]).arg(Library::Ours.dir().join("libxenstore.a"));
            command.args(["-l:libxentoolcore.so.1", "-lgcc_s", "-lpthread", "-ldl"]);
        } else {
            command.arg("-lxenstore");
        }
        compile(&mut command);
        path
    });
    made.clone()
}

/// How a program is run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    name: &'static str,
    built: Built,
    library: Library,
    args: Vec<String>,
    socket: Option<PathBuf>,
    wrapper: Vec<String>,
    patience: u64,
}

impl Run {
    /// A program on a library, without a socket.
    pub(crate) fn new(name: &'static str, library: Library) -> Self {
        Self {
            name,
            built: Built::Debian,
            library,
            args: Vec::new(),
            socket: None,
            wrapper: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// The program is built with our headers and library.
    pub(crate) fn built(mut self, built: Built) -> Self {
        self.built = built;
        self
    }

    /// The socket that it finds in `XENSTORED_PATH`.
    pub(crate) fn at(mut self, socket: impl Into<PathBuf>) -> Self {
        self.socket = Some(socket.into());
        self
    }

    /// Adds a number to the arguments.
    pub(crate) fn number(mut self, number: impl Into<u64>) -> Self {
        self.args.push(number.into().to_string());
        self
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Runs it under another program, such as valgrind.
    pub(crate) fn under(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|&word| word.into()).collect();
        self
    }

    /// Sets after how many seconds it is taken to hang.
    pub(crate) fn patience(mut self, seconds: u64) -> Self {
        self.patience = seconds;
        self
    }

    /// The command.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=5").arg(self.patience.to_string());
        command.args(&self.wrapper).arg(program(self.name, self.built));
        command.args(&self.args).env_remove("XENSTORED_PATH").env_remove("XENSTORED_RUNDIR");
        if let Some(socket) = &self.socket {
            command.env("XENSTORED_PATH", socket);
        }
        self.library.load_into(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub(crate) fn outcome(&self) -> Outcome {
        self.command().output().unwrap_or_else(|e| panic!("{} cannot start: {e}", self.name)).into()
    }

    /// What it printed.
    ///
    /// # Panics
    /// When it does not end with success.
    pub(crate) fn output(&self) -> String {
        succeeded(self.name, self.library, &self.outcome())
    }

    /// Starts it and runs it up to the line where it waits for the test.
    pub(crate) fn start(&self) -> Waiting {
        let mut child = self.command().stdin(Stdio::piped()).spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut text = String::new();
        let mut begin = 0;
        // Up to a line for the test, or to the end where there is none.
        while !text[begin..].starts_with("> ") {
            begin = text.len();
            if out.read_line(&mut text).expect("its output is text") == 0 {
                break;
            }
        }
        let waiting = Waiting { name: self.name, library: self.library, child, out, text };
        if begin == waiting.text.len() {
            panic!("{} ended too soon:\n{}", self.name, waiting.finish());
        }
        waiting
    }
}

/// A program that waits for the test to do its part.
#[derive(Debug)]
pub(crate) struct Waiting {
    name: &'static str,
    library: Library,
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    text: String,
}

impl Waiting {
    /// Lets it go on, to its end.
    ///
    /// # Panics
    /// When it does not end with success.
    pub(crate) fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        self.out.read_to_string(&mut self.text).expect("its output is text");
        let mut outcome: Outcome = self.child.wait_with_output().expect("a child can be waited for").into();
        outcome.stdout = self.text.into_bytes();
        succeeded(self.name, self.library, &outcome)
    }
}

fn succeeded(name: &str, library: Library, outcome: &Outcome) -> String {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status, 0, "{name} on {library:?}:\n{text}{errors}");
    assert_eq!(errors, "", "{name} on {library:?}:\n{text}");
    text
}

/// A library's file that is loaded into a program, by `ldd`.
pub(crate) fn loaded(program: &Path, library: Library) -> String {
    let mut command = Command::new("ldd");
    library.load_into(&mut command);
    let output = command.arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("libxenstore.so.4"));
    line.and_then(|line| line.split_whitespace().nth(2)).unwrap_or_else(|| panic!("{text}")).to_owned()
}
