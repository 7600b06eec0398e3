"""Converts Word and PowerPoint files from before 2007 (.doc, .ppt) with LibreOffice, where it is installed.

LibreOffice runs in a folder of its own with its own profile, without macros, links or network, and with limits on time,
memory and file size.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from localctx.child_process import POLL_SECONDS, python
from localctx.errors import Cancelled, DocumentError

CONVERTED = {"doc": "docx", "ppt": "pptx"}
"""The kinds that are converted, and the kind that each becomes."""

_NAMES = {"doc": "Word", "ppt": "PowerPoint"}
_PARTS = {"doc": "Writer", "ppt": "Impress"}  # LibreOffice without the part ends well and writes nothing
_SECONDS = 120  # of processor time; by the clock, at most twice as long
_MEMORY = 8 << 30  # bytes of address space, of which LibreOffice uses a tenth
_FILE = 512 << 20  # bytes of the largest file that it may write
_PLACES = (
    "/Applications/LibreOffice.app/Contents/MacOS/soffice",
    r"C:\Program Files\LibreOffice\program\soffice.exe",
)
_LAUNCH = """
import os, resource, sys
for kind, most in ((resource.RLIMIT_CPU, {seconds}), (resource.RLIMIT_AS, {memory}), (resource.RLIMIT_FSIZE, {file})):
    resource.setrlimit(kind, (most, most))
os.execv(sys.argv[1], sys.argv[1:])
"""
_SECURITY = {
    "DisableMacrosExecution": "true",
    "MacroSecurityLevel": "3",
    "BlockUntrustedRefererLinks": "true",
    "DisableActiveContent": "true",
}
_PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">{items}</oor:items>"""
_ITEM = (
    '<item oor:path="/org.openoffice.Office.Common/Security/Scripting">'
    '<prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>'
)


def find_office() -> str:
    """Returns the path of LibreOffice's program, or "" if it is not installed."""
    found = shutil.which("soffice") or shutil.which("libreoffice")
    return found or next((place for place in _PLACES if Path(place).is_file()), "")


def convert(data: bytes, kind: str, cancelled: Callable[[], bool] = lambda: False) -> bytes:
    """Returns the file ``data`` of the kind ``doc`` or ``ppt``, converted to the kind in CONVERTED.

    Raises DocumentError if LibreOffice is not installed or cannot convert the file in time. Raises Cancelled soon after
    ``cancelled()`` is True.
    """
    office, name = find_office(), f"is an old {_NAMES[kind]} file"
    if not office:
        raise DocumentError(name, f"save it as .{CONVERTED[kind]}, or install LibreOffice")
    with tempfile.TemporaryDirectory(prefix="localctx-", ignore_cleanup_errors=True) as folder:
        source, made = Path(folder) / f"document.{kind}", Path(folder) / f"document.{CONVERTED[kind]}"
        source.write_bytes(data)
        _write_profile(Path(folder))
        _run(_command(office, Path(folder), source), Path(folder), cancelled)
        if not made.is_file():
            remedy = f"save it as .{CONVERTED[kind]}, or check that LibreOffice {_PARTS[kind]} is installed"
            raise DocumentError(f"{name} that LibreOffice cannot convert", remedy)
        return made.read_bytes()


def has_macros(data: bytes) -> bool:
    """Returns True if the old Office file ``data`` holds macros."""
    return "_VBA_PROJECT".encode("utf-16-le") in data


def _write_profile(folder: Path) -> None:
    user = folder / "profile" / "user"
    user.mkdir(parents=True)
    items = "".join(_ITEM.format(name=name, value=value) for name, value in _SECURITY.items())
    (user / "registrymodifications.xcu").write_text(_PROFILE.format(items=items), encoding="utf-8")


def _command(office: str, folder: Path, source: Path) -> list[str]:
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    quiet = ["--headless", "--norestore", "--nolockcheck", "--nodefault", "--nologo"]
    convert = ["--convert-to", CONVERTED[source.suffix[1:]], "--outdir", str(folder), str(source)]
    if sys.platform == "win32":
        return [office, profile, *quiet, *convert]
    launch = _LAUNCH.format(seconds=_SECONDS, memory=_MEMORY, file=_FILE)
    return [python(), "-I", "-S", "-c", launch, office, profile, *quiet, *convert]


def _run(command: list[str], folder: Path, cancelled: Callable[[], bool]) -> None:
    """Run LibreOffice until it ends, its time is over, or ``cancelled()`` is True. Raises Cancelled."""
    nothing, nowhere = subprocess.DEVNULL, "http://127.0.0.1:9"  # a proxy that nobody runs
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
    environment |= {"http_proxy": nowhere, "https_proxy": nowhere, "SAL_USE_VCLPLUGIN": "svp"}
    if sys.platform == "win32":
        environment = {**os.environ, **environment}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    ) as child:
        deadline = time.monotonic() + 2 * _SECONDS
        try:
            while child.poll() is None and time.monotonic() < deadline and not cancelled():
                time.sleep(POLL_SECONDS)
        finally:
            _end(child)
    if cancelled():
        raise Cancelled


def _end(child: subprocess.Popen[bytes]) -> None:
    """End LibreOffice and its child processes, which are in one process group."""
    if sys.platform == "win32":
        child.kill()
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
