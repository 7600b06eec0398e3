"""Folders of models that would hang, fill the memory or crash: each costs one sentence, in seconds."""

import json
import shutil
import struct
import threading
import time
from pathlib import Path

import pytest
from command_checks import assert_one_line

from localctx.errors import ModelError
from localctx.models.choice.sizing import read_config
from localctx.models.files.config_limits import check_config
from localctx.models.files.safetensors_files import check_headers
from localctx.models.load import load_model
from localctx.models.tokenizer import chat_template
from localctx.models.tokenizer.chat_template import render, template_literals

BILLION = 1_000_000_000
TALK = [{"role": "user", "content": "Hello"}]
RANGES = "".join("{% for " + name + " in range(99999) %}" for name in "abcdef") + "x" + "{% endfor %}" * 6

TEMPLATES = {
    "nested ranges": RANGES,
    "power": "{{ (messages | length * 10) ** (10 ** 10) }}",
    "repeated text": "{{ 'a' * 10 ** 12 }}",
    "doubling": "{% set n = namespace(x='a' * 99999) %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "wide": "{{ 'a' | center(10 ** 12) }}",
    "format": "{{ '%999999999999d' | format(1) }}",
    "joined": "{{ range(99999) | join('a' * 10 ** 8) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(200) }}",
    "missing": "{{ nothing.at.all }}",
    "type": "{{ 1 + 'a' }}",
    "division": "{{ 1 / 0 }}",
    "raise": "{{ raise_exception('no system\x1b[31m here') }}",
    "sandbox": "{{ ''.__class__.__mro__ }}",
    "no end": "{% for x in messages %}",
    "no filter": "{{ 1 | nothing }}",
    "parentheses": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "ifs": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "long": "a" * (chat_template.MAX_TEMPLATE + 1),
    "include": "{% include '/etc/passwd' %}",
    "unpack": "{% for a, b in [1] %}{% endfor %}",
}

ENDLESS = {"nested ranges", "power", "joined"}  # which take all the time that there is


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Templates get a second."""
    monkeypatch.setattr(chat_template, "SECONDS", 1.0)


@pytest.mark.parametrize("name", [pytest.param(t, marks=pytest.mark.slow if t in ENDLESS else ()) for t in TEMPLATES])
def test_a_hostile_template_ends_in_a_sentence(name):
    def use() -> None:
        template_literals(TEMPLATES[name])
        render(TEMPLATES[name], TALK)

    with pytest.raises(ModelError, match="chat template"):
        use()
    assert render("{{ messages[0].content }}", TALK) == "Hello"  # it serves the next


def test_a_template_sees_no_more_than_its_conversation():
    for name in ("open", "self.__init__", "cycler.__init__.__globals__", "lipsum.__globals__", "joiner.__class__"):
        try:
            said = render("{{ " + name + " }}", TALK)
        except ModelError:
            continue
        assert said == "", name


def test_threads_that_render_at_once_get_their_own():
    said = dict[int, str]()

    def ask(i: int) -> None:
        said[i] = render("{{ messages[0].content }}", [{"role": "user", "content": str(i)}])

    threads = [threading.Thread(target=ask, args=[i]) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {i: str(i) for i in range(16)}


@pytest.mark.slow
def test_a_child_that_was_killed_is_started_again():
    render("x", TALK)
    chat_template._renderer()._child.kill()
    chat_template._renderer()._child.wait()
    assert render("{{ messages[0].content }}", TALK) == "Hello"


# Numbers in config.json

NUMBERS = {
    "layers": {"num_hidden_layers": BILLION},
    "heads": {"num_attention_heads": BILLION},
    "key heads": {"num_key_value_heads": 10**18},
    "width": {"hidden_size": 10**12},
    "inner width": {"intermediate_size": 10**12},
    "head width": {"head_dim": 10**9},
    "vocabulary": {"vocab_size": 10**15},
    "experts": {"num_local_experts": BILLION},
    "experts in layers": {"num_hidden_layers": 1000, "num_experts": 8000},
    "negative": {"num_hidden_layers": -5},
    "none": {"hidden_size": 0},
    "infinite": {"num_hidden_layers": float("inf")},
    "inside": {"text_config": {"num_hidden_layers": BILLION}},
    "list": {"layer_types": ["full_attention"] * 100_000},
    "deep": {"a": json.loads("[" * 200 + "]" * 200)},
}


@pytest.fixture
def folder(tiny_model, tmp_path) -> Path:
    """A copy of a whole tiny model."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def change(file: Path, **values: object) -> None:
    """Writes other values into a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_no_model_has_are_refused_in_a_sentence(folder, name):
    change(folder / "config.json", **NUMBERS[name])
    for read in (lambda: read_config(folder / "config.json"), lambda: load_model(folder, "m")):
        start = time.process_time()
        with pytest.raises(ModelError) as refused:
            read()
        assert "config.json" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert time.process_time() - start < 5


@pytest.mark.slow
@pytest.mark.parametrize("text", ["[" * 100_000, "{" + '"a":{' * 50_000, "\x00" * 100, "[1, 2", ""])
def test_a_config_that_is_no_json_is_refused_in_a_sentence(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError):
        read_config(folder / "config.json")
    with pytest.raises(ModelError):
        load_model(folder, "m")


def test_every_model_that_is_known_passes():
    from localctx.models.catalog import load_catalog

    files = [entry.config_file for entry in load_catalog().values() if entry.config_file.is_file()]
    assert len(files) > 10
    for file in files:
        check_config(file)


@pytest.mark.slow
@pytest.mark.parametrize("claimed", [2**62, 2**64 - 1, 200 << 20, 10_000_000])
def test_a_header_longer_than_its_file_is_refused_in_a_sentence(folder, claimed):
    file = next(folder.glob("*.safetensors"))
    file.write_bytes(struct.pack("<Q", claimed) + file.read_bytes()[8:])
    with pytest.raises(ModelError, match="its header claims"):
        check_headers(folder)
    with pytest.raises(ModelError, match="its header claims"):
        load_model(folder, "m")


# By the command


@pytest.mark.slow
def test_a_command_says_one_line(run, folder, document):
    whole = {file: file.read_bytes() for file in folder.iterdir()}
    weights = next(folder.glob("*.safetensors"))
    for change_it, problem in (
        (lambda: change(folder / "config.json", num_hidden_layers=BILLION), "num_hidden_layers"),
        (lambda: weights.write_bytes(struct.pack("<Q", 2**62)), "header"),
        (lambda: (folder / "chat_template.jinja").write_text(RANGES), "chat template"),
        (lambda: (folder / "chat_template.jinja").write_text("{{ raise_exception('\x1b[31m') }}"), "chat template"),
    ):
        change_it()
        done = run("ask", document, "Why?", "--model", folder, "-q")
        assert_one_line(done, 1, problem, "model")
        assert "\x1b" not in done.stderr
        for file, data in whole.items():
            file.write_bytes(data)
        (folder / "chat_template.jinja").unlink(missing_ok=True)
