"""The quality gate: numbers computed by hand, needles where they should be, verdicts kept, and the command."""

import json
import math
from contextlib import closing

import pytest
import quality_fixtures
import torch
from keeper_models import build

from localctx.engine.planning.cache_plan import choose_codec
from localctx.quality.compare import compare, score, split
from localctx.quality.gate import QualityGate, first_tokens, meets_quality_bar
from localctx.quality.needles import DEPTHS, make_needles, plant
from localctx.quality.variants import Setup, Variant, cache_nbytes, group_by_prefill, make_variants
from localctx.shape import FORMATS, PAGE, KVShape, LayerShape
from localctx.store.store import Store

model, run = quality_fixtures.model, quality_fixtures.run


@pytest.fixture
def text() -> str:
    return "".join(f"River {i} is {i * 37} km long. It ends in lake {i % 7}.\n" for i in range(40))


# Numbers


def test_divergence_agreement_and_perplexity_by_hand():
    reference = torch.tensor([[0.5, 0.5, 0], [0.25, 0.7, 0.05]]).log()
    other = torch.tensor([[0.25, 0.7, 0.05], [0.25, 0.7, 0.05]]).log()
    d = compare([reference[:1], reference[1:]], [other[:1], other[1:]], [1, 0])
    first = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.7)
    assert d.kl_mean == pytest.approx(first / 2, abs=1e-6)
    assert d.kl_p99 == pytest.approx(0.99 * first, abs=1e-6)  # between the two
    assert d.top1 == 0.5
    assert d.perplexity == pytest.approx(1 / math.sqrt(0.7 * 0.25), rel=1e-6)


def test_each_scored_token_is_predicted_from_those_before_it():
    """A reader that always knows the successor: token + 1."""
    tokens, seen = list(range(300)), []

    def forward(step, keep):
        seen.extend(step)
        assert keep == len(step)
        return torch.nn.functional.one_hot(torch.tensor(step) + 1, 301).float() * 100

    logs = score(forward, tokens[:-1], 150)
    assert seen == tokens[150:-1]
    assert compare(logs, logs, tokens[151:]).perplexity == pytest.approx(1)


def test_the_last_thousand_or_half_are_scored():
    assert split(6000) == 5000
    assert split(608) == 304


@pytest.mark.parametrize(
    ("kl", "top1", "found", "passes"),
    [(0.02, 0.9, 4, True), (0.021, 1, 5, False), (0, 0.89, 5, False), (0, 1, 3, False), (0, 1, 5, True)],
)
def test_the_rule(kl, top1, found, passes):
    from localctx.quality.compare import Divergence

    assert meets_quality_bar(Divergence(kl, 1, top1, 10), found, by_reference=4) is passes


# Needles


@pytest.mark.parametrize("needle", make_needles())
def test_a_needle_stands_between_two_sentences_at_its_depth(text, needle):
    planted = plant(text, needle)
    at = planted.index(needle.sentence)
    assert abs(at - needle.depth * len(text)) <= 30  # half a sentence
    assert planted[at - 1].isspace()
    assert planted[:at] + planted[at + len(needle.sentence) + 1 :] == text


def test_needles_differ_and_are_the_same_in_every_run():
    needles = make_needles()
    assert needles == make_needles()
    assert len({n.number for n in needles}) == len({n.city for n in needles}) == len(DEPTHS)
    assert all(len(n.number) == 7 for n in needles)


def test_a_number_is_found_however_it_is_written():
    needle = make_needles()[0]
    n = needle.number
    assert needle.found_in(f"It is {n}.")
    assert needle.found_in(f"It is {n[0]},{n[1:4]},{n[4:]}.")
    assert not needle.found_in(f"It is {n[:-1]}.")


# Variants


def test_a_text_is_read_once_for_the_keepers_that_act_later():
    chosen = make_variants(["int8"], ["select:1/4", "h2o:1/4"])
    names = [[v.name for v in group] for group in group_by_prefill(chosen)]
    assert names == [["f32"], ["int8", "int8 select:1/4"], ["int8 h2o:1/4"]]


