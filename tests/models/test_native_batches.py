"""How the tokens of several sequences are distributed over passes and batches of llama.cpp."""

from hypothesis import given
from hypothesis import strategies as st

from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.models.llama_cpp.batches import native_batches, passes
from localctx.models.llama_cpp.options import MAX_OUTPUTS

COUNTS = st.lists(st.integers(1, 900), min_size=1, max_size=40)


@given(COUNTS, st.integers(1, 63))
def test_a_chunk_of_a_prompt_is_alone_and_what_decodes_is_together(counts, most):
    found = passes(counts, most)
    assert sorted(i for part in found for i in part) == list(range(len(counts)))
    for part in found:
        assert len(part) <= most
        assert len(part) == 1 or all(counts[i] <= MAX_DECODE_TOKENS for i in part)
    decoding = sum(count <= MAX_DECODE_TOKENS for count in counts)
    assert len(found) == len(counts) - decoding + -(-decoding // most)


@given(COUNTS, st.integers(32, 600), st.data())
def test_each_token_is_in_one_batch_and_each_wanted_logit_too(counts, size, data):
    wanted = [data.draw(st.integers(0, count)) for count in counts]
    at, given_logits = [0] * len(counts), [0] * len(counts)
    for batch in native_batches(counts, wanted, size):
        assert sum(stop - start for _, start, stop, _ in batch) <= size
        assert sum(logits for *_, logits in batch) <= MAX_OUTPUTS
        for i, start, stop, logits in batch:
            assert start == at[i] < stop
            at[i], given_logits[i] = stop, given_logits[i] + logits
    assert at == counts
    assert given_logits == wanted
