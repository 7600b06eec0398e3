"""KV under pressure: budgets too small for it, memory that runs out, keepers, several answers, longer windows."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ask_in_process import PLAIN, session

from localctx.budget import TierLimits
from localctx.cli.terminal import Terminal
from localctx.engine.coroutine import compute_alone, drive
from localctx.engine.decoding.beams import beam_search
from localctx.engine.decoding.prefill_decode import decode
from localctx.engine.events import Done, Event, Evicted, Note, Planned, Token
from localctx.engine.planning.cache_plan import (
    MARGIN,
    CachePlan,
    OomRecovery,
    choose_window,
    out_of_memory,
    plan_cache,
)
from localctx.errors import Cancelled, OutOfKVMemory, TooLong, UserError
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.kv.reencode import reencode
from localctx.kv.tiers import DiskTier, MemoryTier
from localctx.models.catalog import CatalogEntry, ContextWindow
from localctx.models.sampling import Sampler
from localctx.session import Session
from localctx.settings import Settings
from localctx.shape import PAGE, KVShape, LayerShape
from localctx.store.store import Store

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"
LAKES = 2717  # tokens of ``lakes`` that every question shares, in 43 pages, the last open


@pytest.fixture
def lakes(tmp_path) -> Path:
    """A text of 2,700 tokens: 42 pages and more."""
    path = tmp_path / "lakes.txt"
    path.write_text("".join(f"Lake {i:03} is deep.\n" for i in range(150)))
    return path


@pytest.fixture
def open_session(home, tiny_model) -> Callable:
    return lambda **settings: session(home, tiny_model, **{"chunk": 512, "max_tokens": 12, **settings})


@pytest.fixture
def open_sharp(home, sharp_model) -> Callable:
    """Sessions whose answer shows any difference, reading a page at a time as kept pages are read."""
    return lambda **settings: session(home, sharp_model, **settings)


@pytest.fixture
def run(home, tiny_model, monkeypatch, capsys) -> Callable:
    """The command with the tiny model, in this process: (code, stdout, stderr)."""
    from localctx import cli

    for name, value in {**PLAIN, "max_tokens": 6, "model": tiny_model, "chunk": 512}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["localctx", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        return cli.run(), *capsys.readouterr()

    return run


@dataclass(frozen=True)
class Heard:
    """The events of one question."""

    events: list[Event]

    def of(self, kind: type) -> list:
        return [e for e in self.events if isinstance(e, kind)]

    @property
    def ids(self) -> list[int]:
        return [t.id for t in self.of(Token)]

    @property
    def notes(self) -> list[str]:
        return [n.text for n in self.of(Note)]

    @property
    def plan(self) -> Planned:
        return self.of(Planned)[0]

    @property
    def report(self) -> dict:
        return self.of(Done)[0].report

    @property
    def kv(self) -> dict:
        return self.report.to_json()["kv"]


def ask(s: Session, *files: Path, keep: bool = False, question: str = QUESTION) -> Heard:
    return Heard(list(s.stream(question, [str(f) for f in files], persist=keep)))


def answers(heard: Heard) -> list[list[int]]:
    tokens = heard.of(Token)
    return [[t.id for t in tokens if t.answer == i] for i in range(len(heard.report.to_json()["answers"]))]


@contextmanager
def failing(
    s: Session, when: Callable[[Cache], bool], error: Exception, hear: Callable = lambda cache: None
) -> Iterator:
    """While ``when`` says so, reading runs out of memory."""
    forward_each = s.model.forward_each

    def fails(feeds, *cancelled):
        cache = feeds[0].cache
        hear(cache)
        if cache.phase != "answering" and when(cache):
            raise error
        return forward_each(feeds, *cancelled)

    s.model.forward_each = fails
    try:
        yield
    finally:
        del s.model.forward_each


# --- Budgets


def test_the_same_answer_wherever_the_pages_are(open_sharp, lakes):
    with open_sharp() as s:
        plain, shape = ask(s, lakes), s.model.shape
    pages, kv = sum(plain.kv["pages"].values()), shape.cache_bytes("int8", 2600)
    assert plain.kv["pages"] == {"device": pages, "host": 0, "disk": 0}
    assert plain.plan.tiers == {"device": plain.plan.kv_bytes, "host": 0, "disk": 0}
    for below, caps in {"host": {"ram": str(kv), "disk": "0"}, "disk": {"ram": "0"}}.items():
        with open_sharp(memory=str(kv // 8), **caps) as s:
            heard = ask(s, lakes)
        assert heard.ids == plain.ids
        assert heard.kv["bytes"]["device"] <= kv // 8
        assert sum(heard.kv["pages"].values()) == pages
        assert 0 < heard.kv["pages"]["device"] < pages / 6
        assert heard.kv["pages"][below] == pages - heard.kv["pages"]["device"]
        assert heard.plan.tiers["device"] == kv // 8
        assert heard.plan.tiers[below] == heard.plan.kv_bytes - kv // 8


def test_part_in_ram_and_the_rest_on_disk_and_kept_pages_are_read_where_they_lie(open_sharp, lakes):
    with open_sharp() as s:
        plain = ask(s, lakes, keep=True)
        page = s.model.shape.page_bytes("int8")
    with open_sharp(memory=str(4 * page), ram=str(10 * page), disk="1MiB") as s:
        spread = ask(s, lakes)
        kept = ask(s, lakes, keep=True)
    assert spread.ids == kept.ids == plain.ids
    assert all(spread.kv["pages"].values())
    assert kept.kv["bytes"] | {"device": 0} == {"device": 0, "host": 0, "disk": 0}
    assert kept.report.to_json()["tokens"]["reused"] // PAGE == kept.kv["pages"]["disk"]


# --- A spilled page and a stored page are one


@pytest.fixture
def spilled(monkeypatch) -> list[DiskTier]:
    """The disk tiers of the pools that a test makes."""
    tiers = list[DiskTier]()
    make = DiskTier.__init__
    monkeypatch.setattr(DiskTier, "__init__", lambda tier, *args: (make(tier, *args), tiers.append(tier))[0])
    return tiers


@pytest.mark.parametrize("memory", [2, 8, 24])
def test_pages_that_are_persisted_are_not_spilled_as_well(open_sharp, lakes, spilled, memory):
    with open_sharp() as s:
        plain, page = ask(s, lakes), s.model.shape.page_bytes("int8")
        limit = str(s.model.shape.cache_bytes("int8", memory * PAGE))
    with open_sharp(memory=limit) as s:
        before = ask(s, lakes)
        written_before, spilled[:] = sum(tier.bytes_written for tier in spilled), []
        after = ask(s, lakes, keep=True)
        written_after = sum(tier.bytes_written for tier in spilled)
    assert before.ids == after.ids == plain.ids
    pages = LAKES // PAGE
    assert written_before > (pages - memory - 4) * page
    assert written_after <= 2 * page, "those of the question, which are not persisted"
    assert after.kv["bytes"]["disk"] <= 2 * page
    assert after.kv["pages"]["disk"] > pages - memory - 4


def test_a_store_that_is_cleared_meanwhile_does_not_change_the_answer(open_sharp, lakes, home):
    with open_sharp() as s:
        plain, limit = ask(s, lakes), str(s.model.shape.cache_bytes("int8", 8 * PAGE))
    cleared = []

    def clear(cache: Cache) -> None:
        if cache.length > 1500 and not cleared:
            with closing(Store(home)) as store:
                cleared.append(store.clear())

    with open_sharp(memory=limit) as s, failing(s, lambda cache: False, MemoryError(), clear):
        heard = ask(s, lakes, keep=True)
    assert cleared[0] > 0
    assert heard.ids == plain.ids


def stored_copy(pool: Pool, page: int) -> np.ndarray:
    return pool.payload(page).clone().numpy()


def test_without_a_disk_for_spilling_stored_pages_still_leave_memory():
    cache = filled(8 * PAGE, TierLimits(None, 0, 0))
    pool, page = cache.pool, cache.pool.page_bytes(0)
    k, v = cache.read(0, 0, 8, torch.float32)
    pool.allow(TierLimits(0, 0, 0), TierLimits(None, 0, 0))
    with pytest.raises(OutOfKVMemory):
        grow(cache, PAGE)
    for i in cache.pages[2:]:  # the pages used longest ago are not stored
        pool.add_stored_copy(i, partial(stored_copy(pool, i).view))
    grow(cache, 3 * PAGE)
    assert pool.counts() == {"device": 8, "host": 0, "disk": 3}
    assert (pool.disk_tier.nbytes, pool.disk_tier.bytes_written) == (0, 0)
    assert (pool.mapped_bytes, pool.bytes_of(np.array(cache.pages))) == (3 * page, 8 * page)
    assert all(torch.equal(a, b) for a, b in zip((k, v), cache.read(0, 0, 8, torch.float32), strict=True))
    cache.drop()
    assert (pool.mapped_bytes, pool._stored.nbytes) == (0, 0)


def test_a_page_spilled_before_it_is_stored_gives_its_slot_back():
    cache = filled(4 * PAGE, TierLimits(**BIG))
    pool = cache.pool
    assert pool.shrink() == 2
    assert pool.disk_tier.nbytes == 2 * pool.page_bytes(0)
    for i in cache.pages:
        pool.add_stored_copy(i, partial(stored_copy(pool, i).view))
    assert (pool.disk_tier.nbytes, pool.mapped_bytes) == (0, 2 * pool.page_bytes(0))


@pytest.mark.parametrize("wrong", [lambda: None, lambda: np.zeros(3, np.uint8)])
def test_a_stored_copy_that_is_damaged_is_not_used(wrong):
    cache = filled(4 * PAGE, TierLimits(**BIG))
    k, v = cache.read(0, 0, 4, torch.float32)
    for i in cache.pages:
        cache.pool.add_stored_copy(i, wrong)
    assert cache.pool.shrink() == 2
    assert (cache.pool.disk_tier.nbytes, cache.pool.mapped_bytes) == (2 * cache.pool.page_bytes(0), 0)
    assert all(torch.equal(a, b) for a, b in zip((k, v), cache.read(0, 0, 4, torch.float32), strict=True))


def test_where_kernels_want_pages_near_the_host_takes_them_and_only_the_disk_is_spared():
    pool = Pool(SHAPE, "f32", limits=TierLimits(None, 0, None), in_place=False)
    cache = Cache(pool, torch.float32)
    grow(cache, 6 * PAGE)
    for i in cache.pages:
        pool.add_stored_copy(i, partial(stored_copy(pool, i).view))
    pool.allow(TierLimits(0, 2 * pool.page_bytes(0), 0), TierLimits(2 * pool.page_bytes(0), None, None))
    pool.make_room(0)
    assert pool.counts() == {"device": 2, "host": 2, "disk": 2}
    assert (pool.disk_tier.bytes_written, pool.mapped_bytes) == (0, 2 * pool.page_bytes(0))


def test_no_room_anywhere_is_told_before_reading(run, lakes, home):
    code, out, err = run("ask", lakes, QUESTION, "--mode", "full", "--memory", "64KiB", "--ram", "0", "--disk", "0")
    assert (code, out) == (1, "")
    assert re.fullmatch(
        r"localctx: 2,\d\d\d tokens take \d+\.\d KiB of KV; there are 64\.0 KiB of device, 0 B of host, "
        r"0 B of disk; [^\n]*--memory[^\n]*\n",
        err,
    ), err
    with closing(Store(home)) as store:
        assert store.documents.all() == []
        assert store.health()["pages"] == 0


def test_a_device_that_holds_no_page_passes_each_on(open_sharp, document):
    with open_sharp() as s:
        plain = ask(s, document)
    with open_sharp(memory="4KiB", ram="0") as s:
        heard = ask(s, document)
    assert heard.ids == plain.ids
    assert (heard.kv["pages"]["device"], heard.kv["bytes"]["device"]) == (0, 0)


def test_the_real_command_reads_with_the_disk_alone(localctx, document, sharp_model):
    how = ["--model", sharp_model, "--max-tokens", 4, "--threads", 1, "--json", "--no-keep"]
    plain, spilled = (localctx("ask", document, QUESTION, *how, *more) for more in ([], ["--memory", "40KiB"]))
    assert (plain.returncode, spilled.returncode) == (0, 0), spilled.stderr
    plain, spilled = json.loads(plain.stdout), json.loads(spilled.stdout)
    assert spilled["kv"]["pages"]["disk"] > spilled["kv"]["pages"]["device"] > 0
    assert sum(spilled["kv"]["pages"].values()) == sum(plain["kv"]["pages"].values())


def test_the_plan_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    mib = 1 << 20
    tiers = {"device": 30 * mib, "host": 20 * mib, "disk": 12 * mib}
    plan = Planned("full", "because", 900, 0, 62 * mib, 3.2, 9, 4096, "int8", "full", tiers)
    Terminal().show(plan)
    line = "full: 900 tokens, 0 reused, 62 MiB of KV (int8), of which 20 MiB in RAM, 12 MiB on disk, about 3 s\n"
    assert capsys.readouterr().err == line
    Terminal().show(replace(plan, tiers={"device": 62 * mib, "host": 0, "disk": 0}, seconds=None, unusual=True))
    assert capsys.readouterr().err == "full: 900 tokens, 0 reused, 62 MiB of KV (int8)\nbecause\n"


@pytest.mark.parametrize(("memory", "chunk"), [("auto", 512), ("100KiB", 320), ("30KiB", 64), ("1KiB", 64)])
def test_no_step_takes_more_than_half_of_the_device(open_session, memory, chunk):
    with open_session(memory=memory) as s:
        assert plan_cache(s.model, s.settings, "int8", 1000).chunk == chunk


# --- Memory runs out


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("full"), RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()],
    ids=lambda e: type(e).__name__,
)
def test_a_smaller_chunk_is_read_and_the_answer_is_the_same(open_session, lakes, error):
    with open_session() as s:
        plain = ask(s, lakes)
        once = iter([False, False, True])
        with failing(s, lambda cache: next(once, False), error):
            heard = ask(s, lakes)
    assert heard.ids == plain.ids
    assert heard.notes == ["memory ran out: reading 256 tokens at a time"]
    assert (heard.kv["chunk"], heard.kv["codec"]) == (256, "int8")
    assert heard.report.to_json()["tokens"] == plain.report.to_json()["tokens"]


def test_memory_for_pages_that_runs_out_leaves_no_step_open(open_session, lakes, monkeypatch):
    with open_session() as s:
        plain, new, count = ask(s, lakes), MemoryTier.new, iter(range(99))

        def fails(tier, page, nbytes):
            if next(count, 0) == 11:  # amid the second chunk's pages
                raise torch.OutOfMemoryError("full")
            return new(tier, page, nbytes)

        monkeypatch.setattr(MemoryTier, "new", fails)
        heard = ask(s, lakes)
        assert s.runtime.pools.page_counts == {"device": 0, "host": 0, "disk": 0}
    assert heard.ids == plain.ids
    assert heard.notes == ["memory ran out: reading 256 tokens at a time"]


def test_memory_of_the_host_that_cannot_be_had_is_no_room_and_loses_nothing(monkeypatch):
    cache = filled(4 * PAGE, TierLimits(None, None, 0))
    k, v = cache.read(0, 0, 4, torch.float32)
    cache.pool.device_tier.limit = 2 * cache.pool.page_bytes(0)

    def refuses(page, payload):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(cache.pool.host_tier, "put", refuses)
    with pytest.raises(OutOfKVMemory, match="out of memory"):
        cache.pool.make_room(0)
    assert cache.pool.counts() == {"device": 4, "host": 0, "disk": 0}
    assert all(torch.equal(a, b) for a, b in zip((k, v), cache.read(0, 0, 4, torch.float32), strict=True))


def test_another_error_is_no_want_of_memory(open_session, lakes):
    with (
        open_session() as s,
        failing(s, lambda cache: True, RuntimeError("shape mismatch")),
        pytest.raises(RuntimeError, match="shape"),
    ):
        ask(s, lakes)


def test_pages_are_spilled_when_smaller_chunks_do_not_help(open_session, lakes):
    with open_session() as s:
        plain = ask(s, lakes)
        with failing(s, lambda cache: cache.pool.device_tier.nbytes > 150_000, MemoryError()):
            heard = ask(s, lakes)
    assert heard.ids == plain.ids
    assert [n.split(": ")[1][:7] for n in heard.notes[:3]] == ["reading"] * 3
    assert all(re.fullmatch(r"memory ran out: \d+ pages of KV were moved from the device", n) for n in heard.notes[3:])
    assert len(heard.notes) > 3
    assert heard.kv["pages"]["disk"] > heard.kv["pages"]["device"] > 0


def test_a_codec_that_passed_meanwhile_is_taken_and_nothing_more_is_kept(open_session, lakes):
    def passes(cache: Cache) -> bool:
        if cache.length < 1024 or cache.pool.codec != "int8":
            return False
        s.store.quality_results.note(s.model.fingerprint("int4"), "tiny", "int4", True, {})
        return True

    with open_session() as s:
        plain = ask(s, lakes)
        with failing(s, passes, MemoryError()):
            heard = ask(s, lakes, keep=True)
        assert heard.notes[-1].endswith("are kept as int4 from here on, and not on disk")
        assert (len(heard.notes), heard.kv["codec"], heard.kv["pages"]["disk"]) == (4, "int4", 0)
        assert s.store.health()["pages"] == 1024 // PAGE
    with open_session(kv="int8") as s:
        again = ask(s, lakes, keep=True)
    assert again.report.to_json()["tokens"]["reused"] == 1024
    assert again.ids == plain.ids


def test_when_nothing_helps_it_is_told_and_the_next_question_works(open_session, lakes, document):
    with open_session() as s:
        plain, caches = ask(s, document), []
        with (
            failing(s, lambda cache: cache.length > 600, MemoryError(), caches.append),
            pytest.raises(OutOfKVMemory) as told,
        ):
            ask(s, lakes)
        assert isinstance(told.value, UserError)
        assert "--memory" in told.value.remedy
        assert caches[-1].pool.counts() == {"device": 0, "host": 0, "disk": 0}
        assert ask(s, document).ids == plain.ids


def test_memory_that_runs_out_in_the_answer_is_told(open_session, document):
    with open_session() as s:
        forward_each = s.model.forward_each

        def fails(feeds, *cancelled):
            if feeds[0].cache.phase == "answering":
                raise MemoryError
            return forward_each(feeds, *cancelled)

        s.model.forward_each = fails
        with pytest.raises(OutOfKVMemory, match="memory ran out"):
            ask(s, document)


SHAPE = KVShape((LayerShape(1, 8, 8),))
BIG = {"device": None, "host": 0, "disk": None}


def filled(tokens: int, limits: TierLimits | None = None, codec: str = "f32") -> Cache:
    """A cache of random keys and values."""
    cache = Cache(Pool(SHAPE, codec, limits=limits), torch.float32)
    grow(cache, tokens)
    return cache


def grow(cache: Cache, tokens: int) -> None:
    cache.begin(tokens)
    cache.extend(0, torch.randn(1, tokens, 8), torch.randn(1, tokens, 8))
    cache.commit()


def test_the_steps_of_recovery_come_in_their_order():
    cache = filled(10 * PAGE, TierLimits(**BIG))
    recovery = OomRecovery(300, lambda codec: "int8" if codec == "f32" else None)
    said = [recovery(cache) for _ in range(4)]
    assert [s.split(": ")[1].split()[0] for s in said] == ["reading", "reading", "keys", "5"]
    assert (recovery.chunk, cache.pool.codec) == (PAGE, "int8")
    assert not cache.exact
    while recovery(cache):
        pass
    assert cache.pool.counts() == {"device": 0, "host": 0, "disk": 10}


def test_a_full_budget_is_not_relieved_by_moving_pages():
    cache = filled(4 * PAGE, TierLimits(**BIG))
    assert OomRecovery(PAGE)(cache, of_budget=True) is None
    assert cache.pool.counts()["device"] == 4


def test_spilling_gives_the_memory_back():
    cache = filled(4 * PAGE, TierLimits(**BIG))
    assert cache.pool.shrink() == 2
    assert not any(cache.pool.device_tier._free.values())


def test_a_codec_there_is_no_memory_for_leaves_all_as_it_was(monkeypatch):
    cache = filled(4 * PAGE + 3, TierLimits(**BIG))
    k, v = cache.read(0, 0, 4, torch.float32)
    seal = Pool.seal
    full = iter([False, False, True])

    def fails(*how):
        if next(full):
            raise MemoryError
        return seal(*how)

    monkeypatch.setattr(Pool, "seal", fails)
    assert OomRecovery(PAGE, lambda codec: "int8")(cache) is not None, "what comes next is tried"
    assert (cache.pool.codec, cache.exact) == ("f32", True)
    assert all(torch.equal(a, b) for a, b in zip((k, v), cache.read(0, 0, 4, torch.float32), strict=True))


def test_turned_sinks_move_along_to_another_codec(open_session, lakes):
    with open_session() as s:
        model = s.model
        plain, other = (CachePlan("f32", make_keeper("sink-window:256", 2000)).new_cache(model) for _ in range(2))
        tokens = model.tokenizer.encode(lakes.read_text())[:1600]
        for cache in (plain, other):
            for at in range(0, 1024, 128):
                model.forward(tokens[at : at + 128], cache)
        assert other.table.originals
        reencode(other, "bf16")
        for at in range(1024, 1600, 64):
            a, b = (model.forward(tokens[at : at + 64], cache) for cache in (plain, other))
        assert torch.allclose(a, b, atol=0.02)
        other.drop()
        assert other.pool.counts() == {"device": 0, "host": 0, "disk": 0}


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("x"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("size mismatch"), False),
        (ValueError("allocate memory"), False),
    ],
)
def test_what_says_that_memory_ran_out(error, is_it):
    assert out_of_memory(error) is is_it


# --- Several answers


def test_three_answers_are_those_of_three_runs_and_share_their_pages(open_session, document):
    counts, caches = [], []

    def hear(cache: Cache) -> None:
        caches.append(cache)
        if cache.phase == "answering":
            counts.append(sum(cache.pool.counts().values()))

    how = {"temperature": 0.8, "max_tokens": 20}
    with open_session(**how, n=3, seed=1) as s, failing(s, lambda cache: False, MemoryError(), hear):
        heard = ask(s, document)
    assert [len(a) for a in answers(heard)] == [20, 20, 20]
    assert len({tuple(a) for a in answers(heard)}) == 3
    assert len(heard.report.to_json()["answers"]) == 3
    assert (heard.report.to_json()["tokens"]["generated"], heard.report.to_json()["tokens"]["longest"]) == (60, 20)
    assert max(counts) - counts[0] <= 1, "each has one open page of its own at most"
    assert caches[-1].pool.counts() == {"device": 0, "host": 0, "disk": 0}
    for i, answer in enumerate(answers(heard)):
        with open_session(**how, seed=1 + i) as s:
            assert ask(s, document).ids == answer


def test_several_answers_on_the_terminal(run, document):
    code, out, err = run("ask", document, QUESTION, "--n", 3, "--temperature", 0.1, "--seed", 1, "--no-keep")
    assert code == 0
    assert [line[:2] for line in out.splitlines() if re.match(r"\d: ", line)] == ["1:", "2:", "3:"]
    assert err == "localctx: an answer was cut at 6 tokens; see --max-tokens\n"
    code, _, err = run("ask", document, QUESTION, "--n", 3)
    assert code == 2
    assert "--temperature" in err


# --- Beams


class Chain:
    """A fake model: the next token's probabilities hang on the last token alone. 0 is the stop token."""

    after: dict[int | None, dict[int, float]]

    def __init__(self, after: dict) -> None:
        self.after = after
        self.tokenizer = SimpleNamespace(stop_ids=frozenset({0}), stream=lambda: str)

    def logits(self, token: int | None) -> torch.Tensor:
        p = torch.full((8,), 1e-9)
        for t, mass in self.after[token].items():
            p[t] = mass
        return p.log()

    def forward_each(self, feeds, cancelled=lambda: False) -> list[torch.Tensor]:
        if cancelled():
            raise Cancelled
        (feed,) = feeds
        grow(feed.cache, len(feed.tokens))
        return [self.logits(feed.tokens[-1])[None]]

    def search(self, cache, cancelled=lambda: False, **how):
        steps = beam_search(cache, self.logits(None), tokenizer=self.tokenizer, **how)
        return drive(steps, compute_alone(self, cancelled))