def test_what_is_measured_unless_told():
    assert [v.codec for v in make_variants([], [])] == list(FORMATS)
    assert make_variants([], ["h2o:1/4"]) == [Variant("f32"), Variant("int8", "h2o:1/4")]


@pytest.mark.slow
def test_bytes_held_are_sealed_pages_and_the_open_one(model):
    cache = Setup(model).new_cache(Variant("int8"), PAGE + 3)
    model.forward([1] * (PAGE + 3), cache)
    assert cache_nbytes(cache) == model.shape.page_bytes("int8", sinks=True) + model.shape.tail_bytes()


def test_bytes_held_are_those_of_both_parts_of_a_page():
    gemma = build("gemma4")
    cache = Setup(gemma).new_cache(Variant("f32"), PAGE + 3)
    gemma.forward([3] * (PAGE + 3), cache)
    assert cache_nbytes(cache) == gemma.shape.cache_bytes("f32", PAGE + 3)


# The gate


@pytest.mark.slow
def test_full_precision_differs_from_itself_in_nothing(model, text):
    tokens = first_tokens(model, text, 500)
    heard = []
    reference, int8 = QualityGate(Setup(model, 64), tokens, [400], on_progress=heard.append).run(
        make_variants(["int8"], [])
    )
    assert reference.divergence.kl_mean == 0
    assert reference.divergence.top1 == 1
    assert 0 < int8.divergence.kl_mean < 0.01
    assert int8.divergence.kl_p99 >= int8.divergence.kl_mean
    assert int8.bytes_per_token < reference.bytes_per_token / 2
    assert list(int8.needles) == [400]
    assert reference.passed
    assert heard[-1].done <= heard[-1].total


@pytest.mark.slow
def test_a_needle_is_found_where_the_model_answers_it(model, text, monkeypatch):
    from localctx.engine.events import Token
    from localctx.quality import needles

    deepest = make_needles()[-1].number
    monkeypatch.setattr(needles, "decode", lambda *a, **k: (t for t in [Token("It is ", 0), Token(deepest, 1)]))
    found = needles.find_needles(Setup(model, 64), [Variant("f32")], text[:500])
    assert found == {Variant("f32"): (False, False, False, False, True)}


@pytest.mark.slow
def test_what_follows_a_shared_beginning_is_read_as_if_alone(model, text, monkeypatch):
    """The text before two needles is read once; what is then answered is what a fresh cache answers."""
    from localctx.quality import needles

    answers = []
    monkeypatch.setattr(needles.Needle, "found_in", lambda self, answer: answers.append(answer) or True)
    needles.find_needles(Setup(model, 64), [Variant("f32")], text[:700])
    monkeypatch.setattr(needles, "_common_prefix", lambda a, b: 0)
    needles.find_needles(Setup(model, 64), [Variant("f32")], text[:700])
    assert len(answers) == 10
    assert answers[:5] == answers[5:]


@pytest.mark.slow
def test_the_bar_is_what_the_reference_finds_even_if_that_is_nothing(model, text, monkeypatch):
    """Were the bar what a later variant finds, the last would fail."""
    from localctx.quality import gate

    finds = {"f32": 0, "int8": 5, "bf16": 2}

    def find_needles(on, variants, text, read):
        return {v: tuple(i < finds[v.codec] for i in range(5)) for v in variants}

    monkeypatch.setattr(gate, "find_needles", find_needles)
    results = QualityGate(Setup(model), first_tokens(model, text, 320), [320]).run(make_variants(["int8", "bf16"], []))
    assert [r.passed for r in results] == [True, True, True]


def test_without_a_file_the_text_is_our_readme():
    from localctx.cli.common import measuring_text

    assert measuring_text(None).startswith("# localctx")


# The verdict


