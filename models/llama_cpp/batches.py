"""Splits the new tokens of several sequences into llama.cpp's batches, which have a fixed size."""

from collections.abc import Sequence

from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.models.llama_cpp.options import MAX_OUTPUTS

Piece = tuple[int, int, int, int]
"""Tokens ``start..stop`` of sequence ``i``, and the number of last tokens whose logits are wanted."""


def passes(counts: Sequence[int], most: int) -> list[list[int]]:
    """Group sequences into forward passes. ``counts`` has the number of new tokens of each sequence. Returns the
    indices of the sequences of each pass. A sequence with a prefill chunk has a pass alone. The decoding sequences
    follow, at most ``most`` in a pass.
    """
    long = [[i] for i, count in enumerate(counts) if count > MAX_DECODE_TOKENS]
    short = [i for i, count in enumerate(counts) if count <= MAX_DECODE_TOKENS]
    return long + [short[at : at + most] for at in range(0, len(short), most)]


def native_batches(counts: Sequence[int], num_logits: Sequence[int], size: int) -> list[list[Piece]]:
    """Split the new tokens of sequences into native batches of at most ``size`` tokens and MAX_OUTPUTS wanted logits.
    ``counts`` and ``num_logits`` have the numbers of new tokens and of wanted logits of each sequence. A piece is
    (index of the sequence, first token, end token, number of logits). A sequence is split if a batch has no room for
    all its tokens or logits.
    """
    batches, tokens, outputs = list[list[Piece]]([[]]), 0, 0
    for i, (count, wanted) in enumerate(zip(counts, num_logits, strict=True)):
        at = 0
        while at < count:
            room = min(size - tokens, count - at)
            silent = max(0, count - wanted - at)  # tokens before those whose logits are wanted
            take = room if room <= silent else min(room, silent + MAX_OUTPUTS - outputs)
            if take <= 0:
                batches.append([])
                tokens = outputs = 0
                continue
            with_logits = max(0, take - silent)
            batches[-1].append((i, at, at + take, with_logits))
            at, tokens, outputs = at + take, tokens + take, outputs + with_logits
    return [batch for batch in batches if batch]
