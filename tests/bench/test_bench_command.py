"""``localctx bench``: peers with our weights, what is spilled and dropped, and the command."""

import json
import os
import shutil
import signal
import time
from contextlib import closing

import numpy as np
import pytest
import torch
from ask_in_process import PLAIN
from bench_fakes import TEXT
from command_checks import assert_one_line
from required_extras import needs_llama
from tiny_gguf import write_gguf as write_other
from tiny_ggufs import write_tiny_gguf

from localctx.bench import ENGINES, MEASUREMENTS, OF_LLAMA_CPP, OTHER_FILES, PEER_VARIANTS
from localctx.bench.engines import BenchEngine, Engines
from localctx.bench.measure import Bench, extra_tokens
from localctx.bench.peer_state import PersistablePeer
from localctx.bench.store_and_spill import drop_pages
from localctx.errors import ModelError
from localctx.models.llama_cpp.library import llama_cpp_is_installed
from localctx.models.peers.llama_cpp import LLAMA_CPP_VARIANTS, LlamaCppPeer
from localctx.models.peers.llama_gguf import write_gguf

pytestmark = pytest.mark.slow

# Engines


@pytest.fixture(scope="module")
def opened(sharp_model, tmp_path_factory):
    """A function to Engines with a sharp tiny model, and what they say."""
    from localctx.engine.model_loader import ModelLoader
    from localctx.settings import Settings

    settings = Settings(tmp_path_factory.mktemp("home"), model=str(sharp_model), threads=1, chunk=64)
    model, _ = ModelLoader().load(settings, lambda progress: None)
    model.name, said = "sharp", list[str]()
    return lambda **how: (Engines(model, settings, warn=said.append, **how), said)  # type: ignore[arg-type]


def greedy(engine: BenchEngine) -> list[int]:
    return [engine.read(TEXT[:300]), *engine.decode(TEXT[300:339])]


@pytest.mark.parametrize("prefix", ["transformers", pytest.param("llama.cpp", marks=needs_llama)])
def test_peers_have_the_same_weights(opened, prefix):
    """Attention is sharp: were the rows of q and k in another order, other tokens would come."""
    engines, _ = opened(chosen=("localctx", prefix), codecs=["f32"])
    with engines.open(300, extra_tokens(5)) as (ours, *peers):
        mine = greedy(ours)
        for peer in peers:
            if "Quantized" not in peer.name:
                same = sum(a == b for a, b in zip(greedy(peer), mine, strict=True))
                assert same >= 38, f"{peer.name} {peer.kv}: {same} of 40"  # f16 against f32
            assert peer.nbytes > 0 or peer.kv.startswith("fp8")


@pytest.mark.parametrize(
    ("way", "name"),
    [
        pytest.param("llama.cpp:f16", "llama.cpp f16", marks=needs_llama),
        pytest.param("llama.cpp:flash-f16", "llama.cpp flash f16", marks=needs_llama),
        ("transformers:DynamicCache", "transformers DynamicCache float32"),
        ("transformers:QuantizedCache", "transformers QuantizedCache "),
    ],
)
def test_one_way_of_a_peer_is_measured_alone(opened, way, name):
    assert way in PEER_VARIANTS
    engines, _ = opened(chosen=(way,))
    with engines.open(100, 5) as (engine,):
        assert f"{engine.name} {engine.kv}".startswith(name)


def test_ways_are_named_as_llama_cpp_has_them():
    named = {f"llama.cpp:{'flash-' if way.flash else ''}{way.kv}" for way in LLAMA_CPP_VARIANTS if not way.weights}
    assert named == {way for way in PEER_VARIANTS if way.startswith("llama.cpp")} - {*OTHER_FILES}


def test_what_selects_goes_on_from_what_was_read(opened):
    engines, _ = opened(chosen=("localctx",), keeps=["select:256"])
    with engines.open(400, 40) as (full, selecting):
        full.read(TEXT[:400])
        selecting.read(TEXT[:400])
        assert not selecting.prefills
        assert selecting.cache.keeper.pages_seen(6) == 4
        assert selecting.cache.pages == full.cache.pages
        assert len(selecting.decode(TEXT[:3])) == 3
        assert full.cache.length == 400