TRAP = Chain({None: {1: 0.6, 2: 0.4}, 1: {3: 0.51, 4: 0.49}, 2: {5: 1}, 3: {0: 1}, 4: {0: 1}, 5: {0: 1}})


@pytest.mark.parametrize(("width", "found"), [(1, [1, 3]), (2, [2, 5])])
def test_beams_find_what_greed_misses_and_give_their_pages_back(width, found):
    cache = filled(2 * PAGE + 60)
    events = list(TRAP.search(cache, width=width, limit=9))
    assert [e.id for e in events if isinstance(e, Token)] == found
    assert cache.pool.counts()["device"] == 2
    assert all(cache.pool.references.refs(page) == 1 for page in cache.pages)


def test_an_answer_without_end_is_cut():
    endless = Chain({None: {1: 0.9, 2: 0.1}, 1: {1: 1}, 2: {2: 1}})
    cache = filled(3)
    events = list(endless.search(cache, width=2, limit=5))
    assert [e.id for e in events if isinstance(e, Token)] == [1] * 5


def test_cancelled_beams_give_their_pages_back():
    cache, asked = filled(2 * PAGE + 62), iter([False] * 7 + [True] * 9)
    endless = Chain({None: {1: 0.5, 2: 0.5}, 1: {1: 0.5, 2: 0.5}, 2: {1: 0.5, 2: 0.5}})
    search = endless.search(cache, lambda: next(asked), width=2, limit=50)
    with pytest.raises(Cancelled):
        list(search)
    assert cache.pool.counts()["device"] == 2
    cache.drop()
    assert cache.pool.counts()["device"] == 0


