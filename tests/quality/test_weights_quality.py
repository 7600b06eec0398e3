"""Weights with fewer bits, localctx's and llama.cpp's, against the same reference in one run."""

import json
from pathlib import Path

import pytest
import quality_fixtures
from required_extras import needs_llama

from localctx.errors import ModelError
from localctx.models.peers.llama_gguf import GGUF_WEIGHTS
from localctx.quality import weights_quality
from localctx.quality.gate import QualityGate, first_tokens
from localctx.quality.variants import Setup, Variant
from localctx.quality.weights_quality import WeightsComparison
from localctx.settings import WEIGHTS, Settings

pytestmark = pytest.mark.slow

model = quality_fixtures.model
run = quality_fixtures.run


@pytest.fixture(scope="module")
def compared(model, tiny_model, tmp_path_factory):
    """The results by name, what was warned of, and the phases that were shown."""
    text = " ".join(f"Lake {i} is {i * 31 % 97} metres deep." for i in range(40))
    gate = QualityGate(Setup(model, 64), first_tokens(model, text, 400), [])
    (reference,) = gate.run([Variant("f32")])
    settings = Settings(tmp_path_factory.mktemp("home"), model=str(tiny_model), dtype="f32", threads=1)
    said, shown = list[str](), list[str]()
    comparison = WeightsComparison(model, settings, gate, lambda step: shown.append(step.phase), said.append)
    return {result.name: result for result in comparison.run()}, said, shown, reference


def test_our_weights_with_fewer_bits_differ_a_little_from_those_in_full(compared, model):
    results, said, shown, reference = compared
    assert "localctx full" not in results, "it is the reference"
    int8 = results["localctx int8"]
    assert 0 < int8.divergence.kl_mean < 0.01
    assert int8.divergence.top1 > 0.95
    assert int8.divergence.perplexity == pytest.approx(reference.divergence.perplexity, rel=0.05)
    assert int8.nbytes < 0.8 * model.nbytes
    assert any(text.startswith("localctx nf4 was not measured: nf4 weights are for a GPU; ") for text in said)
    assert "reading with weights of localctx int8" in shown
    assert int8.to_json()["bytes"] == int8.nbytes


@needs_llama
def test_llama_cpps_weights_are_measured_on_the_same_tokens(compared):
    """Its 16 bits are ours: were a token or a position another, nothing would agree."""
    results, _, shown, reference = compared
    same = results["llama.cpp f16"]
    assert same.divergence.kl_mean < 1e-4
    assert same.divergence.top1 > 0.97
    assert same.divergence.perplexity == pytest.approx(reference.divergence.perplexity, rel=1e-3)
    assert {f"llama.cpp {weights}" for weights in GGUF_WEIGHTS} <= results.keys()
    assert results["llama.cpp q8_0"].divergence.kl_mean < results["llama.cpp q4_1"].divergence.kl_mean < 0.1
    assert results["llama.cpp q4_1"].nbytes < results["llama.cpp q8_0"].nbytes < same.nbytes
    assert "reading with weights of llama.cpp q4_1" in shown


def test_all_weights_of_the_settings_are_tried(compared):
    results, said, _, _ = compared
    told = [*results, *(text.split(" was not")[0] for text in said)]
    assert {f"localctx {weights}" for weights in WEIGHTS[1:]} - {"localctx full"} <= {*told}


@needs_llama
def test_a_file_that_llama_cpp_does_not_make_costs_no_other(compared, model, tiny_model, tmp_path, monkeypatch):
    from localctx.models.peers import ggufs as peer_ggufs

    def fail(gguf, path, weights: str, threads: int) -> None:
        raise ModelError(f"no {weights}", "another")

    monkeypatch.setattr(peer_ggufs, "quantize_gguf", fail)
    monkeypatch.setattr(weights_quality, "WEIGHTS", ["auto", "full"])
    gate = QualityGate(Setup(model, 64), first_tokens(model, "Rivers and lakes. " * 40, 300), [])
    list(gate.run([Variant("f32")]))
    said = list[str]()
    settings = Settings(tmp_path, model=str(tiny_model), dtype="f32", threads=1)
    results = [*WeightsComparison(model, settings, gate, lambda step: None, said.append).run()]
    assert [result.name for result in results] == ["llama.cpp f16"]
    assert said == [f"llama.cpp weights-{weights} is not measured: no {weights}; another" for weights in GGUF_WEIGHTS]


@pytest.mark.parametrize(
    ("installed", "found", "measured"),
    [
        (True, {"published"}, ["published"]),
        (True, {"", "published", "weights-q8_0"}, ["", "published", "weights-q8_0"]),
        (True, {"weights-q8_0"}, []),
        (False, set(), []),
    ],
)
def test_a_published_file_is_measured_without_the_16_bit_one(installed, found, measured, monkeypatch, tmp_path):
    looked, compared = list[str](), list[str]()

    class Files:
        def find(self, weights: str) -> Path | None:
            looked.append(weights)
            return tmp_path / weights if weights in found else None

    monkeypatch.setattr(weights_quality, "PeerGgufs", lambda *_: Files())
    monkeypatch.setattr(weights_quality, "llama_cpp_is_installed", lambda: installed)
    monkeypatch.setattr(weights_quality, "WEIGHTS", ["auto", "full"])
    monkeypatch.setattr(WeightsComparison, "_peer", lambda self, file, weights, threads: compared.append(weights) or [])
    settings = Settings(tmp_path, model="tiny", threads=1)
    assert not [*WeightsComparison(None, settings, None, lambda step: None, lambda text: None).run()]
    assert compared == measured
    assert installed or looked == [""]  # one warning is enough


# The command


def test_bits_alone_are_a_table_of_weights(run, document):
    code, out, err = run(document, "--bits", "--tokens", 304)
    assert code == 0, err
    head, *lines = out.splitlines()
    assert head.split() == ["WEIGHTS", "SIZE", "KL", "MEAN", "KL", "P99", "TOP-1", "PERPLEXITY"]
    assert [line.split()[:2] for line in lines[:2]] == [["localctx", "full"], ["localctx", "int8"]]
    assert "the last 152 of 304 tokens" in err
    assert "needles" not in err


def test_bits_codecs_and_peers_are_measured_in_one_run(run, document, home, tmp_path):
    flags = ("--bits", "--peers", "--kv", "int8", "--tokens", 304, "--png", tmp_path / "n.png", "--json")
    code, out, err = run(document, *flags)
    assert code == 0, err
    said = json.loads(out)
    assert [row["codec"] for row in said["variants"]] == ["f32", "int8"]
    assert said["peers"][0]["name"].startswith("transformers")
    full, int8, *_ = said["weights"]
    assert (full["name"], full["kl_mean"], int8["name"]) == ("localctx full", 0, "localctx int8")
    assert full["perplexity"] == said["variants"][0]["perplexity"]
    assert full["bytes"] > int8["bytes"] > 0
    assert (tmp_path / "n.png").exists()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--weights", "int8"], "--bits compares with 16 bits, not with int8 weights; use --weights full"),
        (["--context"], "--context cannot be combined with --bits"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(run, document, flags, problem):
    code, out, err = run(document, "--bits", *flags)
    assert code == 2
    assert problem in err
    assert err.count("\n") == 1
    assert not out
