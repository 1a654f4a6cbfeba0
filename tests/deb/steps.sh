#!/bin/sh
# Steps of `make deb-test` inside a fresh Debian: /test/steps.sh STEP. /test has the packages and what they are tried
# with; each step fails at the first thing that is not as it should be.
set -eu

xen=/usr/lib/xen-4.17
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
# Whatever of Debian links libxenstore, with what a C program is built with.
debians="xenstore-utils xen-utils-common xen-utils-4.17 libxenmisc4.17 qemu-system-xen libvirt-daemon
    libvirt-daemon-driver-xen"
ours="xenstored-rs libxenstore4-rs libxenstore-rs-dev"

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
ok() { printf 'ok: %s\n' "$*"; }

apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@"
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# All of them are installed, and nothing is broken.
installed() {
    for package in "$@"; do
        is_installed "$package" || fail "$package is not installed"
    done
    apt-get check >/dev/null || fail 'broken dependencies'
    [ -z "$(dpkg --audit)" ] || fail "dpkg --audit: $(dpkg --audit)"
    ok "installed: $(echo "$@" | tr -s ' \n' ' ')"
}

# All that the system keeps, by kind and name. What every call of apt and dpkg changes is left out.
list_files() {
    find / -xdev \( -path /test -o -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \
        -o -path /var/cache -o -path /var/log -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /root \
        -o -path /var/lib/systemd -o -path /etc/ld.so.cache -o -path /var/tmp -o -path /var/backups \) -prune -o -printf '%y %p %l\n' | sort
}

# A command's output must be the second argument.
gives() {
    got=$(eval "$1" 2>&1) || fail "$1: status $?: $got"
    [ "$got" = "$2" ] || fail "$1: expected '$2', got '$got'"
    ok "$1"
}

refused() {
    if got=$(eval "$1" 2>&1); then
        fail "$1 should have been refused: $got"
    fi
    ok "refused: $1"
}

# A daemon with sockets only, for the tools that follow.
start_store() {
    XENSTORED_RUNDIR=$(mktemp -d)
    XENSTORED_PATH=$XENSTORED_RUNDIR/socket
    # All symbols are looked up when a program starts.
    LD_BIND_NOW=1
    export XENSTORED_RUNDIR XENSTORED_PATH LD_BIND_NOW
    /test/xenstored-rs -D --keep 0 || fail 'the daemon does not start'
}

stop_store() {
    kill "$(cat "$XENSTORED_RUNDIR/xenstored.pid")"
    while [ -e "$XENSTORED_RUNDIR/xenstored.pid" ]; do sleep 0.05; done
    rm -rf "$XENSTORED_RUNDIR"
    unset XENSTORED_RUNDIR XENSTORED_PATH LD_BIND_NOW
}

# Debian's tools, over whatever library is installed.
use_tools() {
    start_store
    gives 'xenstore-write /vm/name guest /vm/memory 512' ''
    gives 'xenstore-read /vm/name' guest
    gives 'xenstore-list /vm | sort | tr "\n" " "' 'memory name '
    gives 'xenstore-chmod /vm n0 r1' ''
    gives 'xenstore-ls -fp /vm' '/vm/memory = "512"   (n0)
/vm/name = "guest"   (n0)'
    gives 'xenstore-exists /vm && echo yes' yes
    gives 'xenstore-rm /vm/name' ''
    gives 'xenstore-exists /vm/name || echo no' no
    gives 'xenstore-watch -n 1 /vm' /vm
    gives "$xen/bin/xenstore-control check" OK
    gives "$xen/bin/test-xenstore | wc -l" 12
    gives "PYTHONPATH=$xen/lib/python python3 -c 'from xen.lowlevel.xs import xs; print(xs().read(\"\", \"/vm/memory\"))'" \
        "b'512'"
    stop_store
}

# Every program and library that links libxenstore finds all its symbols, at the versions that it asks for.
link_everything() {
    count=0
    for package in $debians; do
        for file in $(dpkg -L "$package"); do
            { [ -f "$file" ] && readelf -d "$file" 2>/dev/null | grep -q 'NEEDED.*libxenstore.so.4'; } || continue
            problems=$(LD_BIND_NOW=1 LD_LIBRARY_PATH="$xen/lib" ldd -r "$file" 2>&1 |
                grep -E 'xs_|VERS_|xenstore.*not found|no version information' || true)
            [ -z "$problems" ] || fail "$file: $problems"
            count=$((count + 1))
        done
    done
    [ "$count" -ge 25 ] || fail "only $count files link libxenstore"
    ok "$count files link libxenstore"
    gives "LD_BIND_NOW=1 /usr/libexec/xen-qemu-system-i386 --version | head -n 1 | cut -d ' ' -f 1-3" \
        'QEMU emulator version'
    driver=$(dpkg -L libvirt-daemon-driver-xen | grep 'driver.*libxl.so$')
    gives "LD_BIND_NOW=1 python3 -c 'import ctypes; ctypes.CDLL(\"$driver\", ctypes.RTLD_GLOBAL)' && echo loaded" loaded
}

