"""Small talk in a chat about documents is answered by the model itself; no question is taken for small talk."""

import pytest
from ask_in_process import session
from hypothesis import given
from hypothesis import strategies as st
from tiny_adapters import save_adapter

from localctx.engine.events import Done, Note
from localctx.engine.prompt import make_prompt
from localctx.library.wording.small_talk import is_small_talk

pytestmark = pytest.mark.slow

TALK = """Thanks!
Hello
ok
Hi there!
Good morning.
Thank you very much.
That was helpful, thank you!
Great, thanks
I see.
Got it, thanks for your help.
Perfect!
👍
Bye!
See you later
You\N{RIGHT SINGLE QUOTATION MARK}re welcome.
How are you?
Hmm, interesting.
Ok, that makes sense.
Wow, that's really great!
Never mind""".splitlines()

# FairytaleQA (Xu et al. 2022, Apache-2.0): the shortest of its validation set, and some with words of small talk.
QUESTIONS = """Who was the thief?
Who were quite tiny?
Who owned the sheep?
How did the boy look?
Who was Ebe Ashpeter?
Who owned the forest?
What did the cat have?
Where was her cottage?
Who was in the chariot?
Who was the bird lover?
Who lives in the forest?
Who had three daughters?
Why was it a lucky ring?
What was in the big box?
What job was Kari given?
Whose foot fit the shoe?
Why did the king remarry?
What was done in preparation for the wedding?
How was Assipattle a lazy boy?
Why did the shoemaker go to the well himself?
Who dwelled near the well?
Who was a mighty hero and a good archer?
Why did the sparrow thank the old man?
Why was the Giant sorry for what he had done?
What happened because the lad wanted to say good-by to the princess?
Why did the bull have doubt as to whether it would end well?
Why did the emperor have great fortune?
Why did the old woman not even stop to thank the Lady Sparrow?""".splitlines()

SHORT = """And then?
Why?
?
And when?
Ok, and who is the king?
Thanks, and the second?
Hello, what is this about?
Good, list them
Who said hello?
Is that right?
Right, but why?
Ok so what happened next""".splitlines()


@pytest.fixture(scope="module")
def adapter(sharp_model, tmp_path_factory):
    return save_adapter(tmp_path_factory.mktemp("adapters") / "made", sharp_model)


def test_talk_and_questions_are_told_apart():
    assert (len(TALK), len(QUESTIONS) + len(SHORT)) == (20, 40)
    assert [text for text in TALK if not is_small_talk(text)] == []
    assert [text for text in (*QUESTIONS, *SHORT) if is_small_talk(text)] == []


@given(st.lists(st.sampled_from([*TALK, "x", "\n", "bye bye", "good"]), max_size=200))
def test_it_takes_no_time_and_nothing_is_not_talk(parts):
    text = " ".join(parts)
    assert is_small_talk(text) in (True, False)
    assert not is_small_talk(f"{text} of whom")


@pytest.mark.parametrize("how", [{"mode": "full"}, {"mode": "retrieve", "careful": "auto"}, {"mode": "everywhere"}])
def test_small_talk_in_a_chat_is_answered_without_documents_and_adapter(home, sharp_model, adapter, document, how):
    with session(home, sharp_model, adapter=str(adapter), max_tokens=4, **how) as s:
        chat = s.workflows.chats.start([str(document)]).id
        reports = []
        for text in ("Thanks!", "How long is river 7?", "Thanks!", "And river 9?"):
            *_, done = s.run(s.workflows.chats.ask(chat, text))
            assert isinstance(done, Done)
            reports.append(done.report.to_json())
        prompt = make_prompt(s.model.tokenizer, [], "Thanks!")
        stored = [m.text for m in s.store.chats.messages(chat) if m.role == "user"]
    talk, questions = reports[::2], reports[1::2]
    assert [(r["adapter"], r["stopped"], r["citations"]) for r in talk] == [(None, "length", [])] * 2
    assert [r["tokens"]["prompt"] for r in talk] == [len(prompt.tokens)] * 2
    assert stored == ["Thanks!", "How long is river 7?", "Thanks!", "And river 9?"]
    if how["mode"] == "full":
        assert [r["adapter"] for r in questions] == ["made"] * 2
        assert questions[1]["tokens"]["reused"] >= questions[0]["tokens"]["prompt"], "the chat goes on as before"


def test_small_talk_leaves_nothing_out_of_a_document_read_so_far(home, sharp_model, adapter, document):
    with session(home, sharp_model, adapter=str(adapter), mode="full", max_tokens=4) as s:
        chat = s.workflows.chats.start([str(document)]).id
        heard = [list(s.run(s.workflows.chats.ask(chat, t, "50%"))) for t in ("River 7?", "Thanks!", "And river 9?")]
    notes = [[event.text for event in events if isinstance(event, Note)] for events in heard]
    assert [len(told) for told in notes] == [1, 0, 1]
    assert "read up to" in notes[0][0]
    assert heard[2][-1].report.tokens.reused >= heard[0][-1].report.tokens.prompt


def test_one_question_of_a_file_is_never_small_talk(home, sharp_model, adapter, document):
    with session(home, sharp_model, adapter=str(adapter), max_tokens=4) as s:
        *_, done = s.stream("Thanks!", [str(document)])
    assert done.report.to_json()["adapter"] == "made"
