"""Which questions the adapter answers, in which form, and what the command says of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ask_in_process import session
from tiny_adapters import save_adapter
from tiny_models import KEPT, make_tokenizer

from localctx.budget import Measured
from localctx.engine.events import Done
from localctx.engine.planning import plan as plans
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import ASK, READER
from localctx.errors import ModelError
from localctx.models.load import loading_bytes
from localctx.settings import load_settings
from localctx.shape import PAGE
from localctx.workflows.answer import abstention
from localctx.workflows.reply import ReplyRequest
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"


@pytest.fixture(scope="module")
def adapter(sharp_model, tmp_path_factory) -> Path:
    return save_adapter(tmp_path_factory.mktemp("adapters") / "made", sharp_model)


def last(events) -> dict:
    *_, done = events
    assert isinstance(done, Done)
    return done.report.to_json()


@pytest.mark.parametrize(
    ("question", "adapted"),
    [
        (QUESTION, True),
        ("And river 9?", True),
        ("Summarize River 7.", False),
        ("Give me an overview of River 7", False),
        ("List all of River 7", False),
        ("What are the main themes of River 7?", False),
    ],
)
@pytest.mark.parametrize("mode", ["full", "retrieve"])
def test_an_adapter_answers_questions_but_not_those_of_the_whole(
    home, sharp_model, adapter, document, question, adapted, mode
):
    with session(home, sharp_model, adapter=str(adapter), mode=mode, max_tokens=4) as s:
        report = last(s.stream(question, [str(document)]))
    assert (report["mode"], report["adapter"]) == (mode, "made" if adapted else None)
    document_form = document.read_text() if mode == "full" else report["passages"][0]["text"]
    prompt = make_prompt(s.model.tokenizer, [document_form], question, (), READER if adapted else ASK)
    assert report["tokens"]["prompt"] == len(prompt.tokens)


def test_stored_answers_of_a_batch_depend_on_the_files_of_the_adapter(tmp_path, sharp_model):
    folder = save_adapter(tmp_path / "own", sharp_model)
    settings = load_settings(adapter=str(folder), model=str(sharp_model))
    asked, told = SummaryTask(questions=("How long is it?",)), SummaryTask()
    before, summary = asked.recipe(settings), told.recipe(settings)
    assert asked.recipe(settings) == before != asked.recipe(replace(settings, adapter="none"))
    (folder / "reader.json").write_text('{"answers": "quote"}')
    assert asked.recipe(settings) != before
    assert told.recipe(settings) == summary == told.recipe(replace(settings, adapter="none"))


def test_a_chat_may_go_from_the_adapter_to_the_model_and_back(home, sharp_model, adapter, document):
    with session(home, sharp_model, adapter=str(adapter), mode="full", max_tokens=4) as s:
        chat = s.workflows.chats.start([str(document)]).id
        asked = (QUESTION, "Summarize it.", "And river 9?", "Which is longest?")
        reports = [last(s.run(s.workflows.chats.ask(chat, question))) for question in asked]
        stored = [m.stats["adapter"] for m in s.store.chats.messages(chat) if m.role == "assistant"]
    assert [r["adapter"] for r in reports] == stored == ["made", None, "made", "made"]
    assert [r["tokens"]["reused"] // PAGE >= KEPT // PAGE for r in reports] == [False, True, True, True]
    assert reports[3]["tokens"]["reused"] >= reports[2]["tokens"]["prompt"]


def test_chats_without_documents_and_replies_are_the_models_own(home, sharp_model, adapter):
    with session(home, sharp_model, adapter=str(adapter), max_tokens=4) as s:
        chat = s.workflows.chats.start([]).id
        assert last(s.run(s.workflows.chats.ask(chat, QUESTION)))["adapter"] is None
        messages = [{"role": "user", "content": f"Question: {QUESTION}"}]
        assert last(s.run(s.workflows.reply(ReplyRequest(s.settings, messages))))["adapter"] is None


def test_an_answer_from_one_passage_knows_what_a_client_says_was_said_before(home, sharp_model, document):
    with session(home, sharp_model, max_tokens=9, mode="retrieve", careful="auto") as s:
        (known,) = s.workflows.store([str(document)])
        asked = ReplyRequest(replace(s.settings, max_tokens=3), documents=[known], question="Summarize river 9.")
        alone = last(s.run(s.workflows.reply(asked)))
        after = last(s.run(s.workflows.reply(replace(asked, history=[(QUESTION, "It is 259 km long.")]))))
    assert after["tokens"]["prompt"] > alone["tokens"]["prompt"] + len(QUESTION)
    assert after["stopped"] == alone["stopped"] == "length"
    assert (after["tokens"]["generated"], alone["tokens"]["generated"]) == (3, 3)


def test_a_summary_is_the_models_own(home, sharp_model, adapter, document):
    summaries = list[str]()
    for setting in (str(adapter), "none"):
        with session(home / str(len(summaries)), sharp_model, adapter=setting) as s:
            s.sources = [str(document)]
            summaries.append(s.summarize(length="20")[0].text)
    assert summaries[0] == summaries[1]


def test_an_adapter_reads_by_itself(home, sharp_model, adapter, document, monkeypatch):
    monkeypatch.setattr(abstention, "is_likelier", None)  # whoever calls it fails
    how = {"mode": "retrieve", "careful": "auto", "max_tokens": 6, "repeats": "stop"}
    with session(home, sharp_model, adapter=str(adapter), **how) as s:
        report = last(s.stream(QUESTION, [str(document)]))
    assert report["adapter"] == "made"
    assert report["stopped"] != "unanswered"


def test_a_form_of_its_own_must_invoke_it(home, sharp_model, tmp_path, document):
    folder = save_adapter(tmp_path / "asked", sharp_model, invocation=make_tokenizer().encode("Asked:"))
    opened = session(home, sharp_model, adapter=str(folder), max_tokens=4)
    with opened as s, pytest.raises(ModelError, match=r"reader\.json"):
        list(s.stream(QUESTION, [str(document)]))
    (folder / "reader.json").write_text(json.dumps({"form": "Asked: {question}"}))
    with session(home, sharp_model, adapter=str(folder), max_tokens=4) as s:
        assert last(s.stream(QUESTION, [str(document)]))["adapter"] == "asked"


def test_the_command_names_the_adapter_and_refuses_a_wrong_one_in_one_line(run, sharp_model, adapter, document):
    ask = ["ask", document, QUESTION, "--model", sharp_model, "--max-tokens", 2, "--json"]
    assert json.loads(run(*ask, "--adapter", adapter).stdout)["adapter"] == "made"
    assert json.loads(run(*ask).stdout)["adapter"] is None
    wrong = run(*ask, "--adapter", "nothing-of-the-kind")
    assert (wrong.returncode, wrong.stdout, len(wrong.stderr.splitlines())) == (1, "", 1)
    assert "there is no adapter 'nothing-of-the-kind'" in wrong.stderr
    plan = ["plan", "--model", sharp_model, "--json"]
    with_it, without = (json.loads(run(*plan, "--adapter", name).stdout) for name in (adapter, "none"))
    assert with_it["adapter_bytes"] == (adapter / "adapter_model.safetensors").stat().st_size
    assert without["adapter_bytes"] == 0
    assert "\nadapter      " in run("plan", "--model", sharp_model, "--adapter", adapter).stdout


def test_plan_refusal_and_what_is_in_use_count_the_same_bytes_of_an_adapter(
    home, run, sharp_model, adapter, document, monkeypatch
):
    ask = ["ask", document, QUESTION, "--model", sharp_model, "--dtype", "f32", "--max-tokens", 2]
    plan = ["plan", "--model", sharp_model, "--dtype", "f32", "--json"]
    reports = [json.loads(run(*plan, "--adapter", name).stdout) for name in (adapter, "none")]
    nbytes = reports[0]["adapter_bytes"]
    folder, device = Path(sharp_model), torch.device("cpu")
    free = loading_bytes(folder, device, torch.float32, "full") + nbytes
    for more, code in ((0, 0), (-1, 1)):
        memory = Measured(int(free) + more, int(free) + more)
        monkeypatch.setattr(plans, "measure_device", lambda device, memory=memory: memory)
        answered = run(*ask, "--adapter", adapter)
        assert answered.returncode == code
        assert ("with its adapter takes" in answered.stderr) == bool(code)
        assert run(*ask, "--adapter", "none").returncode == 0
    monkeypatch.undo()
    for setting, counted in ((str(adapter), nbytes), ("none", 0)):
        with session(home, sharp_model, adapter=setting, max_tokens=2) as s:
            assert s.in_use.adapter == 0, "nothing is loaded"
            list(s.stream(QUESTION, [str(document)]))
            assert s.in_use.adapter == counted
