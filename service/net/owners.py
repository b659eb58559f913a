"""Both ends of a TCP connection within this machine -> whose the other end is, by what Linux says.

The kernel is asked about this one connection over netlink (``NETLINK_SOCK_DIAG``). That takes a tenth of a millisecond; to read
its tables of all connections takes a hundred times as long, and holds up the event loop.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from typing import NamedTuple

End = tuple[str, int]
_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST, _ERROR = 1, 2
_HEAD = struct.Struct("=IHHII")
"""of a message: its length, its type, flags, number, sender"""
_WANTED = struct.Struct("=BBBxI")
"""family, protocol, what else to tell, states"""
_PORTS = struct.Struct("!HH")
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""on any interface, whatever its cookie"""
_ID_AT = _HEAD.size + 4
_ID_SIZE = _PORTS.size + 16 + 16 + len(_ANY)
_OWNER = struct.Struct("=12xII")
"""behind the connection's ends in an answer: timers and queues, the user, the inode"""
_TIMEOUT_S = 1.0


class Owner(NamedTuple):
    user: int
    inode: int
    """0: nobody has it open any more"""


def owner(client: End, server: End) -> Owner | None:
    """Whose the client's end is; None: the kernel knows no such connection. ``OSError`` if it cannot be asked."""
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    ends = [ipaddress.ip_address(end[0].partition("%")[0]) for end in (client, server)]
    family = socket.AF_INET if ends[0].version == 4 else socket.AF_INET6
    ports = _PORTS.pack(client[1], server[1])
    asked = _WANTED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    asked += ports + b"".join(end.packed.ljust(16, b"\0") for end in ends) + _ANY
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(_TIMEOUT_S)
        kernel.sendto(_HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked, (0, 0))
        answer, sender = kernel.recvfrom(4096)
    return _read(answer, ports) if sender[0] == 0 else None


def _read(answer: bytes, ports: bytes) -> Owner | None:
    """The owner in the kernel's answer about the connection with these ports."""
    _, kind, *_ = _HEAD.unpack_from(answer)
    if kind == _ERROR:
        code = -struct.unpack_from("=i", answer, _HEAD.size)[0]
        if code == errno.ENOENT:
            return None
        raise OSError(code, os.strerror(code))
    if kind != _BY_FAMILY or answer[_ID_AT : _ID_AT + _PORTS.size] != ports:
        return None
    return Owner(*_OWNER.unpack_from(answer, _ID_AT + _ID_SIZE))
