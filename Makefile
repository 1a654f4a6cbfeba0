# Each target does its own set-up. See README.md.

.PHONY: help setup run test peers bench bench-lib lib fuzz miri valgrind kill-loop xen deb deb-test check clean

help:
	@echo 'make run     build the daemon, show it at work on a simulated host with guests, keep serving'
	@echo '             (ONCE=1: end after the show)'
	@echo 'make test    all tests, on the real binary beside the peers'
	@echo 'make peers   the tests of guests on C xenstored and oxenstored, against the lists of what these fail; PEER=c for one'
	@echo 'make bench   speed beside the peers, of the daemon and of the C library; ARGS="--quick" for a short one'
	@echo 'make bench-lib  the C library alone: CPU time of the program that calls it'
	@echo 'make lib     the C library libxenstore, into target/lib'
	@echo 'make fuzz    fuzz targets in turn; TARGET=recovery for one, SECONDS=3600 for longer,'
	@echo '             INPUTS=100000 for so many at most'
	@echo 'make kill-loop  guests and clients lose nothing while the daemon is killed; ROUNDS=2000'
	@echo 'make miri    unit tests in the interpreter that sees undefined behaviour (nightly toolchain with Miri)'
	@echo 'make valgrind  memcheck over unit tests, and over the daemon with guests on a simulated host'
	@echo 'make xen     the guests'"'"' tests on a real Xen, in QEMU; ARGS=all for the long ones too, ARGS=linux, ARGS=crowd'
	@echo 'make deb     Debian packages into target/deb/'
	@echo 'make deb-test  those packages in a fresh Debian 12 (as root)'
	@echo 'make check   formatting and lints'
	@echo 'make clean   remove what was built'

setup:
	@scripts/setup

run: setup
	@scripts/run

test: setup
	@scripts/test

peers: setup
	@scripts/peers $(PEER)

bench: setup
	@scripts/bench $(ARGS)
	@scripts/bench-lib

bench-lib: setup
	@scripts/bench-lib $(ARGS)

lib: setup
	@scripts/lib

fuzz: setup
	@scripts/fuzz "$(TARGET)" "$(SECONDS)" $(INPUTS)

kill-loop: setup
	@scripts/kill-loop $(ROUNDS)

miri: setup
	@scripts/miri

valgrind: setup
	@scripts/valgrind

xen: setup
	@scripts/xen $(ARGS)

deb:
	@scripts/deb

deb-test: deb
	@scripts/deb-test

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p xen-rig --test on-xen -- -D warnings
	cd tests/xen/guest && cargo fmt --check && cargo clippy -- -D warnings

clean:
	cargo clean
