"""Budget: the memory and disk there is on this machine now. The only place that measures them."""

import contextlib
import resource
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

SPARE_DISK = 1 << 30  # bytes of a disk that are left alone, or a twentieth of what is free where that is more

KEPT_SHARE = 5  # kept pages may take a fifth of the disk they share with what is free


@dataclass(frozen=True)
class Measured:
    """Bytes free and in all on one tier, other processes' use counted."""

    free: int
    total: int


@dataclass(frozen=True)
class TierLimits:
    """The most bytes of KV on the device that computes, in RAM beside it, and on disk; None for no limit."""

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
    """What is free on ``device`` (``cpu``, ``cuda``, ``cuda:1``), in RAM and on the disk of ``home``; measured anew.

    ``reserve`` bytes of the device are for other things than KV. ``memory``, ``ram`` and ``disk`` cap device, host and
    disk (None: no cap). ``free`` is taken for the device's free memory rather than measured. On a CPU machine host and
    device are the same RAM: nothing of it is host unless ``ram`` asks for it, and then the device has so much less.
    """
    room = max(0, (measure_device(device).free if free is None else free) - reserve)
    if device.startswith("cuda"):
        spare = measure_ram().free
        host = _capped(spare, spare // 2 if ram is None else ram)
    else:
        host = _capped(room, ram or 0)
        room -= host
    on_disk = measure_disk(home).free
    return TierLimits(_capped(room, memory), host, _capped(on_disk - max(SPARE_DISK, on_disk // 20), disk))


def measure_kept(home: Path, kept: int, disk: int | None = None) -> int:
    """The most bytes of pages to keep in ``home``, which has ``kept``: ``disk``, or a fifth of what is free or kept.

    What is kept counts with what is free, so that keeping does not lower the budget; four fifths are left to all else.
    """
    return (measure_disk(home).free + kept) // KEPT_SHARE if disk is None else disk


def measure_ram() -> Measured:
    """Memory this process may still take: the machine's, or its container's where that is less."""
    m = psutil.virtual_memory()
    limit, used = _cgroup()
    if limit is None or limit >= m.total:
        return Measured(m.available, m.total)
    return Measured(max(0, min(m.available, limit - used)), limit)


@dataclass(frozen=True)
class Process:
    """Bytes of memory this process holds now, and the most it ever held."""

    now: int
    peak: int


def measure_process() -> Process:
    """This process's resident memory."""
    return Process(psutil.Process().memory_info().rss, _peak())


def _peak() -> int:
    with contextlib.suppress(OSError):  # on Linux getrusage would tell the peak of the shell that started us
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def measure_disk(folder: Path) -> Measured:
    """Space on the disk that holds ``folder`` (or its nearest parent that exists)."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return Measured(usage.free, usage.total)


def measure_device(device: str) -> Measured:
    """Memory of the device that computes: VRAM for ``cuda``, RAM for ``cpu``."""
    if not device.startswith("cuda"):
        return measure_ram()
    import torch

    return Measured(*torch.cuda.mem_get_info(torch.device(device)))


def _capped(nbytes: int, cap: int | None) -> int:
    return max(0, nbytes if cap is None else min(nbytes, cap))


def _cgroup() -> tuple[int | None, int]:
    """The container's memory limit (None: none) and what it uses, from cgroup v2 or v1."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            return int(Path(limit).read_text()), int(Path(used).read_text()) - _reclaimable(Path(used).parent)
    return None, 0


def _reclaimable(cgroup: Path) -> int:
    """File cache that counts as used and is given up on demand: kept pages that were read, mostly."""
    stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
