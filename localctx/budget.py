"""Measures free memory and disk space, and derives how many bytes of KV each tier may hold.

All other modules get these measurements from here.
"""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

if sys.platform != "win32":
    import resource

SPARE_DISK = 1 << 30  # bytes of disk left free, or a twentieth of the free space if more

_CGROUPS = Path("/sys/fs/cgroup")  # on Linux, where the control groups are mounted
_OWN_CGROUPS = Path("/proc/self/cgroup")  # and which of them this process is in

STORE_DIVISOR = 5  # stored pages may take a fifth of stored and free bytes together


@dataclass(frozen=True)
class Measured:
    """Free and total bytes of a memory or disk. Memory used by other processes is not free."""

    free: int
    total: int


@dataclass(frozen=True)
class TierLimits:
    """The maximum bytes of KV in each tier: on the device, in host RAM and on disk. None means no limit."""

    device: int | None = None
    host: int | None = 0
    disk: int | None = 0


def measure_limits(
    device: str,
    home: Path,
    reserve: int = 0,
    *,
    memory: int | None = None,
    ram: int | None = None,
    disk: int | None = None,
    free: int | None = None,
) -> TierLimits:
    """Returns the KV limits of each tier, from the free bytes on ``device`` (``cpu``, ``cuda``, ``cuda:1``), in RAM and
    on the disk of ``home``.

    ``reserve`` bytes of the device are not used for KV. ``memory``, ``ram`` and ``disk`` are upper limits for device,
    host and disk in bytes (None: no limit). ``free``, if given, replaces the measured free memory of the device. With
    ``cpu``, host and device share the same RAM: the host tier is empty unless ``ram`` is given, and ``ram`` is then
    subtracted from the device.
    """
    device_bytes = max(0, (measure_device(device).free if free is None else free) - reserve)
    if device.startswith("cuda"):
        free_ram = measure_ram().free
        host = _capped(free_ram, free_ram // 2 if ram is None else ram)
    else:
        host = _capped(device_bytes, ram or 0)
        device_bytes -= host
    free_disk = measure_disk(home).free
    return TierLimits(_capped(device_bytes, memory), host, _capped(free_disk - max(SPARE_DISK, free_disk // 20), disk))


def measure_store_budget(home: Path, stored: int, disk: int | None = None) -> int:
    """Returns the maximum bytes of pages and original files in the store in ``home``: ``disk`` if given, else a share
    of the disk.

    ``stored`` is the current size of these pages and files. The share is taken of free and stored bytes together, so
    that storing more does not lower the budget.
    """
    return (measure_disk(home).free + stored) // STORE_DIVISOR if disk is None else disk


def measure_ram() -> Measured:
    """Measure the RAM of the machine, or of the control groups (Linux) of this process that have lower limits, such as
    its container.
    """
    m = psutil.virtual_memory()
    free, total = zip((m.available, m.total), *_cgroups(), strict=True)
    return Measured(max(0, min(free)), min(total))


@dataclass(frozen=True)
class Process:
    """Bytes of RAM (resident memory) that this process uses now, and at its peak."""

    now: int
    peak: int


def measure_process() -> Process:
    """Measure this process's resident memory."""
    return Process(psutil.Process().memory_info().rss, _peak())


def _peak() -> int:
    with contextlib.suppress(OSError):  # on Linux getrusage reports the peak of the shell that started this process
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    if sys.platform == "win32":
        peak = int(psutil.Process().memory_info().peak_wset)
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)
    return peak


def measure_use(pid: int) -> tuple[float, int]:
    """Measure the process ``pid``: the processor time it has used, in seconds, and its memory now, in bytes. Returns
    zeros if the process has ended.
    """
    try:
        process = psutil.Process(pid)
        times, memory = process.cpu_times(), process.memory_info()
    except psutil.Error:
        return 0.0, 0
    return times.user + times.system, getattr(memory, "private", memory.rss)  # on Windows, paged out or not


def measure_disk(folder: Path) -> Measured:
    """Measure the disk of ``folder``. If the folder does not exist, its nearest existing parent is used."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return Measured(usage.free, usage.total)


def measure_device(device: str) -> Measured:
    """Measure a device's memory: VRAM for ``cuda``, RAM for ``cpu``. Unused memory that torch has reserved counts as
    free.
    """
    if not device.startswith("cuda"):
        return measure_ram()
    import torch

    place = torch.device(device)
    free, total = torch.cuda.mem_get_info(place)
    return Measured(free + torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place), total)


def _capped(nbytes: int, cap: int | None) -> int:
    return max(0, nbytes if cap is None else min(nbytes, cap))


def _cgroups() -> Iterator[tuple[int, int]]:
    """Yields the free bytes and the limit of each control group (v1 and v2) of this process that limits memory."""
    for folder in _cgroup_folders():
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            with contextlib.suppress(OSError, ValueError):  # v2 has "max" where there is no limit
                limit_bytes, used_bytes = (int((folder / file).read_text("ascii")) for file in (limit, used))
                yield limit_bytes - used_bytes + _reclaimable(folder), limit_bytes


def _cgroup_folders() -> Iterator[Path]:
    """Yields the folders of this process's control groups and of all groups around them. Inside a container, the
    outermost may be the only one that exists.
    """
    with contextlib.suppress(OSError):
        for line in _OWN_CGROUPS.read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                group = Path(path.lstrip("/"))
                yield from (_CGROUPS / controllers / part for part in (group, *group.parents))


def _reclaimable(cgroup: Path) -> int:
    """Returns the bytes of the container's inactive file cache, for example of stored pages. They count as used, but
    the system frees them on demand.
    """
    stat = dict(line.split() for line in (cgroup / "memory.stat").read_text("ascii").splitlines())
    return int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
