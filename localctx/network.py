"""Offline mode: no socket of this process leaves the machine, and every feature that needs one is refused with a
remedy.

Two layers: code that downloads or connects calls ``refuse_offline`` first. Below it, an interpreter audit hook refuses
every connection and name look-up that is not for this machine.
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
    """Returns True if this value of a setting or variable means on."""
    return value.strip().lower() in _TRUE


def is_offline() -> bool:
    """Returns True if localctx is offline."""
    return is_on(os.environ.get(VARIABLE, ""))


def go_offline() -> None:
    """Stop all sockets from leaving the machine from now on, including those of localctx's child processes."""
    global _hooked
    os.environ |= {VARIABLE: "on", "HF_HUB_OFFLINE": "1"}
    if not _hooked:
        sys.addaudithook(_refuse_sockets)
        _hooked = True


def refuse_offline(problem: str, remedy: str = HOW) -> None:
    """Raise OfflineError with ``problem`` and ``remedy`` if localctx is offline."""
    if is_offline():
        raise OfflineError(f"{problem}, and localctx is offline", remedy)


def is_this_machine(host: str | bytes | None) -> bool:
    """Returns True for addresses and names that stay on this machine."""
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
