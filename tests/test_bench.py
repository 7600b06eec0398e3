"""Measuring: engines take turns on one text, medians and spreads are right, and stopping keeps what was measured."""

import json
import os
import shutil
import signal
import statistics
import time
from contextlib import closing, nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from asking import PLAIN
from hypothesis import given
from hypothesis import strategies as st
from test_cli import assert_one_line
from tiny_gguf import write_gguf as write_other

from localctx.bench import ENGINES, WHAT
from localctx.bench.engines import Engine, Engines
from localctx.bench.kept import Keepable, Kept
from localctx.bench.measure import DECODED, Bench, room, spread
from localctx.bench.ours import drop_pages
from localctx.bench.pace import LONG, Ahead, Turn, reading
from localctx.bench.run import run as run_bench
from localctx.errors import ModelError
from localctx.models.llama import WAYS, Llama, llama_is_here
from localctx.models.llama_gguf import write_gguf

TEXT = [(i * 37 + i // 7) % 250 for i in range(600)]
needs_llama = pytest.mark.skipif(not llama_is_here(), reason="llama-cpp-python is not installed")


class Fake:
    """An engine whose turns take the seconds it is told, on a clock of its own; ``log`` has what was asked of it."""

    reads, kv, nbytes = True, "fake", 1

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

    def forget(self) -> None:
        self._at.forgotten += 1


class Fakes:
    """Stands for ``Engines``, and for the clock."""

    chosen, codecs, keeps = ENGINES, (), ()

    def __init__(self) -> None:
        self.now, self.log, self.engines, self.forgotten = 1.0, list[Any](), list[Engine](), 0
        self.stopped = lambda: False

    def open(self, context: int, room: int) -> nullcontext[list[Engine]]:
        return nullcontext(self.engines)

    def warm(self) -> None:
        pass

    def measure(
        self, what: str, repeat: int, contexts: tuple[int, ...] = (100,), kept: Kept | None = None, **how: Any
    ) -> Bench:
        at: Any = self
        bench = Bench(at, TEXT, what.split(","), contexts, repeat, clock=lambda: at.now, kept=kept, **how)
        run_bench(bench)
        return bench


# Turns, medians, spreads


def test_engines_take_turns_on_the_same_tokens():
    fakes = Fakes()
    fakes.engines = [Fake(name, fakes, [1.0] * 3) for name in "ab"]
    fakes.measure("decode", repeat=3)
    assert [(who, what) for who, what, _ in fakes.log[:2]] == [("a", "read"), ("b", "read")]
    turns = fakes.log[2:]
    assert [who for who, _, _ in turns] == ["a", "b"] * 3
    assert [a[2] == b[2] and len(a[2]) == DECODED for a, b in zip(turns[::2], turns[1::2], strict=True)] == [True] * 3
    assert len({tokens for _, _, tokens in turns}) == 3  # each round goes on in the text


seconds = st.floats(0.001, 1000)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(*[st.lists(seconds, min_size=n, max_size=n)] * 2)))
def test_rows_are_medians_of_rounds_and_how_far_these_differ(times):
    fakes = Fakes()
    fakes.engines = [Fake(name, fakes, took) for name, took in zip("ab", times, strict=True)]
    rows = fakes.measure("decode", repeat=len(times[0])).samples.rows("decode")
    for row, name, took in zip(rows, "ab", times, strict=True):
        assert (row["engine"], row["kv"], row["context"]) == (name, "fake", 100)
        assert row["ms_per_token"] == pytest.approx(1000 * statistics.median(took) / DECODED, abs=0.002, rel=1e-4)
        wanted = (max(took) - min(took)) / statistics.median(took)
        assert (row["spread"] is None) if len(took) == 1 else row["spread"] == pytest.approx(wanted, abs=0.01, rel=0.01)


def test_the_spread_by_hand():
    assert spread([1, 2, 4]) == 1.5
    assert spread([1]) is None