# Programs that go no further than to look for a hypervisor, and what they say then.
no_hypervisor() {
    start_store
    for command in 'xl list' 'xl info' 'xentop -b -i 1' "$xen/bin/xenconsole 1" "$xen/bin/xen-lowmemd" \
        "$xen/bin/xen-init-dom0" "$xen/bin/xenpaging -d 1 -f /none" "$xen/bin/xen-hptool cpu-offline 1" \
        "$xen/bin/init-xenstore-domain --kernel /none --memory 8" \
        '/usr/libexec/xen-qemu-system-i386 -M xenpv -xen-domid 0 -xen-attach -nographic -monitor none -serial none'
    do
        printf '%s: ' "$command"
        status=0
        said=$(timeout 60 $command 2>&1) || status=$?
        printf '%s %s\n' "$status" "$said"
    done
    stop_store
}

# A C program is built by what pkg-config says, dynamically and statically, and speaks to the daemon.
build_program() {
    gives 'cc -std=c99 -Wall -Wextra -pedantic -Werror -o /tmp/dynamic /test/program.c $(pkg-config --cflags --libs xenstore)' ''
    gives "ldd /tmp/dynamic | grep -c '$libdir/libxenstore.so.4\|/lib/.*/libxenstore.so.4'" 1
    gives 'c++ -x c++ -Wall -Wextra -Werror -o /tmp/cpp /test/program.c $(pkg-config --cflags --libs xenstore)' ''
    gives "cc -o /tmp/static /test/program.c \$(pkg-config --static --cflags --libs xenstore |
        sed s/-lxenstore/-l:libxenstore.a/)" ''
    gives 'ldd /tmp/static | grep libxenstore || echo none' none
    start_store
    for program in /tmp/dynamic /tmp/cpp /tmp/static; do
        gives "$program" 'value
/program/watched token'
    done
    stop_store
    rm -f /tmp/dynamic /tmp/cpp /tmp/static
}

step_debian() {
    say "Debian's own packages"
    apt_get update >/dev/null
    apt_get install $debians gcc g++ libc6-dev pkg-config binutils >/dev/null
    installed $debians libxenstore4
    list_files >/test/files.before
    use_tools
    no_hypervisor >/test/no_hypervisor.debian
}

step_install() {
    say 'ours in place of libxenstore4'
    apt_get install /test/*.deb
    installed $debians $ours
    ! is_installed libxenstore4 || fail 'libxenstore4 is still there'
    [ ! -e /etc/systemd/system/multi-user.target.wants/xenstored-rs.service ] || fail 'the unit was enabled'
    link_everything
    use_tools
    no_hypervisor >/test/no_hypervisor.ours
    diff /test/no_hypervisor.debian /test/no_hypervisor.ours || fail 'programs say something else'
    ok "as with Debian's library:"
    cut -c 1-120 /test/no_hypervisor.ours
    build_program
    gives 'ldd /usr/sbin/xenstored-rs | grep systemd || echo none' none
    gives 'xenstored-rs --version | cut -d " " -f 1' xenstored-rs
    gives 'man -w xenstored-rs >/dev/null 2>&1 || ls /usr/share/man/man8/xenstored-rs.8.gz' \
        /usr/share/man/man8/xenstored-rs.8.gz
}

step_upgrade() {
    say 'the same again, as an upgrade'
    apt_get install --reinstall /test/*.deb >/dev/null
    installed $debians $ours
    use_tools
}

step_back() {
    say "back to Debian's library, nothing of ours left"
    apt_get install libxenstore4
    installed $debians libxenstore4 xenstored-rs
    ! is_installed libxenstore4-rs || fail 'libxenstore4-rs is still there'
    # The others went with the exchange, and apt knows nothing of what has never been in an archive.
    apt_get purge xenstored-rs
    for package in $ours; do
        [ -z "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" ] || fail "dpkg remembers $package"
    done
    list_files >/test/files.after
    diff /test/files.before /test/files.after || fail 'files are left or lost'
    ok 'the same files as before'
    use_tools
}

"step_$1"