def test_one_beam_is_greedy(open_session, document):
    with open_session() as s:
        greedy, model = ask(s, document), s.model
        cache = CachePlan("int8").new_cache(model)
        logits = model.forward(model.tokenizer.encode(document.read_text()), cache)[-1]
        how = {"tokenizer": model.tokenizer, "limit": 8}
        found = (beam_search(cache, logits, width=1, **how), decode(cache, logits, sampler=Sampler(0), **how))
        one, plain = ([e.id for e in drive(f, compute_alone(model)) if isinstance(e, Token)] for f in found)
        assert one == plain
    with open_session(beams=3) as s:
        heard = ask(s, document)
    assert 0 < len(heard.ids) <= len(greedy.ids)
    assert "beams" in {e.phase for e in heard.events if hasattr(e, "phase")}


# --- Keepers


@pytest.mark.parametrize("keep", ["sink-window:256", "h2o:256"])
def test_what_is_dropped_is_told_and_nothing_is_kept_nor_used(run, lakes, home, keep):
    name = keep.split(":")[0]
    assert run("prepare", lakes)[0] == 0
    with closing(Store(home)) as store:
        before = store.health()["pages"]
    code, out, err = run("ask", lakes, QUESTION, "--keep", keep, "--json")
    report = json.loads(out)
    kv, prompt = report["kv"], report["tokens"]["prompt"]
    assert (code, kv["keeper"], report["tokens"]["reused"]) == (0, name, 0)
    assert all(e.keys() == {"start", "stop", "kept"} and e["kept"] == 0 for e in kv["evicted"])
    gone = sum(e["stop"] - e["start"] for e in kv["evicted"])
    assert prompt - 600 < gone < prompt - 200
    assert sum(kv["pages"].values()) <= 256 // PAGE + 2
    assert f"localctx: {name} dropped {gone:,} of {prompt:,} tokens (from 64-" in err
    with closing(Store(home)) as store:
        assert store.health()["pages"] == before
    assert json.loads(run("ask", lakes, QUESTION, "--json")[1])["tokens"]["reused"] == LAKES


