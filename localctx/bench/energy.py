"""Energy, as the processors of a Linux machine count it themselves (RAPL), where the user may read it."""

from collections.abc import Sequence
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
_PARTS = ("package", "dram")  # what is counted apart; cores are part of a package


class EnergyCounter:
    """The counters of all processor packages, and of memory where it has one, in the powercap ``folder`` of Linux.

    They count what all programs use. Most systems let only the superuser read them.
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _name(zone).startswith(_PARTS)]
        if not self.read():
            self._zones = []

    @property
    def readable(self) -> bool:
        """True if there are counters, and they can be read."""
        return bool(self._zones)

    def read(self) -> list[int]:
        """Returns the counters in microjoules; empty where one cannot be read."""
        try:
            return [_number(zone / "energy_uj") for zone in self._zones]
        except (OSError, ValueError):
            return []

    def joules_since(self, before: Sequence[int]) -> float | None:
        """Returns the joules used since ``read`` returned ``before``; None where they cannot be read. A counter that
        reached its end has begun again at 0.
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
    """Returns the column of a row that says how much energy a token took; none where it is not known."""
    return {} if joules is None else {"joules_per_token": joules / tokens}


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text("utf-8").strip()
    except OSError:
        return ""


def _number(file: Path) -> int:
    return int(file.read_text("ascii"))
