#!/bin/sh
# What `make deb-test` looks at in a booted Debian with the package: /test/booted.sh STEP... There is no hypervisor, so the
# script of xen-utils-common is shown the files of one, and the unit has a drop-in that has the daemon serve sockets only.
set -eu

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
ok() { printf 'ok: %s\n' "$*"; }

unit=xenstored-rs.service
control=/usr/lib/xen-4.17/bin/xenstore-control

property() { systemctl show --property "$1" --value "$unit"; }

is() {
    got=$(eval "$1" 2>&1) || true
    [ "$got" = "$2" ] || fail "$1: expected '$2', got '$got'"
    ok "$1: $2"
}

refused() {
    if got=$(eval "$1" 2>&1); then
        fail "$1 should have been refused: $got"
    fi
    ok "refused: $1"
}

# Until a condition holds, for a minute at most.
await() {
    tries=0
    until eval "$1"; do
        tries=$((tries + 1))
        [ "$tries" -le 600 ] || fail "waited too long for: $1"
        sleep 0.1
    done
}

# The process that serves, and that the store still has what was put into it.
serves() {
    is 'property MainPID' "$1"
    is 'xenstore-read /kept' value
}

# The script started the unit; it is shut in as the unit says, and does its work.
step_started() {
    await '[ "$(systemctl show --property ActiveState --value xen.service)" != activating ]'
    is 'property ActiveState' active
    is 'property StatusText' 'serving sockets'
    pid=$(property MainPID)
    is 'cat /run/xenstore.pid' "$pid"
    is 'stat -c %a /run/xenstored/socket' 600
    is "awk '/^NoNewPrivs/ {print \$2}' /proc/$pid/status" 1
    is "awk '/^Seccomp:/ {print \$2}' /proc/$pid/status" 2
    is "awk '/^CapBnd/ {print \$2}' /proc/$pid/status" 0000000000000000
    is 'property OOMScoreAdjust' -1000
    for user in xen.service xendomains.service libvirtd.service; do
        property Before | grep -qw "$user" || fail "$user may start before the store, and be stopped after it"
    done
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe") in
        /usr/lib/xen-*/bin/*xenstored) fail "$(readlink "$process/exe") runs too" ;;
        esac
    done
    ok 'no other daemon runs'
    xenstore-write /kept value
    $control logfile trace || fail 'no trace in the library directory'
    $control logfile /var/log/xen/trace || fail 'no trace in the log directory'
    xenstore-read /kept >/dev/null
    grep -q 'READ (/kept )' /var/log/xen/trace || fail 'the trace is empty'
    ok 'traces are written'
    refused "$control logfile /etc/trace"
    # The administrator's files, not the package's.
    $control log off
    rm /var/lib/xen/xenstore/trace /var/log/xen/trace
    serves "$pid"
    systemd-analyze security --no-pager "$unit" | tail -n 1
}

# Nothing that packages do ends a store that guests live on.
step_kept() {
    pid=$(property MainPID)
    systemctl restart xen.service || true
    serves "$pid"
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install --reinstall /test/*.deb >/dev/null 2>&1 || fail 'reinstalling'
    serves "$pid"
    DEBIAN_FRONTEND=noninteractive apt-get -q -y remove xenstored-rs >/test/removal 2>&1 || fail 'removing'
    grep -q 'the store keeps running' /test/removal || fail 'nothing is said of the store that runs'
    is "kill -0 $pid && xenstore-read /kept" value
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install /test/xenstored-rs_*.deb >/dev/null 2>&1 || fail 'installing'
    is "kill -0 $pid && xenstore-read /kept" value
    systemctl daemon-reload
    serves "$pid"
}

# The unit has another process than before, which has the store.
follows() {
    await '[ "$(property ActiveState)" = active ]'
    [ "$(property MainPID)" != "$1" ] || fail 'it is the same process'
    is 'xenstore-read /kept' value
}

# A daemon that dies is followed by one that has its store; so is one that is restarted, or stopped and started.
step_died() {
    pid=$(property MainPID)
    kill -KILL "$pid"
    await "[ \"\$(property MainPID)\" != $pid ]"
    follows "$pid"
    is 'property NRestarts' 1
    pid=$(property MainPID)
    systemctl restart "$unit" || fail 'restarting'
    follows "$pid"
    pid=$(property MainPID)
    systemctl stop "$unit" || fail 'stopping'
    systemctl start "$unit" || fail 'starting'
    follows "$pid"
}

# Another store has the socket: the unit leaves it alone, and gives up, unless it gets all that the other one has.
step_occupied() {
    systemctl stop "$unit"
    rm -rf /run/xenstored
    XENSTORED_RUNDIR=/run/xenstored /usr/sbin/xenstored-rs -D --keep 0
    other=$(cat /run/xenstored/xenstored.pid)
    xenstore-write /kept value
    refused "systemctl start $unit"
    is 'property ActiveState' failed
    is "kill -0 $other && xenstore-read /kept" value
    journalctl --unit "$unit" --no-pager --output cat | grep -q 'does not leave its place' || fail 'nothing is said'
    kill "$other"
    # One whose keeper holds what it has leaves its place to the unit.
    await "! kill -0 $other 2>/dev/null"
    systemctl reset-failed "$unit"
    rm -rf /run/xenstored
    # In a service as others have theirs, and with the unit's view of /proc: a container shows two boot ids.
    systemd-run --quiet --unit=other --property=RemainAfterExit=yes --property=KillMode=process \
        --property=ProtectProc=invisible /usr/sbin/xenstored-rs -D -N --pid-file /run/other.pid
    await 'xenstore-write /kept value'
    other=$(cat /run/other.pid)
    systemctl start "$unit" || fail 'starting'
    follows "$other"
    await "! kill -0 $other 2>/dev/null"
}

# /etc/default/xen names another daemon: that is what is started, and ours is not.
step_chosen() {
    await '[ "$(systemctl show --property ActiveState --value xen.service)" != activating ]'
    is 'property ActiveState' inactive
    is 'cat /run/chosen' '--pid-file /run/xenstore.pid'
}

run() {
    for step in "$@"; do
        printf '\n== booted: %s\n' "$step"
        "step_$step"
    done
}

# In a process of its own, which ends at the first failure whatever comes behind it.
if [ "${INSIDE:-}" = "" ]; then
    status=0
    INSIDE=yes "$0" "$@" >/test/booted.log 2>&1 || status=$?
    echo "$status" >/test/booted.status
    exec systemctl poweroff
fi
run "$@"