@pytest.mark.parametrize("keep", ["snapkv:256", "select:1/4"])
def test_keepers_that_act_late_keep_exact_pages(run, lakes, keep):
    plain = json.loads(run("ask", lakes, QUESTION, "--json", "--no-keep")[1])
    _, out, err = run("ask", lakes, QUESTION, "--keep", keep, "--json")
    kv = json.loads(out)["kv"]
    assert kv["keeper"] == keep.split(":")[0]
    if kv["keeper"] == "snapkv":
        assert "snapkv dropped" in err
        assert all(0 < e["kept"] < 1 for e in kv["evicted"])
        assert kv["evicted"]
    else:
        assert (kv["evicted"], "dropped" in err) == ([], False)
    again = json.loads(run("ask", lakes, QUESTION, "--json")[1])
    assert again["tokens"]["reused"] == LAKES
    assert again["answer"] == plain["answer"]


def test_events_tell_what_was_dropped(open_session, lakes):
    with open_session(keep="sink-window:256") as s:
        heard = ask(s, lakes)
    dropped = heard.of(Evicted)
    assert dropped[-1].tokens == sum(stop - start for start, stop in dropped[-1].ranges)
    assert [e.tokens for e in dropped] == sorted({e.tokens for e in dropped})
    assert dropped[-1].ranges[0][0] == PAGE
    assert heard.plan.keeper == "sink-window"
    assert heard.plan.unusual
    assert "sink-window keeps about 320" in heard.plan.reason


