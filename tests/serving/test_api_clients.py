"""The API as clients use it: the package openai, Simon Willison's llm, and Prometheus."""

import json
import shutil

import openai
import pytest
from api_servers import api_server
from tiny_bert import save_bert, tiny_bert
from tiny_models import TEMPLATE, make_tokenizer

from localctx.shape import PAGE

pytestmark = pytest.mark.slow

LONG = "Rivers are long. " * 30
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Rhine", "Elbe"]}, "km": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["name", "km"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def api(serving):
    url, key, _ = serving
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def name(api) -> str:
    return api.models.list().data[0].id


def say(api, name, text="Say.", **more):
    return api.chat.completions.create(model=name, messages=[{"role": "user", "content": text}], **more)


def cached(answer) -> int:
    return answer.usage.prompt_tokens_details.cached_tokens


# Reuse


def test_a_chat_reads_only_what_is_new(api, name):
    first = say(api, name, LONG)
    again = say(api, name, LONG)
    assert cached(first) == 0
    assert first.usage.prompt_tokens - cached(again) < 2 * PAGE
    assert again.choices[0].message.content == first.choices[0].message.content
    talk = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "Yes."}]
    turn = api.chat.completions.create(model=name, messages=[*talk, {"role": "user", "content": "Why?"}])
    assert cached(turn) == cached(again)
    other = say(api, name, "Lakes" + LONG)
    assert cached(other) == 0


# Parameters


def test_answers_logprobs_and_penalties_are_as_asked_for(api, name):
    found = say(api, name, n=3, temperature=1, seed=3, max_tokens=9, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in found.choices}) == 3
    one = say(api, name, temperature=1, seed=4, max_tokens=9)
    assert found.choices[1].message.content == one.choices[0].message.content
    for choice in found.choices:
        assert len(choice.logprobs.content) <= 9
        for token in choice.logprobs.content:
            assert token.logprob <= token.top_logprobs[0].logprob <= 0
            assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
    assert found.usage.completion_tokens == sum(len(choice.logprobs.content) for choice in found.choices)
    assert one.choices[0].logprobs is None


def test_a_bias_forces_and_forbids_tokens(api, name):
    forced = say(api, name, logit_bias={"65": 100}, max_tokens=5).choices[0].message.content
    assert len(set(forced)) == 1
    assert len(forced) == 5
    for penalty in ("frequency_penalty", "presence_penalty"):
        both = (
            say(api, name, logit_bias={"65": 100, "66": 100}, max_tokens=9, **{penalty: 2}).choices[0].message.content
        )
        assert len(set(both)) == 2, penalty
    free = say(api, name, logit_bias={"65": -100}, max_tokens=5).choices[0].message.content
    assert forced[0] not in free


@pytest.mark.parametrize(
    "more",
    [
        {"frequency_penalty": 3},
        {"presence_penalty": -3},
        {"logit_bias": {"x": 1}},
        {"logit_bias": {"1": 101}},
        {"top_logprobs": 2},
        {"logprobs": "yes"},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strange"}}}},
        {"tool_choice": "required"},
        {"modalities": ["audio"]},
        {"store": True},
        {"web_search_options": {"a": 1}},
        {"reasoning_effort": "high"},
        {"service_tier": "flex"},
        {"metadata": "x"},
        {"stream_options": {"strange": 1}},
        {"temperature": 11},
        {"seed": 1.5},
        {"n": 0},
        {"strange": 1},
        {"functions": [{"name": "x"}]},
        {"document_ids": "x"},
    ],
)
def test_what_is_not_obeyed_is_refused_by_name(api, name, more):
    with pytest.raises(openai.BadRequestError) as refused:
        say(api, name, extra_body=more)
    (given,) = more
    assert refused.value.param.partition(".")[0] == given
    assert given in str(refused.value)


def test_labels_are_taken(api, name):
    assert say(api, name, user="me", metadata={"a": "b"}, extra_body={"prompt_cache_key": "x"}).choices


# Formats and tools


def test_answers_have_the_schema_that_is_asked_for(api, name):
    form = {"type": "json_schema", "json_schema": {"name": "river", "schema": SCHEMA, "strict": True}}
    for more in ({"temperature": 0}, {"temperature": 1.5, "seed": 1}):
        found = say(api, name, max_tokens=100, response_format=form, **more).choices[0]
        river = json.loads(found.message.content)
        assert river["name"] in ("Rhine", "Elbe")
        assert 1 <= river["km"] <= 9
        assert found.finish_reason == "stop"
    anything = say(api, name, max_tokens=300, response_format={"type": "json_object"}).choices[0]
    assert anything.message.content.startswith("{")
    if anything.finish_reason == "stop":
        json.loads(anything.message.content)


