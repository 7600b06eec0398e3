"""Budget: the memory and disk there is on this machine now. The only place that measures them."""

import contextlib
import resource
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Measured:
    """Bytes free and in all on one tier, other processes' use counted."""

    free: int
    total: int


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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Process(psutil.Process().memory_info().rss, peak if sys.platform == "darwin" else peak << 10)


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
