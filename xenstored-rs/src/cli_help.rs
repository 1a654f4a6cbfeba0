//! The texts of `--help` and `--version`.

/// The help text: every option with its meaning, ready to print.
#[must_use]
pub const fn help() -> &'static str {
    HELP
}

/// Name and version, one line.
#[must_use]
pub fn version() -> String {
    format!("xenstored-rs {}\n", env!("CARGO_PKG_VERSION"))
}

const HELP: &str = "\
Usage: xenstored-rs [OPTION]...
The xenstore daemon of a Xen host. Takes the options of the C xenstored.

Start:
  -D, --no-domain-init      sockets only: serve no domains, need no hypervisor
  -N, --no-fork             stay in the foreground; errors go to standard error
  -F, --pid-file FILE       pid file; if not given, xenstored.pid in
                            XENSTORED_RUNDIR if that is set, else
                            /var/run/xen/xenstored.pid
  -P, --output-pid          print the daemon's pid to standard output
  -V, --verbose             log more
  -H, --help                this text
      --version             name and version

Trace:
  -T, --trace-file FILE     append a trace of all requests to FILE; a relative
                            name is below /var/lib/xen/xenstore; SIGHUP opens it
                            again
      --trace-control +SW   trace SW too; with - instead of +, do not. SW is one
                            of: obj io wrl acc tdb (on at first: obj io)

Quotas of a domain (N = 0 means unlimited; the last one given counts):
  -Q, --quota NAME=N        set a quota. NAME is one of: nodes watches
                            outstanding memory transactions transaction-nodes
                            node-permissions path-max node-size
  -q, --quota-soft NAME=N   set a soft quota, which only warns. NAME: memory
  -E, --entry-nb N          same as --quota nodes=N
  -S, --entry-size N        same as --quota node-size=N
  -W, --watch-nb N          same as --quota watches=N
  -t, --transaction N       same as --quota transactions=N
  -A, --perm-nb N           same as --quota node-permissions=N
  -M, --path-max N          same as --quota path-max=N; above 2048, which is the
                            protocol's limit, 2048 is used

Behaviour:
  -w, --timeout watch-event=SEC
                            drop an event that a domain leaves waiting for SEC
                            seconds (20 if not given; 0 means never)
  -K, --keep-orphans        keep the nodes of a domain that is gone
      --master-domid N      domain that this daemon runs in (0)
      --priv-domid N        domain that may do everything (0)
      --event PORT          dom0's event channel port, in a domain of our own

Surviving its own death:
      --state-dir DIR       where the journal is (in the run directory)
      --no-journal          keep none: a death of the daemon loses the store
      --keep SEC            keep sockets for SEC seconds after a stop (60; 0
                            means never, event channels after a crash neither)
      --replace             where an xenstored-rs runs, have it leave its place
                            with all clients and guests
  -R, --no-recovery         begin with a fresh store, whatever is there
      --dump-journal FILE   print a log of a journal
      --check-state FILE    only see whether a daemon with these options can go
                            on with FILE: an image of a journal, its directory,
                            or a state_dump

Accepted without effect, for older start scripts:
  -I, --internal-db[=on|off]  the store is always kept in memory

Taking over, in the process of the daemon that executed this one:
  -U, --live-update         from the C daemon; other unknown options are passed
                            over then
      --live --restart      from oxenstored, with --config-file FILE as there

Environment:
  XENSTORED_RUNDIR          run directory (/var/run/xenstored)
  XENSTORED_PATH            socket (socket in the run directory)
  XENSTORED_LIBDIR          base of relative file names (/var/lib/xen/xenstore)
  NOTIFY_SOCKET             told when the daemon is ready (systemd, Type=notify)

Exit status: 0 after an orderly end, or if another daemon runs already; 1 if the
daemon cannot start; 2 if the command line is refused.
";