@pytest.mark.slow
def test_a_verdict_is_kept_and_replaced(home):
    with closing(Store(home)) as store:
        assert store.quality_results.passed(b"f") is None
        store.quality_results.note(b"f", "tiny", "int4", True, {"kl_mean": 0.01})
    with closing(Store(home)) as store:
        assert store.quality_results.passed(b"f") is True
        assert store.quality_results.report(b"f") == {"kl_mean": 0.01}
        store.quality_results.note(b"f", "tiny", "int4", False, {})
        assert store.quality_results.passed(b"f") is False


@pytest.mark.parametrize(
    ("verdicts", "chosen"),
    [
        ({}, "int8"),
        ({"int8": True}, "int8"),
        ({"int8": False}, "bf16"),
        ({"int8": False, "bf16": False}, "f32"),
        ({"int8": False, "bf16": False, "f32": False}, "f32"),
    ],
)
def test_the_smallest_codec_that_passed_is_chosen(verdicts, chosen):
    shape = KVShape((LayerShape(2, 64, 64),))
    assert choose_codec(shape, verdicts.get) == chosen


# The command


@pytest.mark.slow
def test_the_command_measures_remembers_and_draws(run, home, document, tiny_model, model):
    code, out, err = run(document, "--kv", "int8", "--tokens", 320, "--json")
    assert code == 0, err
    report = json.loads(out)
    assert [v["codec"] for v in report["variants"]] == ["f32", "int8"]
    assert report["tokens"] == 320
    assert list(report["variants"][1]["needles"]["320"]) == ["0.05", "0.275", "0.5", "0.725", "0.95"]
    with closing(Store(home)) as store:
        assert store.quality_results.passed(model.fingerprint("int8")) is report["variants"][1]["passed"]
    from PIL import Image

    with Image.open(report["picture"]) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 100


@pytest.mark.slow
def test_the_table_and_a_picture_elsewhere(run, document, tmp_path):
    code, out, err = run(document, "--kv", "bf16", "--tokens", 304, "--lengths", "200,300", "--png", tmp_path / "n.png")
    assert code == 0, err
    head, *lines = out.splitlines()
    assert head.split() == ["KV", "BYTES/TOKEN", "KL", "MEAN", "KL", "P99", "TOP-1", "PERPLEXITY", "NEEDLES", "PASSED"]
    assert [line.split()[0] for line in lines] == ["f32", "bf16"]
    assert (tmp_path / "n.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_streaming_tells_memory_and_perplexity(run, document):
    code, out, err = run(document, "--stream", 1500, "--kv", "f32", "--json")
    assert code == 0, err
    r = json.loads(out)
    assert r["tokens"] == 1500
    assert 0 < r["early"]["peak"] <= r["end"]["peak"]
    assert r["window"] == 750
    assert r["blocks"] == 11
    assert r["perplexity"] == pytest.approx(r["sampled"], rel=0.1)
    assert r["fresh"] == pytest.approx(r["sampled"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--kv", "int5"], 2, "kv = 'int5' is not valid"),
        (["--lengths", "1,x"], 2, "not a list of numbers"),
        (["--tokens", "20"], 1, "16 tokens are too few"),
        (["--stream", "20"], 1, "20 tokens are too few"),
        (["--stream", "300", "--kv", "f32", "--kv", "int8"], 2, "one codec"),
    ],
)
def test_what_cannot_be_measured_is_told_in_one_line(run, document, arguments, code, said):
    got, out, err = run(document, *arguments)
    assert got == code, err
    assert said in err
    assert err.count("\n") == 1
    assert not out


# Peers


@pytest.mark.slow
def test_a_peer_reads_what_we_read(tiny_model, model, text):
    from localctx.quality.peer_caches import measure_peers

    gate = QualityGate(Setup(model, 64), first_tokens(model, text, 400), [])
    list(gate.run([Variant("f32")]))
    fp8 = next(measure_peers(tiny_model, model, gate, lambda p: None, lambda line: None))
    assert fp8.to_json()["name"] == fp8.name == "transformers fp8 8 bit"
    assert 0 < fp8.divergence.kl_mean < 0.05
    assert fp8.bytes_per_token == 2 * 2 * 2 * 16  # a byte an element: layers, k and v, heads, width