def test_spilled_pages_give_the_same_tokens_also_out_of_the_page_cache(opened):
    engines, _ = opened()
    pages = engines.model.shape.cache_bytes("int8", 512, 0)
    in_memory, spilled = engines.paged_engine("int8", 512), engines.paged_engine("int8", 512, pages // 4)
    for engine in (in_memory, spilled):
        engine.read(TEXT[:512])
    assert spilled.cache.pool.counts()["disk"] >= 5  # of 8; the first is larger
    drop_pages(spilled)
    assert spilled.decode(TEXT[:9]) == in_memory.decode(TEXT[:9])


@needs_llama
def test_llama_goes_on_from_what_it_had_read(opened, tmp_path):
    engines, _ = opened(chosen=("llama.cpp",))
    state = tmp_path / "state"
    with engines.open(300, extra_tokens(5)) as (first, other, *_):
        assert isinstance(first, PersistablePeer)
        whole = greedy(first)
        first.reset()
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
    with closing(LlamaCppPeer(made, LLAMA_CPP_VARIANTS[0], 64, 1)) as llama:
        assert llama.vocabulary == 260


@needs_llama
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_made_gguf_of_a_kind_computes_the_same(kind, tmp_path):
    module = random_module(kind)
    module.save_pretrained(tmp_path / kind)
    write_gguf(tmp_path / kind, tmp_path / "made.gguf")
    tokens = TEXT[:60]
    with closing(LlamaCppPeer(tmp_path / "made.gguf", LLAMA_CPP_VARIANTS[0], 64, 1)) as llama:
        logits = llama.forward(tokens, 60)
    with torch.no_grad():
        expected = module(torch.tensor([tokens])).logits[0].numpy()
    assert np.abs(logits - expected).max() < 0.05 * expected.std()


def random_module(kind: str):
    """A random model with norms and biases that matter, and attention that is sharp."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    size = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 260}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    module = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **size, **heads, rope_parameters=rope))
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(1.0 if weight.dim() == 1 else 0.0, 0.2)
    return module.float().eval()


def test_no_gguf_is_made_of_what_is_no_plain_llama(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "odd")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"not a plain Llama.*--gguf"):
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
    assert list(said) == ["machine", "versions", *MEASUREMENTS]
    assert {"cpu", "cores", "memory", "threads", "noise"} <= said["machine"].keys()
    assert {"model", "localctx", "torch", "transformers"} <= said["versions"].keys()
    keys = {what: {tuple(row) for row in said[what]} for what in MEASUREMENTS}
    assert keys["decode"] == {("engine", "kv", "context", "ms_per_token", "spread")}
    assert keys["prefill"] == {("engine", "context", "tokens_per_second", "spread")}
    assert keys["reopen"] == {
        ("engine", "kv", "context", "reopen_ms", "reopen_cached_ms", "read_ms", "times_sooner", "spread")
    }
    assert keys["memory"] == {("engine", "kv", "context", "bytes", "process_peak")}
    assert all(row["engine"].startswith(ENGINES) for what in MEASUREMENTS for row in said[what])
    there = {e for e in ENGINES if e != "llama.cpp" or llama_cpp_is_installed()}
    for what in ("decode", "prefill", "memory"):
        assert {e for e in ENGINES for row in said[what] if row["engine"].startswith(e)} == there
        assert {row["context"] for row in said[what]} == {128, 256}
    assert {row["engine"] for row in said["spill"]} == {"localctx", "localctx select:2048"}
    assert {"disk_ms_per_token", "cached_ms_per_token", "in_memory_ms_per_token"} <= said["spill"][0].keys()
    assert {(row["kv"], row["context"]) for row in said["reopen"]} == {
        (c, n) for c in ("int8", "bf16") for n in (128, 256)
    }
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert not list(home.glob("bench-*/")), "what was kept to be reopened is gone"


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


@pytest.mark.parametrize(("sent", "hears"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, True)])
def test_ctrl_c_and_kill_end_it_at_once_and_print_what_was_measured(bench, monkeypatch, sent, hears):
    """Also where a library computes on for seconds and hears nothing."""
    from localctx.bench import run_bench as runs

    pressed, over = list[float](), list[bool]()

    def reopen(bench: Bench, context: int) -> None:
        pressed.append(time.monotonic())
        os.kill(os.getpid(), sent)
        while not (hears and bench.engines.cancelled()) and time.monotonic() < pressed[0] + 4:
            time.sleep(0.01)
        over.append(bench.engines.cancelled() and hears)
        bench.run_step("what is never begun", 1, lambda: pytest.fail("it went on"))

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
        (["--engines", "llama.cpp:q4"], "--engines 'llama.cpp:q4'", "llama.cpp:flash-q8_0"),
        (["--kv", "int3"], "--kv 'int3'", "int8"),
        (["--context", "4k"], "--context 4k", "2000,4000"),
        (["--keep", "h2o:2048"], "--keep h2o:2048", "select:2048"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(bench, flags, problem, remedy):
    assert_one_line(bench(*flags), 2, problem, remedy)


# Over llama.cpp


@pytest.fixture
def bench_gguf(run, document, tmp_path):
    """``localctx bench`` over llama.cpp with a tiny GGUF of a family."""

    def bench_gguf(*arguments: object, family: str = "llama"):
        path = tmp_path / f"{family}.gguf"
        model = path if path.exists() else write_tiny_gguf(path, family)
        return run("bench", document, "--engine", "llama.cpp", "--model", model, "--threads", 1, *arguments)

    return bench_gguf


@needs_llama
@pytest.mark.parametrize("family", ["llama", "granitehybrid"])
def test_localctx_over_llama_cpp_is_measured_beside_llama_cpp_alone(bench_gguf, home, family):
    done = bench_gguf("--json", "--context", "128,256", "--repeat", 2, family=family)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["machine"]["precision"] == "weights as quantized"
    for what in ("decode", "prefill", "memory"):
        engines = {row["engine"] for row in said[what]}
        assert {name.split()[0] for name in engines} == {"localctx", "llama.cpp"}, what
        assert {row["context"] for row in said[what]} == {128, 256}
    assert {what for what in MEASUREMENTS if said[what]} == set(OF_LLAMA_CPP)
    ours, alone = (
        {row["context"]: row["bytes"] for row in said["memory"] if row["engine"] == name} for name in ENGINES[:2]
    )
    assert ours[256] == pytest.approx(alone[256], rel=0.1)
    assert [(row["kv"], row["context"]) for row in said["reopen"]] == [("f16", 128), ("f16", 256)]
    assert not list(home.glob("bench-*/"))


@needs_llama
def test_a_reopened_document_is_restored_from_the_disk(tmp_path, home, monkeypatch):
    """Not from what stays in llama.cpp's memory for the next question."""
    from localctx.bench.store_and_spill import reopen
    from localctx.engine.model_loader import ModelLoader
    from localctx.models.llama_cpp.cache import LlamaCache
    from localctx.settings import Settings

    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    settings = Settings(home, model=str(path), engine="llama.cpp", threads=1, chunk=64)
    model, _ = ModelLoader().load(settings, lambda progress: None)
    bench, restored = Bench(Engines(model, settings, codecs=["f16"]), TEXT, ["reopen"], [400], 2), list[int]()
    append = LlamaCache.append

    def spy(cache: LlamaCache, stop: int, state: np.ndarray) -> None:
        restored.append(stop)
        append(cache, stop, state)

    monkeypatch.setattr(LlamaCache, "append", spy)
    reopen(bench, 400)
    assert restored == [400] * 4, "twice in each round"


@needs_llama
@pytest.mark.parametrize(
    ("flags", "problem", "remedy"),
    [
        (["--what", "decode,spill"], "spills no keys", "--engine torch"),
        (["--keep", "select:2048"], "does not support --keep", "--engine torch"),
        (["--kv", "int2"], "no int2 KV", "f16"),
        (["--engines", "transformers"], "transformers cannot run a quantized GGUF", "localctx,llama.cpp"),
    ],
)
def test_what_llama_cpp_does_not_have_is_refused_by_name(bench_gguf, flags, problem, remedy):
    assert_one_line(bench_gguf(*flags), 2, problem, remedy)