def test_a_document_longer_than_the_window(open_session, tmp_path):
    path = tmp_path / "sea.txt"
    path.write_text("".join(f"Wave {i:04} is high.\n" for i in range(260)))
    with open_session(keep="sink-window:256") as s:
        heard = ask(s, path)
        assert heard.report.to_json()["tokens"]["prompt"] > s.model.context
        assert len(heard.ids) == 12
        assert heard.kv["evicted"][0]["start"] == PAGE
    with open_session(mode="full") as s, pytest.raises(TooLong, match="at most 4,096"):
        ask(s, path)


def test_preparing_what_would_be_dropped_is_refused(run, lakes, document):
    code, _, err = run("prepare", lakes, "--keep", "sink-window:256")
    assert code == 2
    assert re.fullmatch(r"localctx: sink-window drops part of lakes\.txt: nothing could be kept[^\n]*\n", err), err
    assert run("prepare", document, "--keep", "sink-window:2048")[0] == 0, "all of it is seen"


# --- Longer windows


@pytest.fixture
def catalogued(tiny_model, monkeypatch) -> CatalogEntry:
    """The tiny model with a longer window that was tested."""
    from localctx.engine.planning import cache_plan
    from localctx.models import catalog

    entry = CatalogEntry(str(tiny_model), "", "", 4096, 0, 0, 0, (), (ContextWindow(8192, "yarn:2"),))
    for module in (cache_plan, catalog):
        monkeypatch.setattr(module, "load_catalog", lambda: {entry.name: entry})
    return entry


