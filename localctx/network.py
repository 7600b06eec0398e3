"""Offline mode: no socket of this process connects to another machine, and features that need one raise an error with a
remedy.

There are two layers. Code that downloads or connects calls ``refuse_offline`` first. Below that, an audit hook of the
interpreter refuses every connection and name look-up for another machine.
"""

import ipaddress
import os
import sys
from typing import Any

from localctx.errors import OfflineError

VARIABLE = "LOCALCTX_OFFLINE"
HOW = "leave out --offline and the setting offline for this"
_TRUE = ("on", "1", "true", "yes")
_ADDRESSED = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}  # event: index of its address argument
_NAMED = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_hooked = False


def is_on(value: str) -> bool:
    """Returns True if ``value``, the text of a setting or an environment variable, means on."""
    return value.strip().lower() in _TRUE


def is_offline() -> bool:
    """Returns True if offline mode is on."""
    return is_on(os.environ.get(VARIABLE, ""))


def go_offline() -> None:
    """Turn offline mode on, for this process and the child processes it starts."""
    global _hooked
    os.environ |= {VARIABLE: "on", "HF_HUB_OFFLINE": "1"}
    if not _hooked:
        sys.addaudithook(_refuse_sockets)
        _hooked = True


def refuse_offline(problem: str, remedy: str = HOW) -> None:
    """Raise OfflineError with ``problem`` and ``remedy`` if offline mode is on."""
    if is_offline():
        raise OfflineError(f"{problem}, and localctx is offline", remedy)


def is_this_machine(host: str | bytes | None) -> bool:
    """Returns True if the address or name ``host`` means this machine."""
    name = host.decode("latin-1") if isinstance(host, bytes) else host
    if name in (None, "", "localhost", "ip6-localhost"):
        return True
    try:
        address = ipaddress.ip_address(str(name).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def _refuse_sockets(event: str, arguments: tuple[Any, ...]) -> None:
    if not event.startswith("socket.") or not is_offline():
        return
    if event in _ADDRESSED:
        address = arguments[_ADDRESSED[event]]
        host = address[0] if isinstance(address, tuple) and address and isinstance(address[0], str | bytes) else None
    else:
        host = arguments[0] if event in _NAMED and isinstance(arguments[0], str | bytes) else None
    if not is_this_machine(host):
        raise OfflineError("a connection to another machine was refused, because localctx is offline", HOW)
