"""Peers measured: transformers' quantized caches on the very tokens and steps of a gate."""

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
    folder: Path, model: Model, gate: QualityGate, hear: Callable[[Progress], None], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """What each installed peer gives with ``model``, which is in ``folder``, as ``--json`` prints it. ``gate`` has run:
    its reference is theirs. Raises ModelError.

    A peer that cannot keep this model is told of through ``say``, and so are those not installed.
    """
    here = installed_peers()
    if missing := sorted({p.backend for p in PEERS} - {p.backend for p in here}):
        say(f"{' and '.join(missing)} not installed; pip install 'localctx[peers]'")
    module = load_stock(folder, model)
    for peer in here:
        try:
            yield _measured(module, gate, peer, hear)
        except (ValueError, ImportError, RuntimeError, AssertionError) as e:  # what their libraries refuse with
            say(f"{peer.name} was not measured ({str(e) or type(e).__name__})".splitlines()[0])


def _measured(
    module: Any, gate: QualityGate, peer: TransformersCachePeer, hear: Callable[[Progress], None]
) -> dict[str, Any]:
    start, total = time.perf_counter(), len(gate.tokens)
    reader = PeerReader(module, peer)
    for at in range(0, gate.first, gate.on.chunk):
        reader.forward(gate.tokens[at : min(at + gate.on.chunk, gate.first)])
        hear(Progress(f"reading {peer.name}", reader.length, total))
    divergence = gate.compare(reader.forward)
    nbytes = reader.nbytes // reader.length
    seconds = round(time.perf_counter() - start, 1)
    return {"name": peer.name, "bytes_per_token": nbytes, **asdict(divergence), "seconds": seconds}
