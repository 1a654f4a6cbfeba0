//! The device through which a guest reaches its ring, played by a terminal: what is written to one end is read at the
//! other.

use crate::closing::close_while_inside;
use crate::open;
use nix::errno::Errno;
use nix::pty::{OpenptyResult, openpty};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::ttyname;
use std::fs::File;
use std::io::{Read, Write};
use std::thread;
use xenstore::capi::xs_get_features_supported;
use xenstore_wire::{Decoder, Header, Op, put_event, put_message};

/// The kernel's side of the device.
struct Kernel {
    line: File,
    decoder: Decoder,
}

impl Kernel {
    /// The next request. It must have come by a write of its own: the kernel looks at one message a write.
    fn request(&mut self) -> (Header, Vec<u8>) {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next_message().expect("a message") {
                return (message.header, message.payload.to_vec());
            }
            let count = self.line.read(&mut bytes).expect("the client goes on");
            self.decoder.push(&bytes[..count]);
        }
    }

    fn reply(&mut self, request: &Header, payload: &[u8]) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, request.op, request.req_id, request.tx_id, payload);
        self.line.write_all(&bytes).expect("the client goes on");
    }
}

fn device() -> (std::path::PathBuf, Kernel, OpenptyResult) {
    let pty = openpty(None, None).expect("a terminal");
    let mut settings = tcgetattr(&pty.slave).expect("a terminal has settings");
    cfmakeraw(&mut settings);
    tcsetattr(&pty.slave, SetArg::TCSANOW, &settings).expect("settings can be set");
    let path = ttyname(&pty.slave).expect("a terminal has a name");
    let line = File::from(pty.master.try_clone().expect("a second descriptor"));
    (path, Kernel { line, decoder: Decoder::new() }, pty)
}

#[test]
fn a_device_takes_requests_and_gives_answers_and_events() {
    let (path, mut kernel, _pty) = device();
    let client = thread::spawn(move || {
        let handle = open(&path);
        handle.watch("device", "t").unwrap();
        thread::scope(|scope| {
            // One waits inside the library while the other asks.
            let waiting = scope.spawn(|| handle.wait());
            assert_eq!(handle.read("name").unwrap(), b"value");
            assert_eq!(waiting.join().unwrap().unwrap(), "device");
        });
    });
    let (watch, payload) = kernel.request();
    assert_eq!((watch.op, payload.as_slice()), (Op::Watch.number(), &b"device\0t\0"[..]));
    kernel.reply(&watch, b"OK\0");
    let (read, _) = kernel.request();
    kernel.reply(&read, b"value");
    let mut event = Vec::new();
    put_event(&mut event, b"device", b"t");
    kernel.line.write_all(&event).unwrap();
    client.join().unwrap();
}

/// Nothing that comes from the kernel would wake them.
#[test]
fn whoever_waits_for_a_device_is_woken_by_its_end() {
    let (path, _kernel, _pty) = device();
    let told = close_while_inside(
        open(&path),
        &[|handle| handle.wait().map(drop), |handle| handle.read("/a").map(drop), |handle| handle.wait().map(drop)],
    );
    assert_eq!(told, [Err(Errno::EINVAL), Err(Errno::EBADF), Err(Errno::EINVAL)]);
}

/// No second message goes out behind the first before that has its answer.
#[test]
fn a_device_gets_one_message_at_a_time() {
    let (path, mut kernel, _pty) = device();
    let client = thread::spawn(move || {
        let handle = open(&path);
        let mut features = 0;
        // SAFETY: all pointers are valid.
        let told = unsafe { xs_get_features_supported(handle.0, &raw mut features) };
        assert_eq!((told, features), (true, 7));
        let mut count = 0;
        // SAFETY: all pointers are valid.
        let names = unsafe { xenstore::capi::xs_directory(handle.0, 0, c"d".as_ptr(), &raw mut count) };
        assert!(!names.is_null());
        // SAFETY: the block is ours.
        unsafe { libc::free(names.cast()) };
        count
    });
    let (ask, payload) = kernel.request();
    assert_eq!((ask.op, payload.len(), kernel.decoder.pending()), (Op::GetFeature.number(), 0, 0));
    kernel.reply(&ask, b"7\0");
    let (directory, _) = kernel.request();
    kernel.reply(&Header { op: Op::Error.number(), ..directory }, b"E2BIG\0");
    for (part, end) in [(0..400, false), (400..800, true)] {
        let (ask, payload) = kernel.request();
        assert_eq!((ask.op, kernel.decoder.pending()), (Op::DirectoryPart.number(), 0));
        assert_eq!(payload, format!("d\0{}\0", part.start * 8).as_bytes());
        let names: String = part.map(|n| format!("{n:07}\0")).collect();
        kernel.reply(&ask, format!("7\0{names}{}", if end { "\0" } else { "" }).as_bytes());
    }
    assert_eq!(client.join().unwrap(), 800);
}
