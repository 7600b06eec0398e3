"""``localctx quality --blend``: what is measured, what is remembered, and the command."""

import json
from contextlib import closing

import pytest
import quality_fixtures

from localctx.engine.blending import BLENDINGS, Blending
from localctx.quality import blend_quality
from localctx.quality.blend_quality import BlendGate
from localctx.quality.needles import decode_tokens
from localctx.quality.variants import Setup
from localctx.store.store import Store

pytestmark = pytest.mark.slow

model, run = quality_fixtures.model, quality_fixtures.run
TEXT = "".join(f"River {i} is {i * 37} km long. It ends in lake {i % 7}.\n" for i in range(40))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(blend_quality, "LENGTH", 160)
    monkeypatch.setattr(blend_quality, "FOLLOWING", 64)


def test_reading_all_again_is_reading_together(model):
    heard = []
    together, all_again, none = BlendGate(Setup(model, 64), "f32", TEXT, 3, heard.append).run(
        [Blending(1000), Blending(0)]
    )
    assert together.divergence.kl_mean == 0
    assert (together.reused, all_again.reused) == (0, 0)
    assert together.read == all_again.read == none.read + none.reused
    assert all_again.divergence.kl_mean < 1e-6 < none.divergence.kl_mean
    assert none.reused >= 3 * 160
    assert together.passed
    assert all_again.passed
    assert (heard[0].done, heard[-1].done) == (1, heard[-1].total)


def test_a_needle_is_planted_in_each_passage_in_turn(model):
    gate = BlendGate(Setup(model, 64), "int8", TEXT, 3)
    plain, *planted = gate._cases()
    for i, (case, needle) in enumerate(zip(planted, gate.needles, strict=True)):
        assert [case.passages[j] is plain.passages[j] for j in range(3)] == [j != i for j in range(3)]
        for tokens in (case.passages[i].tokens, case.prompt.tokens):
            assert needle.sentence in decode_tokens(model.tokenizer, tokens)


def test_who_answers_a_number_finds_its_needle_alone(model, monkeypatch):
    gate = BlendGate(Setup(model, 64), "int8", TEXT, 3)
    monkeypatch.setattr(blend_quality, "answer", lambda on, cache, prompt: gate.needles[1].number)
    assert next(gate.run([])).needles == (False, True, False)


def test_the_command_measures_and_remembers(run, home, model, tmp_path):
    path = tmp_path / "rivers.txt"
    path.write_text(TEXT)
    code, out, err = run(path, "--blend", "--passages", 2, "--kv", "int8", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert [r["blend"] for r in report["blendings"]] == ["together", "none", "32", "32+15%"]
    assert (report["codec"], report["passages"]) == ("int8", 2)
    with closing(Store(home)) as store:
        for how, r in zip(BLENDINGS, report["blendings"][1:], strict=True):
            assert store.quality_results.passed(how.key(model.fingerprint("int8"))) is r["passed"]


def test_the_table(run, tmp_path):
    path = tmp_path / "rivers.txt"
    path.write_text(TEXT)
    code, out, err = run(path, "--blend", "--passages", 2)
    assert code == 0, err
    head, *lines = out.splitlines()
    assert head.startswith("READ AGAIN")
    assert [line.split()[0] for line in lines] == ["all", "none", "32", "32+15%"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--kv", "f32", "--kv", "int8"], 2, "one codec"),
        (["--passages", 30], 1, "window"),
        (["--passages", 15], 1, "too few"),
        (["--passages", 1], 2, "passages"),
    ],
)
def test_what_cannot_be_measured_is_told_in_one_line(run, tmp_path, arguments, code, said):
    path = tmp_path / "rivers.txt"
    path.write_text(TEXT)
    got, out, err = run(path, "--blend", *arguments)
    assert got == code, err
    assert said in err
    assert not out


def test_the_setting_is_one_of_three(home, monkeypatch):
    from localctx.errors import UsageError
    from localctx.settings import load_settings

    assert load_settings().blend == "auto"
    assert load_settings(blend="off").blend == "off"
    monkeypatch.setenv("LOCALCTX_BLEND", "perhaps")
    with pytest.raises(UsageError, match="off, auto or on"):
        load_settings()
