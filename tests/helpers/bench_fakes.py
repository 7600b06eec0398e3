"""Engines that take the time they are told, on a clock of their own."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from localctx.bench import ENGINES
from localctx.bench.engines import BenchEngine
from localctx.bench.measure import Bench
from localctx.bench.peer_state import SavedPeerStates
from localctx.bench.run_bench import run as run_bench

TEXT = [(i * 37 + i // 7) % 250 for i in range(600)]


class Fake:
    """An engine whose turns take the seconds it is told, on a clock of its own; ``log`` has what was asked of it."""

    prefills, kv, nbytes = True, "fake", 1

    def __init__(self, name: str, at: "Fakes", decoding: list[float], reading: float = 1.0) -> None:
        self.name, self._at, self._decoding, self._reading = name, at, iter(decoding), reading

    def read(self, tokens: list[int]) -> int:
        self._at.log.append((self.name, "read", len(tokens)))
        self._at.now += self._reading
        return 0

    def decode(self, tokens: list[int]) -> list[int]:
        if len(tokens) > 1:
            self._at.log.append((self.name, "decode", tuple(tokens)))
            self._at.now += next(self._decoding)
        return tokens

    def reset(self) -> None:
        self._at.forgotten += 1


class Fakes:
    """Stands for ``Engines``, and for the clock."""

    chosen, codecs, keeps, own_models = ENGINES, (), (), ()

    def __init__(self) -> None:
        self.now, self.log, self.engines, self.forgotten = 1.0, list[Any](), list[BenchEngine](), 0
        self.cancelled = lambda: False

    def open(self, context: int, extra_tokens: int) -> nullcontext[list[BenchEngine]]:
        return nullcontext(self.engines)

    def warm(self) -> None:
        pass

    def measure(
        self,
        what: str,
        repeat: int,
        contexts: tuple[int, ...] = (100,),
        kept: SavedPeerStates | None = None,
        **how: Any,
    ) -> Bench:
        at: Any = self
        bench = Bench(at, TEXT, what.split(","), contexts, repeat, clock=lambda: at.now, saved=kept, **how)
        run_bench(bench)
        return bench


class FakePeer(Fake):
    """Its state is the name and the tokens it read."""

    identity = ("fake", 1)
    full = False

    def save(self, path: Path, tokens: list[int]) -> bool:
        path.write_text(json.dumps(tokens))
        return not self.full

    def load(self, path: Path, tokens: list[int]) -> bool:
        self._at.log.append((self.name, "load", len(tokens)))
        return json.loads(path.read_text()) == tokens