def test_a_longer_window_is_taken_when_needed_and_given_up_after(open_session, catalogued, tmp_path, document):
    path = tmp_path / "sea.txt"
    path.write_text("".join(f"Wave {i:04} is high.\n" for i in range(230)))
    with open_session(max_tokens=4) as s:
        short, plain = ask(s, document), s.model.fingerprint("int8")
        heard, stretched = ask(s, path), s.model.fingerprint("int8")
        again = ask(s, document)
        assert s.model.fingerprint("int8") == plain != stretched
    assert (short.plan.window, heard.plan.window, again.plan.window) == (4096, 8192, 4096)
    assert (short.plan.unusual, heard.plan.unusual) == (False, True)
    assert "stretched from 4,096 to 8,192" in heard.plan.reason
    assert again.ids == short.ids


@pytest.mark.parametrize(
    ("documents", "prompt", "window"),
    [
        (1000, 1100, 4096),
        (4096 - MARGIN, 4000, 4096),
        (4096 - MARGIN + 1, 4000, 8192),
        (3000, 4096, 8192),  # the question alone needs it
        (8000, 8100, 8192),  # without the margin
        (8000, 9000, 4096),  # none holds it
    ],
)
def test_the_window_for_a_prompt(catalogued, home, documents, prompt, window):
    model = SimpleNamespace(trained=4096, context=4096)
    settings = Settings(home, model=catalogued.name)
    assert choose_window(settings, model, documents, prompt).context == window
    assert choose_window(replace(settings, keep="sink-window"), model, documents, prompt).context == 4096
    assert choose_window(replace(settings, rope="yarn:2"), model, documents, prompt) == ContextWindow(4096, "yarn:2")


# --- What auto means


def test_auto_takes_int4_once_it_passed(open_session, document):
    with open_session() as s:
        assert ask(s, document).kv["codec"] == "int8"
        s.store.quality_results.note(s.model.fingerprint("int4"), "tiny", "int4", True, {})
        assert ask(s, document).kv["codec"] == "int4"
    with open_session(kv="bf16") as s:
        assert ask(s, document).kv["codec"] == "bf16"
