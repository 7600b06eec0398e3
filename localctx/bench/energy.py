"""Energy counters of the processors of a Linux machine (RAPL), if the user may read them."""

from collections.abc import Sequence
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
_PARTS = ("package", "dram")  # separate counters; cores are part of a package


class EnergyCounter:
    """The counters of all processor packages, and of memory if it has one, in Linux's powercap ``folder``.

    They count the energy of all programs. Most systems let only the superuser read them.
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _name(zone).startswith(_PARTS)]
        if not self.read():
            self._zones = []

    @property
    def readable(self) -> bool:
        """True if there are counters and they can be read."""
        return bool(self._zones)

    def read(self) -> list[int]:
        """Returns the counters in microjoules, or an empty list if one cannot be read."""
        try:
            return [_number(zone / "energy_uj") for zone in self._zones]
        except (OSError, ValueError):
            return []

    def joules_since(self, before: Sequence[int]) -> float | None:
        """Returns the joules used since ``read`` returned ``before``, or None if they cannot be read. Handles counters
        that wrapped around to 0.
        """
        after = self.read()
        if not before or not after:
            return None
        try:
            return sum(map(self._spent, self._zones, before, after)) / 1e6
        except (OSError, ValueError):
            return None

    def _spent(self, zone: Path, before: int, after: int) -> int:
        return after - before if after >= before else after - before + _number(zone / "max_energy_range_uj")


def per_token(joules: float | None, tokens: int) -> dict[str, float]:
    """Returns the table column for energy per token, empty if unknown."""
    return {} if joules is None else {"joules_per_token": joules / tokens}


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text("utf-8").strip()
    except OSError:
        return ""


def _number(file: Path) -> int:
    return int(file.read_text("ascii"))