def test_who_reads_for_long_reads_once():
    fakes = Fakes()
    fakes.engines = [Fake("quick", fakes, [], 2.0), Fake("slow", fakes, [], LONG + 1)]
    quick, slow = fakes.measure("prefill", repeat=3).samples.rows("prefill")
    assert [who for who, _, _ in fakes.log] == ["quick", "slow", "quick", "quick"]
    assert quick["tokens_per_second"] == 50
    assert quick["spread"] == 0
    assert slow["spread"] is None


def test_contexts_come_shortest_first_and_stopping_keeps_what_there_is():
    fakes = Fakes()
    fakes.engines = [Fake("a", fakes, [1.0] * 99)]
    fakes.stopped = lambda: sum(what == "decode" for _, what, _ in fakes.log) == 3
    rows = fakes.measure("decode", repeat=2, contexts=(200, 50, 100)).samples.rows("decode")
    assert [row["context"] for row in rows] == [50, 100]


def test_one_reading_goes_through_all_contexts():
    """What was decoded at one is part of the text, and is not read again; rates are of what was read."""
    fakes = Fakes()
    fakes.engines = [Fake("a", fakes, [1.0] * 9, LONG)]
    rows = fakes.measure("decode,prefill", repeat=2, contexts=(200, 100)).samples.rows("prefill")
    lengths = [len(what) if of == "decode" else what for _, of, what in fakes.log]
    assert lengths == [100, DECODED, DECODED, 200 - 100 - 2 * (DECODED + 1), DECODED, DECODED]
    assert [of for _, of, _ in fakes.log] == ["read", "decode", "decode"] * 2
    assert [row["tokens_per_second"] for row in rows] == [round(100 / LONG, 3), round(182 / (2 * LONG), 3)]


def test_a_context_that_decoding_has_passed_is_read_from_the_beginning():
    fakes = Fakes()
    fakes.engines = [Fake("a", fakes, [1.0] * 9)]
    fakes.measure("decode", repeat=2, contexts=(100, 110))
    assert [what for _, of, what in fakes.log if of == "read"] == [100, 110]
    assert fakes.forgotten == 1


# What a run keeps for the next


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


def kept_run(kept: Kept, reading: float = LONG + 1, contexts: tuple[int, ...] = (100, 200), full: bool = False) -> Any:
    """What was done, but for decoding, and the rows of prefill, of a run with a peer that reads for so long."""
    fakes = Fakes()
    fakes.engines = [FakePeer("peer", fakes, [1.0] * 99, reading)]
    fakes.engines[0].full = full  # type: ignore[attr-defined]
    rows = fakes.measure("decode,prefill", 2, contexts, kept).samples.rows("prefill")
    return [what for _, *what in fakes.log if what[0] != "decode"], rows


def test_what_was_read_for_long_is_not_read_by_the_next_run(tmp_path):
    done, fresh = kept_run(Kept(tmp_path))
    assert done == [["read", 100], ["read", 82]]
    again, kept = kept_run(Kept(tmp_path), contexts=(50, 200))
    assert again == [["read", 50], ["load", 200]]
    assert "day" not in fresh[1]
    assert kept[1] == {**fresh[1], "day": date.today().isoformat()}
    assert not list(tmp_path.glob("*.part"))


