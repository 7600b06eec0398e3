"""The engine's promises for every codec and keeper on every device there is: a processor, and a GPU that runs kernels.

A GPU's products of several rows are not those of one, so that answers side by side are nearly those alone.
"""

from collections.abc import Callable

import promises
import pytest
import torch
from ask_in_process import session
from triton_device import DEVICE

from localctx.engine.events import Note, Token
from localctx.errors import OutOfKVMemory
from localctx.kv.pool import Pool
from localctx.shape import FORMATS

pytestmark = pytest.mark.slow

DEVICES = ["cpu"] if DEVICE.type == "cpu" else ["cpu", "cuda"]
KEEPERS = ["full", "snapkv:256", "keydiff:256", "select:1/2"]  # those that keep a document whole
QUESTIONS = ["How long is river 7?", "Which river is the longest of all?"]
NEAR = 0.1  # of logits in bf16


@pytest.fixture(params=DEVICES)
def ask_on(request, home, sharp_model):
    """Sessions on a device in bf16."""
    plain = {"device": request.param, "dtype": "bf16", "max_tokens": 12, "draft": 0, "adapter": "none"}
    return lambda **settings: session(home, sharp_model, **plain, **settings)


@pytest.mark.parametrize("codec", FORMATS)
def test_restored_pages_give_the_same_logits_to_the_bit_in_every_codec(ask_on, document, codec):
    with ask_on(kv=codec) as s:
        assert promises.difference(*promises.restored(s, document, QUESTIONS[0]))[0] == 0


@pytest.mark.parametrize("codec", FORMATS)
def test_a_question_beside_another_gives_the_same_logits_as_alone_in_every_codec(ask_on, document, codec):
    with ask_on(kv=codec) as s:
        differ, most = promises.difference(*promises.alone(s, document, *QUESTIONS[:1], QUESTIONS[1:]))
        assert most <= NEAR if s.model.device.type == "cuda" else differ == 0


@pytest.mark.parametrize("keep", KEEPERS)
def test_restored_pages_give_the_same_logits_to_the_bit_with_every_keeper(ask_on, document, keep):
    with ask_on(keep=keep) as s:
        assert promises.difference(*promises.restored(s, document, QUESTIONS[0]))[0] == 0


@pytest.mark.parametrize("keep", ["full", "select:1/2"])
@pytest.mark.parametrize("codec", ["int8", "int4+hadamard"])
def test_spilled_pages_give_the_same_logits_as_resident_ones(ask_on, document, codec, keep):
    """Most pages in the host's memory, and on disk."""
    found = []
    for caps in ({}, {"memory": "40000"}, {"memory": "40000", "ram": "20000"}):
        with ask_on(kv=codec, keep=keep, **caps) as s:
            found.append(promises.ask(s, document, QUESTIONS[0]))
    for spilled in found[1:]:
        differ, most = promises.difference(found[0], spilled)
        assert most <= NEAR if s.model.device.type == "cuda" else differ == 0


# --- Memory runs out


def fail_at(monkeypatch, owner: type, name: str, when: Callable[..., bool]) -> None:
    """Have a method raise what torch raises when a device is full, whenever ``when`` says so."""
    plain = getattr(owner, name)

    def fails(*given):
        if when(*given):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(*given)

    monkeypatch.setattr(owner, name, fails)


def heard(session, document) -> tuple[list[int], list[str]]:
    """The tokens of an answer, and the notes."""
    events = list(session.stream(QUESTIONS[0], [str(document)], persist=False))
    return [e.id for e in events if isinstance(e, Token)], [e.text for e in events if isinstance(e, Note)]


def test_memory_that_runs_out_while_pages_are_sealed_is_relieved_and_told(ask_on, document, monkeypatch):
    """In the middle of a pass, some layers of which have sealed their pages."""
    with ask_on(chunk=256) as s:
        plain, _ = heard(s, document)
        times = iter([False, False, False, True])
        with monkeypatch.context() as patched:
            fail_at(patched, Pool, "seal", lambda *given: next(times, False))
            answer, notes = heard(s, document)
        assert [note.split(":")[0] for note in notes] == ["memory ran out"] * len(notes)
        assert notes
        assert len(answer) == len(plain)
        assert heard(s, document) == (plain, [])


def test_memory_that_runs_out_in_an_answer_is_told_and_the_next_request_works(ask_on, document, monkeypatch):
    with ask_on() as s:
        plain, _ = heard(s, document)
        times = iter([False, False, True])
        with monkeypatch.context() as patched:
            fail_at(
                patched,
                type(s.model),
                "forward_each",
                lambda model, requests, *how: requests[0].cache.phase == "answering" and next(times, False),
            )
            with pytest.raises(OutOfKVMemory, match="memory ran out"):
                heard(s, document)
        assert heard(s, document) == (plain, [])
