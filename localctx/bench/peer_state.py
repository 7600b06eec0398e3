"""Saves the state of a peer after a long prefill, so that later runs load it instead of reading the text again."""

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
from localctx.system import sync

LIMIT = 8 << 30  # bytes of all saved states; the least recently used one is deleted first


@runtime_checkable
class PersistablePeer(Protocol):
    """An engine whose state can be saved and loaded."""

    name: str

    @property
    def identity(self) -> Sequence[object]:
        """Everything that the engine's state depends on. States of engines with the same identity are
        interchangeable.
        """

    def save(self, path: Path, tokens: Sequence[int]) -> bool:
        """Write the engine's state after reading ``tokens`` to ``path``. Returns False if this fails."""

    def load(self, path: Path, tokens: Sequence[int]) -> bool:
        """Restore the state that the engine had after it read ``tokens``; the file ``path`` has it. If the file has
        another state, resets the engine and returns False.
        """


@dataclass(frozen=True)
class SavedStateFacts:
    """The prefill that led to a saved state: its number of ``tokens``, the ``seconds`` it took, and its ``day`` (ISO
    date).
    """

    tokens: int
    seconds: float
    day: str


@dataclass(frozen=True)
class SavedPeerStates:
    """Saves and loads states of peers in ``folder``, at most ``limit`` bytes. Each state is a file, and a JSON file
    with its facts is written after it. Calls ``warn`` for states that cannot be saved or are damaged.
    """

    folder: Path
    warn: Callable[[str], None] = lambda text: None
    limit: int = LIMIT

    def has(self, engine: object, tokens: Sequence[int]) -> bool:
        """Returns True if the state of ``engine`` after ``tokens`` is saved. The saved state may be damaged."""
        return isinstance(engine, PersistablePeer) and _facts_file(self._state(engine, tokens)).exists()

    def load(self, engine: object, tokens: Sequence[int]) -> SavedStateFacts | None:
        """Load the saved state after ``tokens`` into ``engine``, and return its facts. If the state is damaged, deletes
        it and returns None.
        """
        assert isinstance(engine, PersistablePeer)
        state = self._state(engine, tokens)
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            facts = json.loads(_facts_file(state).read_text("utf-8"))
            if facts.pop("blake3") == hash_file(state) and engine.load(state, tokens):
                os.utime(state)
                return SavedStateFacts(facts["tokens"], facts["seconds"], facts["day"])  # older files have more
        self.warn(f"what {engine.name} had read to {len(tokens):,} tokens is damaged: it is read anew")
        _delete(state)
        return None

    def save(self, engine: object, tokens: Sequence[int], facts: SavedStateFacts) -> None:
        """Save the state of ``engine`` after ``tokens``, completely or not at all. Does nothing for an engine that is
        not a PersistablePeer.
        """
        if not isinstance(engine, PersistablePeer):
            return
        state = self._state(engine, tokens)
        try:
            self._write(engine, tokens, state)
            write_atomically(_facts_file(state), json.dumps({**asdict(facts), "blake3": hash_file(state)}))
        except OSError as e:
            self.warn(f"what {engine.name} has read cannot be kept ({e}): the next run reads it anew")
            _delete(state)
        self._shrink()

    def delete_all(self) -> int:
        """Delete all files in the folder, including converted models. Returns the bytes freed."""
        files = [path for path in self.folder.glob("*") if path.is_file()]
        freed = sum(path.stat().st_size for path in files)
        for path in files:
            path.unlink(missing_ok=True)
        return freed

    def _state(self, engine: PersistablePeer, tokens: Sequence[int]) -> Path:
        key = json.dumps([*engine.identity, list(tokens)])
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.state"

    def _write(self, engine: PersistablePeer, tokens: Sequence[int], state: Path) -> None:
        part = state.with_suffix(".part")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not engine.save(part, tokens):
            part.unlink(missing_ok=True)
            raise OSError("is the disk full?")
        sync(part)  # also prevents writes while another engine is timed
        part.replace(state)

    def _shrink(self) -> None:
        """Delete the least recently used states until the limit holds. Unfinished files of killed runs count too."""
        files = [path for path in self.folder.glob("*") if path.suffix in (".state", ".part")]
        files.sort(key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in files)
        for path in files[:-1]:
            if total > self.limit:
                total -= path.stat().st_size
                _delete(path) if path.suffix == ".state" else path.unlink(missing_ok=True)


def _facts_file(state: Path) -> Path:
    return state.with_suffix(".json")


def _delete(state: Path) -> None:
    for path in (_facts_file(state), state):
        path.unlink(missing_ok=True)
