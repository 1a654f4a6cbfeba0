//! The thread that receives in the background: its stack, in programs that leave it little.

use crate::alone::is_alone;
use crate::open;
use rstest::rstest;
use std::path::{Path, PathBuf};
use std::process::Command;
use xenstored_tests::process::anonymous_kib;
use xenstored_tests::{Backend, Daemon};

/// A C program that watches `/a` and takes the first event. Its threads have 1 MiB of storage each.
const PROGRAM: &str = r#"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct xs_handle;
struct xs_handle *xs_open(unsigned long flags);
void xs_close(struct xs_handle *h);
bool xs_watch(struct xs_handle *h, const char *path, const char *token);
char **xs_read_watch(struct xs_handle *h, unsigned int *num);
static __thread char storage[1024 * 1024];
int main(void)
{
    struct xs_handle *h = xs_open(0);
    unsigned int count;
    char **event;
    memset(storage, 1, sizeof storage);
    if (!h || !xs_watch(h, "/a", "t"))
        return 1;
    event = xs_read_watch(h, &count);
    if (!event)
        return 2;
    puts(event[0]);
    free(event);
    xs_close(h);
    return 0;
}
"#;

/// Links the program with this library, as the test has it.
fn program(dir: &Path) -> PathBuf {
    let source = dir.join("program.c");
    let program = dir.join("program");
    std::fs::write(&source, PROGRAM).unwrap();
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap();
    let library = built.join("libxenstore.a");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let profile = if built.ends_with("debug") { "dev".into() } else { built.file_name().unwrap().to_os_string() };
        let status = Command::new(cargo)
            .args(["rustc", "--quiet", "-p", "libxs-compat", "--lib", "--crate-type", "staticlib", "--target-dir"])
            .arg(built.parent().unwrap())
            .arg("--profile")
            .arg(profile)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.unwrap().success(), "the library does not build");
    }
    let mut compile = Command::new("cc");
    compile.arg("-o").arg(&program).arg(&source).arg(&library);
    let status = compile.args(["-lxentoolcore", "-lgcc_s", "-lpthread", "-ldl"]).status();
    assert!(status.unwrap().success(), "the program does not build");
    program
}

#[rstest]
#[case::small("64")]
#[case::usual("8192")]
#[case::unlimited("unlimited")]
fn its_stack_holds_whatever_the_program_s_is(#[case] kib: &str) {
    let daemon = Daemon::start(Backend::Ours);
    let program = program(daemon.dir());
    let output = Command::new("sh")
        .args(["-c", r#"ulimit -s "$1" && exec timeout 60 "$2""#, "sh", kib])
        .arg(program)
        .env("XENSTORED_PATH", daemon.socket())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"/a\n"[..]), "{output:?}");
}

#[test]
fn it_takes_little_memory() {
    if !is_alone("reader::it_takes_little_memory") {
        return;
    }
    let daemon = Daemon::start(Backend::Ours);
    let handles: Vec<_> = (0..51).map(|_| open(&daemon.socket())).collect();
    let watch = |handle: &crate::Handle| {
        handle.watch("/a", "t").unwrap();
        handle.wait().unwrap();
    };
    watch(&handles[0]);
    let before = anonymous_kib(std::process::id());
    handles[1..].iter().for_each(watch);
    let each = (anonymous_kib(std::process::id()) - before) / 50;
    assert!(each < 256, "{each} KiB a handle");
}
