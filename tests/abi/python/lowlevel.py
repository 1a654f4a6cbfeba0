"""Xen's own binding of libxenstore for Python, call by call. What is printed must not depend on the library."""

import os
import select
import sys

from xen.lowlevel.xs import Error, xs


def tell(what, call, *args):
    try:
        print(what, repr(call(*args)))
    except Error as error:
        print(what, "fails:", error.args)


def main():
    h = xs()
    tell("write", h.write, "", "/py/a", "value")
    tell("read", h.read, "", "/py/a")
    tell("read what is missing", h.read, "", "/py/none")
    tell("read a bad path", h.read, "", "//")
    tell("mkdir", h.mkdir, "", "/py/b")
    tell("ls", h.ls, "", "/py")
    tell("ls of nothing", h.ls, "", "/py/b")
    tell("ls what is missing", h.ls, "", "/py/none")
    tell("rm", h.rm, "", "/py/b")
    tell("rm without a parent", h.rm, "", "/py/x/y")
    tell("permissions", h.get_permissions, "", "/py/a")
    tell("set them", h.set_permissions, "", "/py/a", [{"dom": 0, "read": True}, {"dom": 7, "read": True, "write": True}])
    tell("permissions", h.get_permissions, "", "/py/a")
    t = h.transaction_start()
    tell("write inside", h.write, t, "/py/a", "inside")
    tell("read outside", h.read, "", "/py/a")
    tell("abort", h.transaction_end, t, True)
    t = h.transaction_start()
    tell("read inside", h.read, t, "/py/a")
    xs().write("", "/py/a", "other")
    tell("write inside", h.write, t, "/py/a", "inside")
    tell("end", h.transaction_end, t)
    tell("read", h.read, "", "/py/a")
    token = object()
    h.watch("/py", token)
    event = h.read_watch()
    print("event", event[0], event[1] is token)
    h.write("", "/py/c", "")
    print("readable", select.select([h.fileno()], [], [], 20)[0] == [h.fileno()])
    event = h.read_watch()
    print("event", event[0], event[1] is token)
    tell("check", h.check_watch)
    tell("unwatch", h.unwatch, "/py", token)
    tell("domain path", h.get_domain_path, 7)
    tell("introduce", h.introduce_domain, 4711, 1, 1)
    tell("release", h.release_domain, 4711)
    tell("resume", h.resume_domain, 4711)
    tell("set target", h.set_target, 4711, 1)
    for i in range(5000):
        h.write("", "/py/many/%d" % i, "")
    many = h.ls("", "/py/many")
    print("many", len(many), sorted(many) == sorted(str(i) for i in range(5000)))
    h.close()
    tell("closed", h.read, "", "/py/a")
    sys.stdout.flush()
    # Without the interpreter's own end.
    os._exit(0)


main()
