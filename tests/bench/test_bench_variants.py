"""What users run: weights with fewer bits, of llama.cpp and of localctx; and several sequences side by side."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ask_in_process import PLAIN
from bench_fakes import TEXT
from command_checks import assert_one_line
from required_extras import needs_llama
from tiny_gguf import write_gguf as write_other
from tiny_ggufs import write_tiny_gguf

from localctx.bench import OTHER_FILES, OWN_VARIANTS
from localctx.bench.engines import Engines
from localctx.bench.measure import Bench, extra_tokens
from localctx.bench.parallel import SEQUENCES, _text, parallel
from localctx.bench.run_bench import run as run_bench
from localctx.errors import Cancelled, ModelError
from localctx.models.catalog import FALLBACK
from localctx.models.hub.convert import ProgressCallback
from localctx.models.peers import ggufs as peer_ggufs
from localctx.models.peers.ggufs import PeerGgufs
from localctx.models.peers.llama_cpp import LLAMA_CPP_WEIGHTS, PUBLISHED
from localctx.models.peers.llama_gguf import GGUF_WEIGHTS, quantize_gguf, write_gguf

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(sharp_model, tmp_path):
    """A function to Engines with a sharp tiny model, what they warn of, and what they show."""
    from localctx.engine.model_loader import ModelLoader
    from localctx.settings import Settings

    settings = Settings(tmp_path / "home", model=str(sharp_model), threads=1, chunk=64, dtype="f32")
    model, _ = ModelLoader().load(settings, lambda progress: None)
    said, shown = list[str](), list[str]()

    def engines(named: object = sharp_model, **how) -> Engines:
        """Engines of the sharp model, which settings call ``named``."""
        return Engines(
            model,
            replace(settings, model=str(named)),
            warn=said.append,
            show=lambda step: shown.append(step.phase),
            **how,
        )

    engines.said, engines.shown, engines.model, engines.settings = said, shown, model, settings
    return engines


def test_variants_are_named_as_they_are():
    assert {*OTHER_FILES} == {f"llama.cpp:{weights}" for weights in LLAMA_CPP_WEIGHTS}
    from localctx.settings import WEIGHTS

    own = [f"localctx:weights-{weights}" for weights in WEIGHTS]
    assert [*OWN_VARIANTS] == [*own, "localctx:sparse", *(f"{name}-sparse" for name in own)]


def test_sparse_reading_is_measured_beside_full_reading_with_the_same_weights(opened):
    chosen = ("localctx", "localctx:sparse", "localctx:weights-int8", "localctx:weights-int8-sparse")
    models = opened(chosen=chosen).own_models
    assert [own.name for own in models] == [
        *("localctx", "localctx weights-int8", "localctx sparse", "localctx weights-int8-sparse"),
    ]
    assert [own.model.prefill_loss for own in models] == [0, 0, 0.1, 0.1]
    assert len({own.model.nbytes for own in models}) == 2
    assert opened.shown.count("loading") == 1, "weights are loaded once for both ways of reading"


# llama.cpp with fewer bits


@needs_llama
@pytest.mark.parametrize("weights", GGUF_WEIGHTS)
def test_llama_cpp_makes_files_with_fewer_bits_once(opened, weights):
    chosen = (f"llama.cpp:weights-{weights}",)
    with opened(chosen=chosen).open(300, extra_tokens(2)) as engines:
        names = [f"{engine.name} {engine.kv}" for engine in engines]
        assert names == [f"llama.cpp weights-{weights} flash f16", f"llama.cpp weights-{weights} f16"]
        for engine in engines:
            engine.read(TEXT[:300])
            assert len(engine.decode(TEXT[300:303])) == 3
    assert f"llama.cpp makes {weights} weights" in opened.shown
    opened.shown.clear()
    with opened(chosen=chosen).open(64, 10) as engines:
        assert len(engines) == 2
    assert opened.shown == [], "the file is there"
    sizes = {path.stat().st_size for path in (opened.settings.home / "bench").glob("*.gguf")}
    assert len(sizes) == 2
    assert min(sizes) < 0.7 * max(sizes), "fewer bits"


@needs_llama
def test_one_way_with_fewer_bits_is_measured_alone(opened):
    engines = opened(chosen=("llama.cpp:weights-q8_0",))
    with engines.open(64, 10) as both:
        assert len(both) == 2
    assert not engines._ggufs.find(PUBLISHED)
    assert opened.said == [], "nobody asked for it"


@needs_llama
def test_a_file_of_few_bits_is_not_quantized_again(tmp_path, sharp_model):
    write_gguf(sharp_model, tmp_path / "full.gguf")
    quantize_gguf(tmp_path / "full.gguf", tmp_path / "q8.gguf", "q8_0", 1)
    with pytest.raises(ModelError, match=r"cannot make q4_1 weights of q8.gguf; name a GGUF in 16 bits"):
        quantize_gguf(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "q4_1", 1)
    assert not list(tmp_path.glob("q4.gguf*"))


@needs_llama
def test_cancelling_while_a_file_is_made_ends_the_run(opened):
    engines = opened(chosen=("llama.cpp:weights-q8_0",), cancelled=lambda: bool(opened.shown))
    bench = Bench(engines, TEXT, ["decode"], [64], 1)
    with pytest.raises(Cancelled), engines.open(64, 10):
        pass
    run_bench(bench)
    assert bench.samples.values == {}


# llama.cpp with the file as published


@needs_llama
def test_the_users_own_gguf_is_what_was_published(tmp_path, opened):
    own = write_tiny_gguf(tmp_path / "own.gguf", "llama")
    engines = opened(own, chosen=("llama.cpp",))
    assert engines._ggufs.find(PUBLISHED) == own
    assert engines._ggufs.find(PUBLISHED, fetch=True) == own


@needs_llama
def test_what_is_not_here_is_fetched_only_when_asked_for(tmp_path, opened, sharp_model, monkeypatch):
    path, fetched = tmp_path / "home" / "bench" / "12345678-tiny.gguf", list[str]()

    def fetch(name: str, to: Path, progress: ProgressCallback) -> None:
        progress("fetching", 1, 2)
        fetched.append(name)
        to.parent.mkdir(parents=True, exist_ok=True)
        write_gguf(sharp_model, to)

    monkeypatch.setattr(peer_ggufs, "published_file", lambda *where: path)
    monkeypatch.setattr(peer_ggufs, "fetch_published", fetch)
    settings = replace(opened.settings, model=FALLBACK)
    assert PeerGgufs(opened.model, settings, warn=opened.said.append).find(PUBLISHED) is None
    assert opened.said == ["tiny.gguf is not measured: --engines llama.cpp:published downloads it once (88.6 MiB)"]
    with opened(FALLBACK, chosen=("llama.cpp:published",)).open(64, 10) as engines:
        assert [engine.name for engine in engines] == ["llama.cpp published flash", "llama.cpp published"]
    assert (fetched, opened.shown) == ([FALLBACK], ["fetching"])
    assert PeerGgufs(opened.model, settings).find(PUBLISHED) == path


@needs_llama
def test_a_model_that_was_not_published_as_a_gguf_is_told(opened):
    with opened(chosen=("llama.cpp:published",)).open(64, 10) as engines:
        assert engines == []
    assert opened.said == [f"llama.cpp published is not measured: {opened.settings.model} was not published as a GGUF"]


@needs_llama
def test_a_published_file_of_another_model_is_told(tmp_path, opened):
    other = write_other(tmp_path / "other.gguf")
    with opened(other, chosen=("llama.cpp:published",)).open(64, 10) as engines:
        assert engines == []
    assert "is of another model" in opened.said[0]


# localctx with fewer bits


def test_localctx_is_measured_with_other_weights(opened):
    engines = opened(chosen=("localctx", "localctx:weights-int8"), codecs=["int8", "bf16"], keeps=["select:256"])
    with engines.open(300, 20) as found:
        assert [f"{engine.name} {engine.kv}" for engine in found] == [
            f"localctx{weights}{keep} {codec}"
            for weights in ("", " weights-int8")
            for codec in ("int8", "bf16")
            for keep in ("", " select:256")
        ]
        for engine in found:
            engine.read(TEXT[:300])
            engine.decode(TEXT[300:304])
    full, fewer = (own.model for own in engines.own_models)
    assert fewer.nbytes < 0.8 * full.nbytes


def test_weights_that_this_device_has_not_are_told(opened):
    engines = opened(chosen=("localctx:weights-nf4", "localctx:weights-int8"))
    with engines.open(64, 10) as found:
        assert [engine.name for engine in found] == ["localctx weights-int8"]
    assert opened.said == [
        "localctx weights-nf4 was not measured: nf4 weights are for a GPU; use --weights int4, int8 or full"
    ]


# Side by side


def test_sequences_side_by_side_are_measured_beside_one_alone(opened):
    engines = opened(chosen=("localctx", "localctx:weights-int8"))
    steps = list[str]()
    bench = Bench(engines, TEXT, ["parallel"], [200, 100], 3, lambda text, left: steps.append(text))
    run_bench(bench)
    rows = bench.samples.rows("parallel")
    assert [(row["engine"], row["kv"], row["context"]) for row in rows] == [
        ("localctx", "int8", 100),
        ("localctx weights-int8", "int8", 100),
    ]
    for row in rows:
        assert row["tokens_per_second"] > 0
        assert row["alone_per_second"] > 0
    assert [len(numbers["times"]) for numbers in bench.samples.values.values()] == [3, 3]
    assert sum("reading" in step for step in steps) == 2 * SEQUENCES
    assert bench.time_left.seconds == pytest.approx(0), "every step was expected"


def test_sequences_side_by_side_have_texts_and_pages_of_their_own(opened, monkeypatch):
    passes, forward_each = list[list[int]](), type(opened.model).forward_each

    def spy(model, requests, cancelled):
        passes.append([id(request.cache) for request in requests])
        return forward_each(model, requests, cancelled)

    monkeypatch.setattr(type(opened.model), "forward_each", spy)
    parallel(Bench(opened(chosen=("localctx",)), TEXT, ["parallel"], [100], 1))
    assert {len({*caches}) for caches in passes if len(caches) > 1} == {SEQUENCES}
    bench = Bench(opened(), TEXT, ["parallel"], [100], 1)
    texts = [tuple(_text(bench, 100, i)) for i in range(SEQUENCES)]
    assert len({*texts}) == SEQUENCES
    assert {len(text) for text in texts} == {100}


# The command


def test_the_command_measures_variants_and_names_the_processor(run, monkeypatch, sharp_model, tmp_path, document):
    for name, value in {**PLAIN, "dtype": "f32"}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    folder = shutil.copytree(sharp_model, tmp_path / "sharp")
    flags = ("--what", "decode,parallel", "--context", "128", "--repeat", 1, "--keep", "full")
    chosen = ("--engines", "localctx,localctx:weights-int8,llama.cpp:weights-q4_1")
    done = run("bench", document, "--model", folder, *flags, *chosen, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    names = {row["engine"] for row in said["decode"]}
    assert {"localctx", "localctx weights-int8"} <= names
    assert {row["engine"] for row in said["parallel"]} == {"localctx", "localctx weights-int8"}
    assert "float32 at once" in said["machine"]["vectors"]
    shown = run("bench", document, "--model", folder, *flags, "--engines", "localctx")
    assert "PARALLEL" in shown.stdout
    assert "8 sequences side by side" in shown.stdout


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--engines", "llama.cpp:weights-q4_1"], "llama.cpp:weights-q4_1 cannot run"),
        (["--engines", "localctx:weights-int8"], "localctx:weights-int8 cannot run"),
        (["--what", "parallel"], "is not measured side by side"),
    ],
)
def test_what_is_for_torch_is_refused_over_llama_cpp(run, tmp_path, document, flags, problem):
    gguf = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    done = run("bench", document, "--engine", "llama.cpp", "--model", gguf, *flags)
    assert_one_line(done, 2, problem, "")
