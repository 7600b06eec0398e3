"""What a peer made of a text it read for long: kept on disk, so that no later run reads it again."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from localctx.models.fingerprint import hash_file
from localctx.settings import write_atomically

LIMIT = 8 << 30  # bytes of all that is kept; the one that was used longest ago goes first


@runtime_checkable
class PersistablePeer(Protocol):
    """An engine whose state can be written and read. ``identity``: all that decides what it is."""

    name: str

    @property
    def identity(self) -> Sequence[object]:
        """Of what another engine's state would be wrong here."""

    def save(self, path: Path, tokens: Sequence[int]) -> bool:
        """Write what it made of ``tokens``; whether it could."""

    def load(self, path: Path, tokens: Sequence[int]) -> bool:
        """Be as after reading ``tokens``; whether ``path`` has that. If not, nothing was read."""


@dataclass(frozen=True)
class SavedStateFacts:
    """How a text was read: ``tokens`` of it in chunks, in so many ``seconds``, on what ``day``."""

    tokens: int
    seconds: float
    day: str


@dataclass(frozen=True)
class SavedPeerStates:
    """The readings in ``folder``, ``limit`` bytes at most: a state, and beside it, written after it, the facts of it.
    ``say`` is told what could not be kept or used.
    """

    folder: Path
    say: Callable[[str], None] = lambda text: None
    limit: int = LIMIT

    def has(self, engine: object, tokens: Sequence[int]) -> bool:
        """Whether there is such a reading, whole or not."""
        return isinstance(engine, PersistablePeer) and _facts_of(self._state(engine, tokens)).exists()

    def load(self, engine: object, tokens: Sequence[int]) -> SavedStateFacts | None:
        """Have ``engine`` be as after ``tokens``, of which there is a reading; None for a damaged one, which goes."""
        assert isinstance(engine, PersistablePeer)
        state = self._state(engine, tokens)
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            said = json.loads(_facts_of(state).read_text())
            if said.pop("blake3") == hash_file(state) and engine.load(state, tokens):
                os.utime(state)
                return SavedStateFacts(**said)
        self.say(f"what {engine.name} had read to {len(tokens):,} tokens is damaged: it is read anew")
        _delete(state)
        return None

    def save(self, engine: object, tokens: Sequence[int], facts: SavedStateFacts) -> None:
        """Keep what ``engine``, if it can be kept, made of ``tokens``: all or nothing."""
        if not isinstance(engine, PersistablePeer):
            return
        state = self._state(engine, tokens)
        try:
            self._write(engine, tokens, state)
            write_atomically(_facts_of(state), json.dumps({**asdict(facts), "blake3": hash_file(state)}))
        except OSError as e:
            self.say(f"what {engine.name} has read cannot be kept ({e}): the next run reads it anew")
            _delete(state)
        self._shrink()

    def forget(self) -> int:
        """Delete all of it, and the models that were made for it; how many bytes that were."""
        files = [path for path in self.folder.glob("*") if path.is_file()]
        freed = sum(path.stat().st_size for path in files)
        for path in files:
            path.unlink(missing_ok=True)
        return freed

    def _state(self, engine: PersistablePeer, tokens: Sequence[int]) -> Path:
        of = json.dumps([*engine.identity, list(tokens)])
        return self.folder / f"{hashlib.sha256(of.encode()).hexdigest()[:32]}.state"

    def _write(self, engine: PersistablePeer, tokens: Sequence[int], state: Path) -> None:
        part = state.with_suffix(".part")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not engine.save(part, tokens):
            part.unlink(missing_ok=True)
            raise OSError("is the disk full?")
        with part.open("rb") as file:
            os.fsync(file.fileno())  # nor is it written while others are timed
        part.replace(state)

    def _shrink(self) -> None:
        """Down to the limit; what a killed run left behind counts, too."""
        files = [path for path in self.folder.glob("*") if path.suffix in (".state", ".part")]
        files.sort(key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in files)
        for path in files[:-1]:
            if total > self.limit:
                total -= path.stat().st_size
                _delete(path) if path.suffix == ".state" else path.unlink(missing_ok=True)


def _facts_of(state: Path) -> Path:
    return state.with_suffix(".json")


def _delete(state: Path) -> None:
    for path in (_facts_of(state), state):
        path.unlink(missing_ok=True)
