"""Measures the quality of low-bit weights in localctx and in llama.cpp, with the same tokens and steps as a quality
gate.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from localctx.engine.events import Progress
from localctx.engine.model_loader import ModelLoader
from localctx.errors import UserError
from localctx.models.base import PagedModel
from localctx.models.choice.default_model import choose_model
from localctx.models.llama_cpp.library import llama_cpp_is_installed
from localctx.models.peers.ggufs import PeerGgufs
from localctx.models.peers.llama_cpp import LLAMA_CPP_WEIGHTS, PUBLISHED, LlamaCppOptions, LlamaCppPeer
from localctx.quality.compare import Divergence
from localctx.quality.gate import QualityGate
from localctx.quality.variants import REFERENCE, Variant, make_setup
from localctx.settings import WEIGHTS, Settings


@dataclass(frozen=True)
class WeightsResult:
    """The measurement of one kind of weights: their bytes, the divergence from 16-bit weights with a full-precision KV
    cache, and the seconds that it took.
    """

    name: str
    nbytes: int
    divergence: Divergence
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Returns the result as ``--json`` prints it."""
        return {"name": self.name, "bytes": self.nbytes, **asdict(self.divergence), "seconds": round(self.seconds, 1)}


@dataclass(frozen=True)
class WeightsComparison:
    """Compares the weights of ``model``, which was loaded with ``settings``, with other weights of the same model.
    ``gate`` must have run before, because its reference is used. Calls ``warn`` for weights that cannot be measured.
    """

    model: PagedModel
    settings: Settings
    gate: QualityGate
    on_progress: Callable[[Progress], None]
    warn: Callable[[str], None]

    def run(self) -> Iterator[WeightsResult]:
        """Yield a result for each kind of weights of localctx, with a full-precision KV cache, and of llama.cpp, with
        an f16 KV cache. Raises whatever ``on_progress`` raises.
        """
        for weights in WEIGHTS[1:]:  # without auto
            if weights != choose_model(self.settings).weights:
                yield from self._own(weights)
        threads = self.settings.threads or torch.get_num_threads()
        show = lambda phase, done, total: self.on_progress(Progress(phase, done, total))  # noqa: E731
        files = PeerGgufs(self.model, self.settings, None, threads, self.warn, show)
        whole = files.find("")
        for weights in ("", *LLAMA_CPP_WEIGHTS) if whole else self._published:  # others are made from the 16-bit file
            if file := files.find(weights):
                yield from self._peer(file, weights, threads)

    @property
    def _published(self) -> tuple[str, ...]:
        """The weights of llama.cpp to measure if there is no 16-bit file: the published file, which is not made from
        it. Empty if llama.cpp is not installed; ``find`` has warned of that.
        """
        return (PUBLISHED,) if llama_cpp_is_installed() else ()

    def _own(self, weights: str) -> Iterator[WeightsResult]:
        start, gate, name = time.perf_counter(), self.gate, f"localctx {weights}"
        try:
            model, _ = ModelLoader().load(replace(self.settings, weights=weights), self.on_progress)
        except UserError as e:
            self.warn(f"{name} was not measured: {e}")
            return
        setup = make_setup(model, self.settings, len(gate.tokens))  # type: ignore[arg-type]  # torch computes it
        cache = setup.new_cache(Variant(REFERENCE), len(gate.tokens))
        try:
            self._read(name, lambda tokens: model.forward(tokens, cache))
            divergence = gate.compare(lambda tokens, count: model.forward(tokens, cache, count))
        finally:
            cache.drop()
        yield WeightsResult(name, model.nbytes, divergence, time.perf_counter() - start)

    def _peer(self, file: Path, weights: str, threads: int) -> Iterator[WeightsResult]:
        start, gate = time.perf_counter(), self.gate
        name = f"llama.cpp {weights.removeprefix('weights-') or 'f16'}"
        gpu = self.model.device.type == "cuda"
        try:
            with closing(LlamaCppPeer(file, _OPTIONS, len(gate.tokens), threads, gpu)) as peer:
                self._read(name, peer.read)
                divergence = gate.compare(lambda tokens, count: torch.from_numpy(peer.forward(tokens, count)))
        except (ValueError, RuntimeError) as e:  # a file that llama.cpp cannot load or compute
            self.warn(f"{name} was not measured ({e})".splitlines()[0])
            return
        yield WeightsResult(name, file.stat().st_size, divergence, time.perf_counter() - start)

    def _read(self, name: str, read: Callable[[Sequence[int]], object]) -> None:
        """Read all tokens before the scored ones, in chunks."""
        gate = self.gate
        for at in range(0, gate.first, gate.setup.chunk):
            self.on_progress(Progress(f"reading with weights of {name}", at, len(gate.tokens)))
            read(gate.tokens[at : min(at + gate.setup.chunk, gate.first)])


_OPTIONS = LlamaCppOptions("f16", flash=False)