def test_tools_are_refused_where_the_template_has_none(api, name):
    tool = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
    with pytest.raises(openai.BadRequestError, match="template"):
        say(api, name, tools=[tool])


def test_tools_are_called_where_the_template_has_them(tmp_path, sharp_model):
    model = shutil.copytree(sharp_model, tmp_path / "model")
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{% if tools %}Call {{ tools | tojson }} in <tool_call>{% endif %}" + TEMPLATE
    tokenizer.save_pretrained(model)
    tools = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}]
    with (
        api_server(tmp_path / "home", model, max_tokens=200) as (url, key, _),
        openai.OpenAI(base_url=url, api_key=key, max_retries=0) as api,
    ):
        for choice in ("required", {"type": "function", "function": {"name": "look"}}):
            (found,) = say(api, str(model), tools=tools, tool_choice=choice).choices
            (call,) = found.message.tool_calls
            assert found.finish_reason == "tool_calls"
            assert call.function.name == "look"
            assert json.loads(call.function.arguments)["name"] in ("Rhine", "Elbe")
        asked = [{"role": "user", "content": "Say."}]
        answered = {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]}
        result = {"role": "tool", "tool_call_id": call.id, "content": "865"}
        chunks = list(
            api.chat.completions.create(model=str(model), messages=[*asked, answered, result], tools=tools, stream=True)
        )
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")
        flat = [{"type": "function", "name": "look", "parameters": SCHEMA}]
        found = api.responses.create(model=str(model), input="Say.", tools=flat, tool_choice="required")
        (item,) = found.output
        assert (item.type, item.name) == ("function_call", "look")
        assert json.loads(item.arguments)["km"] in range(1, 10)


# Other endpoints


def test_texts_are_continued(api, name):
    found = api.completions.create(model=name, prompt="Once ", max_tokens=7, echo=True)
    assert found.choices[0].text.startswith("Once ")
    assert found.usage.completion_tokens <= 7
    chunks = list(api.completions.create(model=name, prompt="Once ", max_tokens=7, stream=True, logprobs=1))
    assert "Once " + "".join(chunk.choices[0].text for chunk in chunks) == found.choices[0].text
    assert any(chunk.choices[0].logprobs and chunk.choices[0].logprobs.token_logprobs for chunk in chunks)
    with pytest.raises(openai.BadRequestError, match="two tokens"):
        api.completions.create(model=name, prompt="x")


