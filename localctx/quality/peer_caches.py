"""Measures transformers' quantized caches on the tokens and steps of a quality gate."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localctx.engine.events import Progress
from localctx.models.base import Model
from localctx.models.peer_transformers import PEERS, PeerReader, TransformersCachePeer, installed_peers, load_stock
from localctx.quality.gate import QualityGate


def measure_peers(
    folder: Path, model: Model, gate: QualityGate, on_progress: Callable[[Progress], None], warn: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Yields the result of each installed peer with ``model``, loaded from ``folder``, as ``--json`` prints it.

    ``gate`` must have run: its reference is used. Calls ``warn`` for peers that are not installed or do not support
    this model. Raises ModelError.
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
) -> dict[str, Any]:
    start, total = time.perf_counter(), len(gate.tokens)
    reader = PeerReader(module, peer)
    for at in range(0, gate.first, gate.setup.chunk):
        reader.forward(gate.tokens[at : min(at + gate.setup.chunk, gate.first)])
        on_progress(Progress(f"reading {peer.name}", reader.length, total))
    divergence = gate.compare(reader.forward)
    nbytes = reader.nbytes // reader.length
    seconds = round(time.perf_counter() - start, 1)
    return {"name": peer.name, "bytes_per_token": nbytes, **asdict(divergence), "seconds": seconds}
