//! Log lines to `/dev/log`, for hosts whose system log is not systemd's journal.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Zoned;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Where the system log listens.
pub const DEFAULT_SYSLOG_SOCKET: &str = "/dev/log";

/// Facility `LOG_DAEMON`, as in the first number of a message.
const FACILITY: u8 = 3 << 3;

/// Longest line that is sent; the rest of a longer one is cut.
const LINE_MAX: usize = 2000;

/// Sends what is written to the system log, one message a line.
///
/// The socket is looked for anew for each message: the log service may come later than the daemon, or restart.
#[derive(Debug, Clone)]
pub struct Syslog {
    socket: PathBuf,
}

impl Syslog {
    /// A sender to this socket, [`DEFAULT_SYSLOG_SOCKET`] outside of tests.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Sends each line of the text with the priority of this level. What cannot be sent is lost.
    pub fn send(&self, level: Level, text: &str) {
        let Ok(socket) = UnixDatagram::unbound() else {
            return;
        };
        // A log service that hangs must not stop the store.
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        let header = header(level, SystemTime::now());
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let _ = socket.send_to(format!("{header}{}", cut(line)).as_bytes(), &self.socket);
        }
    }
}

/// At most [`LINE_MAX`] bytes of the line, whole characters.
fn cut(line: &str) -> &str {
    let end = (0..=LINE_MAX.min(line.len())).rev().find(|&end| line.is_char_boundary(end));
    &line[..end.unwrap_or_default()]
}

/// `<priority>Mon dd hh:mm:ss xenstored-rs[pid]: `
fn header(level: Level, now: SystemTime) -> String {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    let time = Zoned::try_from(now).map(|now| now.strftime("%b %e %H:%M:%S").to_string()).unwrap_or_default();
    format!("<{}>{time} xenstored-rs[{}]: ", FACILITY | severity, std::process::id())
}

/// A writer for one event.
#[derive(Debug)]
pub struct SyslogWriter<'a> {
    syslog: &'a Syslog,
    level: Level,
}

impl io::Write for SyslogWriter<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.syslog.send(self.level, &String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = SyslogWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        SyslogWriter { syslog: self, level: Level::INFO }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        SyslogWriter { syslog: self, level: *metadata.level() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    fn listener(dir: &tempfile::TempDir) -> (UnixDatagram, Syslog) {
        let path = dir.path().join("log");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (socket, Syslog::new(path))
    }

    #[test]
    fn each_line_is_a_message_with_priority_time_and_pid() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, syslog) = listener(&dir);
        syslog.send(Level::ERROR, "panic\n\n   0: frame\n");
        let tag = format!(" xenstored-rs[{}]: ", std::process::id());
        let first = received(&socket);
        assert!(first.starts_with("<27>") && first.ends_with(&format!("{tag}panic")), "{first}");
        assert_eq!(first.len(), "<27>Jan 31 14:05:09".len() + tag.len() + "panic".len());
        assert!(received(&socket).ends_with(&format!("{tag}   0: frame")));
    }

    #[test]
    fn levels_have_the_priorities_of_the_daemon_facility() {
        for (level, priority) in [(Level::WARN, "<28>"), (Level::INFO, "<30>"), (Level::DEBUG, "<31>")] {
            assert!(header(level, SystemTime::now()).starts_with(priority));
        }
    }

    #[test]
    fn long_lines_are_cut_at_a_character() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, syslog) = listener(&dir);
        syslog.send(Level::INFO, &"é".repeat(1500));
        let message = received(&socket);
        assert_eq!(message.matches('é').count(), 1000);
    }

    #[test]
    fn without_a_log_service_nothing_happens() {
        Syslog::new("/nonexistent/log").send(Level::ERROR, "lost");
    }
}
