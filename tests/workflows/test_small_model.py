"""The small model on real text: what int8 costs, what reuse saves, and what is told where nothing answers."""

import json
import sys

import pytest
import torch
from repository import ROOT

from localctx.engine.events import Token
from localctx.engine.model_loader import ModelLoader
from localctx.engine.scheduler import Scheduler
from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.catalog import FALLBACK
from localctx.models.load import load_model
from localctx.session import Session
from localctx.settings import load_settings

pytestmark = pytest.mark.slow

README = ROOT / "README.md"


@pytest.fixture
def ask(default_home, localctx):
    """``ask`` of the real command with the default model, as JSON."""

    def run(*arguments):
        done = localctx("ask", "--json", *arguments, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def home(default_home, tmp_path, monkeypatch):
    """A data folder of this test's own that has the default model."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "models").symlink_to((default_home / "models").resolve())
    monkeypatch.setenv("LOCALCTX_HOME", str(folder))
    return folder


def test_int8_is_as_good_as_full_precision(default_home, prose):
    """Mean KL divergence from f32 KV at most 0.0005, top-1 agreement at least 99 %, last 500 of 2,000 tokens."""
    model = load_model(default_home / "models" / FALLBACK, FALLBACK, dtype="f32")
    tokens = model.tokenizer.encode(prose[3000:20_000])[:2000]
    logits = {}
    for codec in ("f32", "int8"):
        cache = Cache(Pool(model.shape, codec), model.dtype)
        for at in range(0, 1500, 500):
            model.forward(tokens[at : at + 500], cache)
        steps = [model.forward(tokens[at : at + 50], cache, num_logits=50) for at in range(1500, 2000, 50)]
        logits[codec] = torch.cat(steps).log_softmax(-1)
    divergence = torch.nn.functional.kl_div(logits["int8"], logits["f32"], log_target=True, reduction="batchmean")
    agreement = (logits["int8"].argmax(-1) == logits["f32"].argmax(-1)).float().mean()
    print(f"KL {divergence:.6f}, top-1 {agreement:.4f}", file=sys.stderr)
    assert divergence <= 0.0005
    assert agreement >= 0.99


def test_a_second_question_starts_where_reading_ended(ask, prose, tmp_path):
    document = tmp_path / "pages.txt"
    document.write_text(prose[3000:15_500])
    how = ("--mode", "full", "--max-tokens", 2)
    first = ask(document, "What is this about?", *how)
    second = ask(document, "Who is it written for?", *how)
    tokens, seconds = second["tokens"], (first["seconds"]["first_token"], second["seconds"]["first_token"])
    print(f"{tokens}, first token {seconds[0]:.2f} s, then {seconds[1]:.2f} s", file=sys.stderr)
    assert tokens["prompt"] >= 3000
    assert tokens["reused"] >= 0.98 * tokens["prompt"]
    assert seconds[0] >= 5 * seconds[1], "50 times on a quiet machine; here others compute beside it"


def test_it_answers_from_the_document_and_the_second_start_does_not_convert_again(ask, default_home, tmp_path):
    """Converting takes 25 s, loading 4; that it was not made again is seen by its files, not by a clock."""
    folder, document = default_home / "models" / FALLBACK, tmp_path / "rivers.md"
    document.write_text("# Rivers\n\nThe river Aru is 431 km long. Its source is in the Blue Hills.\n")
    made = {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in folder.iterdir()}
    done = ask(document, "How long is the river Aru?")
    print(f"loaded in {done['seconds']['load']:.1f} s", file=sys.stderr)
    assert "431" in done["answer"]
    assert made == {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in folder.iterdir()}


@pytest.fixture
def as_users_have_it(monkeypatch):
    """Without what other tests set for random models."""
    for name in ("EFFECTIVE_CONTEXT", "CAREFUL", "REPEATS"):
        monkeypatch.delenv(f"LOCALCTX_{name}")


@pytest.mark.usefixtures("home", "as_users_have_it")
def test_what_the_document_does_not_say_is_told_as_that(ask):
    done = ask(README, "Who won the battle of Hastings?")
    assert done["stopped"] == "unanswered"
    assert done["citations"] == []
    assert "nearest" not in done  # no sentence has a word of the question


def test_a_chat_goes_on_where_it_was(localctx, home, prose, tmp_path):
    """Most of this is reading 1,000 tokens once."""
    document = tmp_path / "pages.txt"
    document.write_text(prose[3000:7000])
    arguments = ["chat", "--json", "--max-tokens", 40, "--mode", "full"]
    localctx(*arguments, document, stdin=b"What is this about?\nWho is it written for?\n", timeout=300)
    done = localctx(*arguments, "-c", stdin=b"Is it free?\n", timeout=300)
    tokens = json.loads(done.stdout)["tokens"]
    print(tokens, file=sys.stderr)
    assert tokens["reused"] >= 0.98 * tokens["prompt"]


def test_two_conversations_at_once_answer_as_each_alone(home, prose, tmp_path):
    """The second comes while the first answers: neither waits longer than for one pass, of at most one chunk."""
    how = {"max_tokens": 20, "chunk": 256, "mode": "full", "answers": "free"}
    loader, settings = ModelLoader(), load_settings(home=home, **how)
    questions = ("What is this about?", "Who is it written for?")
    files = [tmp_path / f"{i}.txt" for i in range(2)]
    for i, file in enumerate(files):
        file.write_text(prose[3000 + 4000 * i : 6500 + 4000 * i])
    with Session(settings, loader=loader) as first, Session(settings, loader=loader) as second:
        asked = list(zip((first, second), files, questions, strict=True))
        alone = [[e.id for e in s.stream(q, [str(f)], persist=False) if isinstance(e, Token)] for s, f, q in asked]
        served, said = [], {}

        def compute(feeds, cancelled):
            served.append([(feed.cache, len(feed.tokens)) for feed in feeds])
            return loader.forward_each(feeds, cancelled)

        scheduler = Scheduler(compute, max_prefill_tokens=256)
        seats = [scheduler.add(first.workflows.questions.ask([str(files[0])], questions[0], False))]
        for seat, event in scheduler.run():
            if isinstance(event, Token):
                said.setdefault(seat, []).append(event.id)
                if len(seats) == 1 and len(said[seat]) == 3:
                    seats.append(scheduler.add(second.workflows.questions.ask([str(files[1])], questions[1], False)))
    assert [said[seat] for seat in seats] == alone
    assert all(sum(n for _, n in one if n > MAX_DECODE_TOKENS) <= 256 for one in served), "a pass reads one chunk"
    for cache in dict.fromkeys(cache for one in served for cache, _ in one):
        at = [i for i, one in enumerate(served) if any(cache is other for other, _ in one)]
        assert at == list(range(at[0], at[-1] + 1)), "and each is part of every pass, from its first to its last"