def test_what_is_read_quickly_is_not_kept(tmp_path):
    kept_run(Kept(tmp_path), reading=1.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("harm", ["state", "facts", "none"])
def test_a_damaged_reading_is_told_and_read_anew(tmp_path, harm):
    said = list[str]()
    kept_run(Kept(tmp_path), contexts=(100,))
    state, facts = (next(tmp_path.glob(f"*.{suffix}")) for suffix in ("state", "json"))
    for path in {"state": [state], "facts": [facts], "none": []}[harm]:
        path.write_text("[]")
    if harm == "none":
        state.unlink()
    done, rows = kept_run(Kept(tmp_path, said.append), contexts=(100,))
    assert done == [["read", 100]]
    assert "day" not in rows[0]
    assert said == ["what peer had read to 100 tokens is damaged: it is read anew"]
    assert kept_run(Kept(tmp_path), contexts=(100,))[0] == [["load", 100]], "and kept again"


def test_what_cannot_be_kept_is_told(tmp_path):
    said = list[str]()
    kept_run(Kept(tmp_path, said.append), contexts=(100,), full=True)
    assert not list(tmp_path.iterdir())
    assert len(said) == 1
    assert "cannot be kept" in said[0]


def test_the_reading_used_longest_ago_goes_first(tmp_path):
    kept_run(Kept(tmp_path))
    first, second = sorted(tmp_path.glob("*.state"), key=lambda path: path.stat().st_size)
    os.utime(first, (0, 0))
    os.utime(second, (1, 1))
    (tmp_path / "killed.part").write_bytes(bytes(99))
    os.utime(tmp_path / "killed.part", (0, 0))
    kept_run(Kept(tmp_path, limit=first.stat().st_size + second.stat().st_size), contexts=(90,))
    left = {path.stem for path in tmp_path.iterdir()}
    assert {first.stem, "killed"}.isdisjoint(left)
    assert second.stem in left
    assert len(left) == 2


def test_all_that_was_kept_is_forgotten(tmp_path):
    kept_run(Kept(tmp_path))
    nbytes = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert Kept(tmp_path).forget() == nbytes
    assert not list(tmp_path.iterdir())
    assert Kept(tmp_path / "nowhere").forget() == 0


# How long it still takes


def test_what_is_left_goes_at_the_pace_of_each():
    ahead = Ahead()
    for who in ("quick", "slow"):
        ahead.expect(Turn(who, 10), 2)
    assert ahead.seconds is None
    ahead.done(Turn("quick", 10), 1.0)
    assert ahead.seconds == pytest.approx(3.0), "the other is taken for as quick"
    ahead.done(Turn("slow", 10), 9.0)
    assert ahead.seconds == pytest.approx(10.0)


def test_who_reads_for_long_is_not_expected_to_read_again():
    ahead = Ahead()
    ahead.expect(reading("a", 100, again=True), 3)
    ahead.done(reading("a", 50), 1.0)
    assert 5 < ahead.seconds < 8
    ahead.done(reading("a", 50), 2 * LONG)
    assert ahead.seconds == 0


def test_a_run_says_what_is_left_and_that_a_kept_reading_takes_nothing(tmp_path):
    heard = list[float | None]()
    fakes = Fakes()
    fakes.engines = [FakePeer("peer", fakes, [1.0] * 99, 100.0)]
    hear = lambda text, left: heard.append(left)  # noqa: E731
    fakes.measure("decode", 2, (100, 200), Kept(tmp_path), hear=hear)
    first, heard[:] = list(heard), []
    fakes.measure("decode", 2, (100, 200), Kept(tmp_path), hear=hear)
    assert first[0] is None
    assert first[1] > 100, "the second reading is yet to come"
    assert heard[1] < 10


# Engines


@pytest.fixture(scope="module")
def opened(sharp_model, tmp_path_factory):
    """A function to Engines with a sharp tiny model, and what they say."""
    from localctx.loading import Loader
    from localctx.settings import Settings

    settings = Settings(tmp_path_factory.mktemp("home"), model=str(sharp_model), threads=1, chunk=64)
    model, _ = Loader().load(settings, lambda progress: None)
    model.name, said = "sharp", list[str]()
    return lambda **how: (Engines(model, settings, say=said.append, **how), said)  # type: ignore[arg-type]


def greedy(engine: Engine) -> list[int]:
    return [engine.read(TEXT[:300]), *engine.decode(TEXT[300:339])]


@pytest.mark.parametrize("prefix", ["transformers", pytest.param("llama.cpp", marks=needs_llama)])
def test_peers_have_the_same_weights(opened, prefix):
    """Attention is sharp: were the rows of q and k in another order, other tokens would come."""
    engines, _ = opened(chosen=("localctx", prefix), codecs=["f32"])
    with engines.open(300, room(5)) as (ours, *peers):
        mine = greedy(ours)
        for peer in peers:
            if "Quantized" not in peer.name:
                same = sum(a == b for a, b in zip(greedy(peer), mine, strict=True))
                assert same >= 38, f"{peer.name} {peer.kv}: {same} of 40"  # f16 against f32
            assert peer.nbytes > 0 or peer.kv.startswith("fp8")


def test_what_selects_goes_on_from_what_was_read(opened):
    engines, _ = opened(chosen=("localctx",), keeps=["select:256"])
    with engines.open(400, 40) as (full, selecting):
        full.read(TEXT[:400])
        selecting.read(TEXT[:400])
        assert not selecting.reads
        assert selecting.cache.keeper.selected(6) == 4
        assert selecting.cache.pages == full.cache.pages
        assert len(selecting.decode(TEXT[:3])) == 3
        assert full.cache.length == 400


def test_spilled_pages_give_the_same_tokens_also_out_of_the_page_cache(opened):
    engines, _ = opened()
    pages = engines.model.shape.cache_bytes("int8", 512, 0)
    in_memory, spilled = engines.ours("int8", 512), engines.ours("int8", 512, pages // 4)
    for engine in (in_memory, spilled):
        engine.read(TEXT[:512])
    assert spilled.cache.pool.counts()["disk"] >= 5  # of 8; the first is larger
    drop_pages(spilled)
    assert spilled.decode(TEXT[:9]) == in_memory.decode(TEXT[:9])


@needs_llama
def test_llama_goes_on_from_what_it_had_read(opened, tmp_path):
    engines, _ = opened(chosen=("llama.cpp",))
    state = tmp_path / "state"
    with engines.open(300, room(5)) as (first, other, *_):
        assert isinstance(first, Keepable)
        whole = greedy(first)
        first.forget()
        first.read(TEXT[:300])
        assert first.save(state, TEXT[:300])
        assert first.load(state, TEXT[:300])
        assert [whole[0], *first.decode(TEXT[300:339])] == whole
        assert not first.load(state, TEXT[1:301]), "another text"
        assert not other.load(state, TEXT[:300]), "another way to keep values"
        assert other.identity != first.identity
        assert len(greedy(other)) == 40, "it reads anew"


@needs_llama
def test_a_gguf_of_another_model_is_told(opened, tmp_path):
    engines, said = opened(chosen=("llama.cpp",), gguf=write_other(tmp_path / "other.gguf"))
    with engines.open(64, 10) as found:
        assert found == []
    assert any("other.gguf is of another model than sharp" in text for text in said)


@needs_llama
def test_a_file_that_is_no_gguf_is_told(opened, tmp_path):
    (tmp_path / "text.gguf").write_text("hello")
    engines, said = opened(chosen=("llama.cpp",), gguf=tmp_path / "text.gguf")
    with engines.open(64, 10) as found:
        assert found == []
    assert "was not measured" in said[-1]


@needs_llama
def test_a_gguf_is_made_once_and_is_whole(tiny_model, tmp_path):
    made = tmp_path / "a" / "tiny.gguf"
    write_gguf(tiny_model, made)
    assert [p.name for p in made.parent.iterdir()] == ["tiny.gguf"]
    with closing(Llama(made, WAYS[0], 64, 1)) as llama:
        assert llama.vocabulary == 260


def test_no_gguf_is_made_of_what_is_no_plain_llama(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "odd")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"no plain Llama.*--gguf"):
        write_gguf(folder, tmp_path / "odd.gguf")
    assert not (tmp_path / "odd.gguf").exists()


# The command


@pytest.fixture
def bench(run, monkeypatch, tiny_model, document):
    """``localctx bench`` in this process with the tiny model on a short text."""
    for name, value in PLAIN.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    return lambda *arguments: run("bench", document, "--model", tiny_model, *arguments)


def test_json_has_this_shape(bench, tmp_path, home):
    done = bench("--json", "--context", "256,128", "--repeat", 2, "--plot", tmp_path / "speed.png", "--kv", "int8,bf16")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert list(said) == ["machine", "versions", *WHAT]
    assert {"cpu", "cores", "memory", "threads", "noise"} <= said["machine"].keys()
    assert {"model", "localctx", "torch", "transformers"} <= said["versions"].keys()
    keys = {what: {tuple(row) for row in said[what]} for what in WHAT}
    assert keys["decode"] == {("engine", "kv", "context", "ms_per_token", "spread")}
    assert keys["prefill"] == {("engine", "context", "tokens_per_second", "spread")}
    assert keys["reopen"] == {("engine", "kv", "context", "reopen_ms", "reopen_cached_ms", "read_ms", "spread")}
    assert keys["memory"] == {("engine", "kv", "context", "bytes", "process_peak")}
    assert all(row["engine"].startswith(ENGINES) for what in WHAT for row in said[what])
    there = {e for e in ENGINES if e != "llama.cpp" or llama_is_here()}
    for what in ("decode", "prefill", "memory"):
        assert {e for e in ENGINES for row in said[what] if row["engine"].startswith(e)} == there
        assert {row["context"] for row in said[what]} == {128, 256}
    assert {row["engine"] for row in said["spill"]} == {"localctx", "localctx select:2048"}
    assert {"disk_ms_per_token", "cached_ms_per_token", "in_memory_ms_per_token"} <= said["spill"][0].keys()
    assert {(row["kv"], row["context"]) for row in said["reopen"]} == {
        (c, n) for c in ("int8", "bf16") for n in (128, 256)
    }
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert not list(home.glob("bench-*")), "what was kept to be reopened is gone"


def test_tables_name_machine_engines_and_what_is_past_the_window(bench):
    done = bench("--what", "decode,memory", "--context", "4160", "--repeat", 1, "--engines", "localctx,llama.cpp")
    assert done.returncode == 0, done.stderr
    assert "cores" in done.stdout.splitlines()[0]
    assert "DECODE, ms/token" in done.stdout
    assert "localctx select:2048 int8" in done.stdout
    assert "PREFILL" not in done.stdout
    assert "4,160 tokens are past the 4,096" in done.stderr
    assert "4,160 tokens are past the 4,096" in done.stdout
    assert all(line.startswith("localctx: ") for line in done.stderr.splitlines())


def test_forget_deletes_what_was_kept(bench, home):
    (home / "bench").mkdir(parents=True)
    (home / "bench" / "some.state").write_bytes(bytes(3 << 20))
    done = bench("--forget")
    assert (done.returncode, done.stdout) == (0, "deleted 3.0 MiB\n")
    assert not list((home / "bench").iterdir())


@pytest.mark.parametrize("hears", [True, False])
def test_ctrl_c_ends_it_at_once_and_prints_what_was_measured(bench, monkeypatch, hears):
    """Also where a library computes on for seconds and hears nothing."""
    from localctx.bench import run as runs

    pressed, over = list[float](), list[bool]()

    def reopen(bench: Bench, context: int) -> None:
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
        while not (hears and bench.engines.stopped()) and time.monotonic() < pressed[0] + 4:
            time.sleep(0.01)
        over.append(bench.engines.stopped() and hears)
        bench.turn("what is never begun", 1, lambda: pytest.fail("it went on"))

    monkeypatch.setattr(runs, "reopen", reopen)
    flags = ("--what", "decode,reopen", "--context", "128", "--repeat", 2, "--engines", "localctx", "--json")
    done = bench(*flags)
    took, heard = time.monotonic() - pressed[0], list(over)
    assert done.returncode == 130
    assert heard == [True] * hears, "what hears ends by itself, and nobody waits for what does not"
    assert hears or took >= 0.5, "what hears has a moment to end by itself"
    said = json.loads(done.stdout)
    assert said["stopped"] is True
    assert len(said["decode"]) == 2
    assert said["reopen"] == []


@pytest.mark.parametrize(
    ("flags", "problem", "remedy"),
    [
        (["--what", "decode,speed"], "--what 'speed'", "decode,prefill,reopen,spill,memory"),
        (["--engines", "vllm"], "--engines 'vllm'", "localctx,llama.cpp,transformers"),
        (["--kv", "int3"], "--kv 'int3'", "int8"),
        (["--context", "4k"], "--context 4k", "2000,4000"),
        (["--keep", "h2o:2048"], "--keep h2o:2048", "select:2048"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(bench, flags, problem, remedy):
    assert_one_line(bench(*flags), 2, problem, remedy)
