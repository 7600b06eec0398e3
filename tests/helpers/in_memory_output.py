"""Results of a batch by name, instead of files."""

from pathlib import Path


class Kept:
    """An output that keeps the summaries; each may come once."""

    def __init__(self) -> None:
        self.summaries: dict[str, str] = {}

    def has(self, entry) -> bool:
        return False

    def write(self, entry) -> None:
        assert entry["name"] not in self.summaries, "written twice"
        self.summaries[entry["name"]] = entry["summary"]

    def wrote(self, path: Path) -> bool:
        return False
