"""Measures the quantized caches of transformers, with the same tokens and steps as a quality gate."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localctx.engine.events import Progress
from localctx.models.base import PagedModel
from localctx.models.peers.transformers import PEERS, PeerReader, TransformersCachePeer, installed_peers, load_stock
from localctx.quality.compare import Divergence
from localctx.quality.gate import QualityGate


@dataclass(frozen=True)
class PeerResult:
    """The measurement of one peer: the bytes per token of its cache, the divergence from full precision, and the
    seconds that it took.
    """

    name: str
    bytes_per_token: int
    divergence: Divergence
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Returns the result as ``--json`` prints it."""
        own = {"name": self.name, "bytes_per_token": self.bytes_per_token}
        return {**own, **asdict(self.divergence), "seconds": round(self.seconds, 1)}


def measure_peers(
    folder: Path,
    model: PagedModel,
    gate: QualityGate,
    on_progress: Callable[[Progress], None],
    warn: Callable[[str], None],
) -> Iterator[PeerResult]:
    """Yield the result of each installed peer with the model, which is loaded from ``folder``.

    ``gate`` must have run before, because its reference is used. Calls ``warn`` for peers that are not installed or do
    not support this model. Raises ModelError.
    """
    installed = installed_peers()
    if missing := sorted({p.backend for p in PEERS} - {p.backend for p in installed}):
        warn(f"{' and '.join(missing)} not installed; pip install 'localctx[peers]'")
    module = load_stock(folder, model)
    for peer in installed:
        try:
            yield _measure(module, gate, peer, on_progress)
        except (ValueError, ImportError, RuntimeError, AssertionError) as e:  # an unsupported model raises any of these
            warn(f"{peer.name} was not measured ({str(e) or type(e).__name__})".splitlines()[0])


def _measure(
    module: Any, gate: QualityGate, peer: TransformersCachePeer, on_progress: Callable[[Progress], None]
) -> PeerResult:
    start, total = time.perf_counter(), len(gate.tokens)
    reader = PeerReader(module, peer)
    for at in range(0, gate.first, gate.setup.chunk):
        reader.forward(gate.tokens[at : min(at + gate.setup.chunk, gate.first)])
        on_progress(Progress(f"reading {peer.name}", reader.length, total))
    divergence = gate.compare(reader.forward)
    return PeerResult(peer.name, reader.nbytes // reader.length, divergence, time.perf_counter() - start)
