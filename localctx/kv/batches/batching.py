"""Makes the decode batch that fits a pool's backend."""

from collections.abc import Sequence

from localctx.kv.batches.decode_batch import DecodeBatch
from localctx.kv.cache import Cache


def make_decode_batch(sequences: Sequence[tuple[Cache, int]]) -> DecodeBatch:
    """Returns a batch of (cache, new tokens), all in one pool or in pools of one format."""
    if sequences[0][0].pool.backend.name == "triton":
        from localctx.kv.batches.triton_decode_batch import TritonDecodeBatch  # which imports Triton

        return TritonDecodeBatch(sequences)
    return DecodeBatch(sequences)
