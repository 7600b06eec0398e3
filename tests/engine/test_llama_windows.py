"""sink-window in llama.cpp: what is evicted, what is held, and the logits, beside the definition."""

from pathlib import Path

import pytest
import tiny_ggufs
import torch
from ask_in_process import PLAIN
from hypothesis import given
from hypothesis import strategies as st
from required_extras import needs_llama
from tiny_ggufs import FAMILIES, link_tried, write_tiny_gguf

from localctx.errors import Cancelled, UsageError
from localctx.kv.eviction_log import EvictedRange
from localctx.kv.keepers.sink_window import SinkWindow
from localctx.models.base import ForwardRequest
from localctx.models.llama_cpp.context import LlamaContext
from localctx.models.llama_cpp.model import LlamaModel, load_llama_model
from localctx.models.llama_cpp.sequence_slots import NativeSequence
from localctx.models.llama_cpp.sink_windows import surplus
from localctx.session import Session
from localctx.settings import load_settings
from localctx.shape import PAGE

pytestmark = pytest.mark.slow

WINDOW = 256
BATCH = 128
KEEPER = SinkWindow(tokens=WINDOW)
TOKENS = [(i * i + 3 * i) % 250 for i in range(1500)]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    return tmp_path_factory.mktemp("tried")


@pytest.fixture(scope="module")
def shallow(tmp_path_factory) -> Path:
    """A model of one layer, whose keys and values depend on a token and its position alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_ggufs, "LAYERS", 1)
        return write_tiny_gguf(tmp_path_factory.mktemp("models") / "shallow.gguf", "llama")


@pytest.fixture(scope="module")
def shallow_wide(tmp_path_factory) -> Path:
    """The same with heads so wide that llama.cpp transforms quantized keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_ggufs, "LAYERS", 1)
        patch.setattr(tiny_ggufs, "HEAD", 64)
        return write_tiny_gguf(tmp_path_factory.mktemp("models") / "wide.gguf", "llama")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory) -> Path:
    """A model with a window of 1,024 tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_ggufs, "CONTEXT", 1024)
        return write_tiny_gguf(tmp_path_factory.mktemp("models") / "narrow.gguf", "llama")


@pytest.fixture
def model(shallow, tried) -> LlamaModel:
    return open_model(shallow, tried)


def open_model(path: Path, tried: Path, codec: str = "f32", cells: int = 4096) -> LlamaModel:
    model = load_llama_model(path, "tiny", tried, threads=1, chunk=BATCH)
    model.memory(codec).allow(cells)
    return model


def read(model: LlamaModel, cache, tokens) -> torch.Tensor:
    """The logits after ``tokens``, read in chunks."""
    for at in range(0, len(tokens), BATCH):
        logits = model.forward(tokens[at : at + BATCH], cache)
    return logits[-1]


def held(tokens) -> list[int]:
    """What the definition keeps of ``tokens``, before the next ones come."""
    pages = len(tokens) // PAGE
    return [*tokens[:PAGE], *tokens[max(PAGE, (pages - WINDOW // PAGE) * PAGE) :]]


@needs_llama
@pytest.mark.parametrize(("codec", "bound"), [("f32", 1e-3), ("f16", 0.02), ("int8", 0.05), ("int4", 0.3)])
def test_the_logits_are_those_of_what_is_held_at_positions_within_it(shallow, shallow_wide, tried, codec, bound):
    model = open_model(shallow_wide if codec.startswith("int") else shallow, tried, codec)
    windowed, fresh = model.new_cache(codec, keeper=KEEPER), model.new_cache(codec)
    read(model, windowed, TOKENS)
    read(model, fresh, held(TOKENS))
    assert windowed.sequence.held == fresh.length
    for token in (7, 8, 9):
        of_window, of_fresh = (model.forward([token], cache)[-1] for cache in (windowed, fresh))
        assert (of_window - of_fresh).abs().max() < bound * of_fresh.abs().max()
    assert windowed.evicted == [EvictedRange(PAGE, len(TOKENS) // PAGE * PAGE - WINDOW)]
    assert not windowed.exact


@needs_llama
def test_the_cells_in_use_are_at_most_the_sinks_the_window_and_a_batch(model, monkeypatch):
    cache, most, decode = model.new_cache("f32", keeper=KEEPER), [0], LlamaContext.decode

    def counted(context, rows, cancelled):
        logits = decode(context, rows, cancelled)
        most[0] = max(most[0], context.positions(rows[0].sequence)[1] + 1)
        return logits

    monkeypatch.setattr(LlamaContext, "decode", counted)
    read(model, cache, TOKENS)
    assert most[0] == PAGE + WINDOW + BATCH
    for _ in range(100):
        model.forward([5], cache)
    assert most[0] == PAGE + WINDOW + BATCH
    assert cache.length == len(TOKENS) + 100
    assert cache.memory.nbytes()["device"] <= (PAGE + WINDOW + PAGE) * cache.memory.page_bytes / PAGE


@given(st.lists(st.integers(1, 400), max_size=20), st.integers(4, 12))
def test_what_is_evicted_follows_the_sinks_and_leaves_the_window(steps, pages):
    sequence = NativeSequence(keeper=SinkWindow(tokens=pages * PAGE))
    for step in steps:
        sequence.length += step
        evicted = surplus(sequence)
        assert not evicted or evicted.start == PAGE
        sequence.dropped += len(evicted)
        assert not surplus(sequence)
        assert sequence.dropped == max(0, sequence.length // PAGE - pages - 1) * PAGE
        assert sequence.held < (1 + pages + 1) * PAGE


@needs_llama
def test_forks_evict_each_for_itself_and_disturb_no_other_sequence(model):
    other, windowed = model.new_cache("f32"), model.new_cache("f32", keeper=KEEPER)
    read(model, other, TOKENS[:300])
    before = other.snapshot(0)
    read(model, windowed, TOKENS)
    forks = [windowed.fork() for _ in range(3)]
    alone = model.new_cache("f32", keeper=KEEPER)
    read(model, alone, TOKENS)
    expected = [model.forward([token], alone) for token in range(150)]
    for token, logits in enumerate(expected):
        together = model.forward_each([ForwardRequest([token], fork) for fork in forks])
        assert all(torch.allclose(one, logits, atol=1e-3) for one in together)
    model.forward([1], windowed)
    assert [fork.evicted for fork in forks] == [alone.evicted] * 3
    assert windowed.evicted[0].stop < alone.evicted[0].stop
    assert (other.snapshot(0) == before).all()


@needs_llama
def test_a_window_that_waited_in_ram_goes_on_as_it_was(model):
    caches = [model.new_cache("f32", keeper=KEEPER) for _ in range(2)]
    for cache in caches:
        read(model, cache, TOKENS)
    caches[0].memory.release()  # with a gap that is not closed
    logits = [model.forward([3], cache) for cache in caches]
    assert torch.allclose(*logits, atol=1e-4)
    caches[0].memory.release()
    assert torch.allclose(*(model.forward([4], cache) for cache in caches), atol=1e-4)


@needs_llama
def test_tokens_after_the_evicted_ones_can_be_trimmed(model):
    cache, plain = (model.new_cache("f32", keeper=KEEPER) for _ in range(2))
    for one in (cache, plain):
        read(model, one, TOKENS)
    model.forward([3, 4, 5], cache)
    assert cache.trimmable(len(TOKENS) - PAGE) == len(TOKENS) - PAGE
    assert cache.trimmable(cache.evicted[0].stop - 1) == 0
    cache.trim(len(TOKENS))
    assert torch.allclose(model.forward([9], cache), model.forward([9], plain), atol=1e-4)


@needs_llama
def test_a_cancelled_batch_leaves_the_others_as_they_were(model):
    *caches, alone = (model.new_cache("f32", keeper=KEEPER) for _ in range(3))
    for cache in (*caches, alone):
        read(model, cache, TOKENS)
    requests = [ForwardRequest(TOKENS[:BATCH], cache) for cache in caches]
    asked = iter([False])
    with pytest.raises(Cancelled):
        model.forward_each(requests, lambda: next(asked, True))  # between the native batches of the two
    assert [cache.length for cache in caches] == [len(TOKENS)] * 2
    assert not any(cache.sequence.lost for cache in caches)
    expected = model.forward([3], alone)
    assert all(torch.allclose(model.forward([3], cache), expected, atol=1e-4) for cache in caches)


@needs_llama
def test_a_document_longer_than_the_model_is_answered(narrow, tried, home, tmp_path):
    text = tmp_path / "rivers.txt"
    text.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(150)))
    link_tried(home, tried)
    given = {**PLAIN, "home": home, "model": str(narrow), "engine": "llama.cpp", "max_tokens": 8, "mode": "full"}
    with Session(load_settings(**{**given, "keep": f"sink-window:{WINDOW}", "chunk": BATCH})) as session:
        *_, done = session.stream("How long is river 7?", [str(text)])
        again = session.ask("How long is river 7?", [text])
    report = done.report
    assert report.tokens.prompt > 3 * 1024
    length = report.tokens.prompt + report.tokens.generated - 1
    assert report.kv.evicted == [{"start": PAGE, "stop": length // PAGE * PAGE - WINDOW, "kept": 0.0}]
    assert report.kv.map["where"].count("x") == (report.kv.evicted[0]["stop"] - PAGE) // PAGE
    assert sum(report.kv.pages.values()) <= (PAGE + WINDOW) // PAGE + 1
    assert (again.text, again.stats.reused) == (report.answer, 0)  # what was evicted is not stored as if it were whole


@needs_llama
def test_a_chat_with_a_window_begins_with_what_was_kept_before_it(shallow, tried, home, tmp_path):
    text = tmp_path / "rivers.txt"
    text.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(110)))
    given = {**PLAIN, "model": str(shallow), "engine": "llama.cpp", "max_tokens": 8, "mode": "full", "chunk": BATCH}
    windowed = {**given, "keep": f"sink-window:{WINDOW}", "kv": "f32"}
    talks = []
    for folder, prepared in ((home, True), (tmp_path / "other", False)):
        link_tried(folder, tried)
        if prepared:
            with Session(load_settings(home=folder, **given | {"kv": "f32"})) as session:
                list(session.prepare(str(text)))
        talks.append([])
        for _ in range(2):  # and after a restart
            with Session(load_settings(home=folder, **windowed)) as session:
                session.sources = (str(text),)
                chat = session.chat()
                talks[-1] += [chat.ask(question) for question in ("How long is river 7?", "And the longest?")]
    kept, read = talks
    assert [turn.text for turn in kept] == [turn.text for turn in read]
    assert all(turn.stats.reused > 2800 for turn in (kept[0], kept[2]))
    assert read[0].stats.reused == 0
    assert read[2].stats.reused < PAGE + WINDOW + BATCH  # what was read before anything was evicted


@needs_llama
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"llama", "qwen3"}))
def test_a_model_that_cannot_shift_is_refused_with_the_reason(family, tried, home, tmp_path, document):
    reasons = {"gemma3": "sliding layers", "lfm2": "recurrent states", "granitehybrid": "recurrent states"}
    check_refusal(
        home, tried, document, f"--keep sink-window does not work .*{reasons[family]}", family, keep="sink-window"
    )


@needs_llama
@pytest.mark.parametrize("keeper", ["snapkv", "h2o", "keydiff", "select"])
def test_a_keeper_that_goes_by_attention_is_refused_by_name(keeper, tried, home, document):
    reason = f"--keep {keeper} needs attention or keys, which llama.cpp does not report"
    check_refusal(home, tried, document, reason, keep=keeper)


@needs_llama
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kv": "bf16"}, "cannot rotate keys in bf16"),
        ({"kv": "int8"}, "cannot rotate keys in int8"),
        ({"rope": "yarn:2"}, "scaled by yarn:2"),
    ],
)
def test_what_llama_cpp_would_rotate_wrongly_is_refused(settings, reason, tried, home, document):
    check_refusal(home, tried, document, reason, keep="sink-window", **settings)


def check_refusal(home: Path, tried: Path, document: Path, reason: str, family: str = "llama", **settings) -> None:
    link_tried(home, tried)
    model = write_tiny_gguf(home / "model.gguf", family)
    given = {**PLAIN, "home": home, "model": str(model), "engine": "llama.cpp", "mode": "full"}
    with Session(load_settings(**given, **settings)) as session, pytest.raises(UsageError, match=reason) as refused:
        session.ask("How long?", [str(document)])
    assert refused.value.remedy