def test_responses_are_stateless(api, name):
    how = {"model": name, "instructions": "Be short.", "max_output_tokens": 9}
    whole = api.responses.create(**how, input="Say.", metadata={"a": "b"})
    assert (whole.status, whole.store, whole.metadata) == ("incomplete", False, {"a": "b"})
    text = whole.output_text
    assert whole.usage.output_tokens == 9
    said = say(api, name)  # other words before, so another answer
    assert said.choices
    events = list(api.responses.create(**how, input=[{"role": "user", "content": "Say."}], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == text
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == text
    form = {"format": {"type": "json_schema", "name": "river", "schema": SCHEMA}}
    river = api.responses.create(model=name, input="Say.", max_output_tokens=99, text=form)
    assert json.loads(river.output_text)["name"] in ("Rhine", "Elbe")
    for more in ({"previous_response_id": "resp_1"}, {"store": True}, {"background": True}):
        with pytest.raises(openai.BadRequestError, match=next(iter(more))):
            api.responses.create(**how, input="Say.", **more)


def test_a_format_is_obeyed_also_where_a_question_compares_documents(api, name, document):
    other = document.with_name("lakes.txt")
    other.write_text("Lake 7 is 12 km long.\n")
    files = [api.files.create(file=file.open("rb"), purpose="assistants").id for file in (document, other)]
    form = {"type": "json_schema", "json_schema": {"name": "river", "schema": SCHEMA}}
    how = {"max_tokens": 99, "response_format": form, "extra_body": {"document_ids": files}}
    said = say(api, name, "Which of the two documents has the higher rent?", **how)
    assert json.loads(said.choices[0].message.content)["name"] in ("Rhine", "Elbe")
    for file in files:
        assert api.files.delete(file).deleted


def test_documents_are_uploaded_asked_and_deleted(api, name, document):
    with document.open("rb") as f:
        file = api.files.create(file=f, purpose="assistants")
    assert (file.filename, file.bytes) == ("rivers.txt", document.stat().st_size)
    assert [one.id for one in api.files.list().data] == [file.id]
    assert api.files.content(file.id).text == document.read_text()
    found = say(api, name, "How long is river 7?", extra_body={"document_ids": [file.id]})
    again = say(api, name, "How long is river 3?", extra_body={"document_ids": [file.id]})
    assert cached(again) > cached(found)
    cited = found.choices[0].message.model_extra or {}
    cited = found.choices[0].message.annotations or cited.get("annotations")
    assert cited
    assert dict(dict(cited[0])["file_citation"])["file_id"] == file.id
    form = {"type": "json_schema", "json_schema": {"name": "river", "schema": SCHEMA}}
    how = {"max_tokens": 99, "response_format": form, "extra_body": {"document_ids": [file.id]}}
    for asked in ("How long is river 7?", "How many rivers are there?"):
        assert json.loads(say(api, name, asked, **how).choices[0].message.content)["name"] in ("Rhine", "Elbe")
    with pytest.raises(openai.NotFoundError):
        say(api, name, extra_body={"document_ids": [str(document)]})
    assert api.files.delete(file.id).deleted
    assert api.files.list().data == []
    with pytest.raises(openai.NotFoundError):
        api.files.retrieve(file.id)
    with pytest.raises(openai.BadRequestError):
        api.files.create(file=("x.pdf", b"%PDF-1.7 nothing"), purpose="assistants")


def test_what_was_done_is_counted(api, client):
    say(api, api.models.list().data[0].id)
    text = client.get(str(client.base_url).replace("/v1/", "/metrics")).text
    counts = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(counts['localctx_requests_total{path="/v1/chat/completions",status="200"}']) > 0
    for name in ("prompt_tokens_read_total", "tokens_generated_total", "retained_pages", 'kv_pages{tier="device"}'):
        assert int(counts[f"localctx_{name}"]) > 0


def test_texts_become_vectors(tmp_path, sharp_model):
    bert = save_bert(tmp_path / "bert", tiny_bert())
    with (
        api_server(tmp_path / "home", sharp_model, embedder=str(bert)) as (url, key, _),
        openai.OpenAI(base_url=url, api_key=key, max_retries=0) as api,
    ):
        texts = ["Rivers.", "Lakes are deep.", "Rivers."]
        found = api.embeddings.create(model=str(bert), input=texts)
        one, two, three = (item.embedding for item in found.data)
        assert one == pytest.approx(three, abs=1e-5)
        assert one != pytest.approx(two, abs=1e-3)
        assert sum(x * x for x in one) == pytest.approx(1, abs=1e-4)
        assert found.usage.prompt_tokens > 0
        plain = api.embeddings.create(model=str(bert), input=texts[1], encoding_format="float")
        assert plain.data[0].embedding == pytest.approx(two, abs=1e-5)
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            api.embeddings.create(model=str(bert), input="x", dimensions=3)
        with pytest.raises(openai.BadRequestError, match="tokens"):
            api.embeddings.create(model=str(bert), input=[[1, 2]])
        with pytest.raises(openai.BadRequestError, match=r"input\[2\] is longer than 64 tokens"):
            api.embeddings.create(model=str(bert), input=["a", "b", "rivers " * 64])
        alone = [api.embeddings.create(model=str(bert), input=text).usage.prompt_tokens for text in texts]
        assert sum(alone) == found.usage.prompt_tokens


def test_without_an_embedder_there_are_no_vectors(api):
    with pytest.raises(openai.NotFoundError, match="embedder"):
        api.embeddings.create(model="none", input="x")


def test_llm_talks_to_it(serving, name, monkeypatch, tmp_path):
    import llm

    url, key, _ = serving
    about = [{"model_id": "here", "model_name": name, "api_base": url, "api_key_name": "none"}]
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(about))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    model = llm.get_model("here")
    said = model.prompt("Say.", key=key, stream=False).text()
    assert said
    assert "".join(model.prompt("Say.", key=key)) == said
