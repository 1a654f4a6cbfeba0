"""A plugin of pytest that makes pyxs's own tests run where there is no Xen.

They skip themselves unless they see a control domain, and they use both the daemon's socket and the kernel's device.
Here the process is told that this is a control domain, and the device leads to the socket as well. `XENSTORED_PATH`
names the socket.
"""

import os
import socket

DEVICES = ("/dev/xen/xenbus", "/proc/xen/xenbus")

_exists = os.path.exists
_open = os.open


def exists(path):
    return path in DEVICES or path == "/dev/xen" or _exists(path)


def open_device(path, *rest, **named):
    if path not in DEVICES:
        return _open(path, *rest, **named)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.connect(os.environ["XENSTORED_PATH"])
        return stream.detach()


os.path.exists = exists
os.open = open_device

from pyxs import Client  # noqa: E402 (what it sees when it is loaded counts)

Client.SU = True
