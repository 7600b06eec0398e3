"""Penalties, biases, grammars and probabilities of single tokens."""

import json

import pytest
import torch
from tiny_models import make_tokenizer

from localctx.errors import UsageError
from localctx.models.constraint import Constraint, json_grammar
from localctx.models.sampling import Sampler
from localctx.models.token_controls import Penalties, TokenControls
from localctx.models.tokenizer.chat_tokenizer import chat_tokenizer_of
from localctx.models.tokenizer.tool_calls import ToolCall, ToolCallReader, call_schema

STOP = 257


def test_penalties_count_what_was_said():
    logits = torch.tensor([3.0, 2.5, 0.0])
    frequency = Sampler(processors=[Penalties(TokenControls(frequency_penalty=0.4))])
    assert [frequency(logits) for _ in range(4)] == [0, 0, 1, 0]
    presence = Sampler(processors=[Penalties(TokenControls(presence_penalty=1.0, bias={1: 0.2, 9: 5.0}))])
    assert [presence(logits) for _ in range(4)] == [0, 1, 0, 0]
    assert logits.tolist() == [3.0, 2.5, 0.0], "the model's logits stay"


def test_probabilities_are_the_models_own():
    sampler = Sampler(processors=[Penalties(TokenControls(bias={2: 100.0}))], top=2)
    logits = torch.tensor([1.0, 2.0, 0.0])
    assert sampler(logits) == 2
    logprob, best = sampler.logprobs
    assert logprob == pytest.approx(float(logits.log_softmax(0)[2]))
    assert [token for token, _ in best] == [1, 0]


@pytest.mark.parametrize("seed", range(4))
def test_answers_follow_a_schema_whatever_the_model_says(seed):
    tokenizer, text = chat_tokenizer_of(make_tokenizer(), STOP), ""
    parts = {"km": {"type": "integer", "minimum": 1, "maximum": 30}, "name": {"enum": ["Rhine", "Elbe"]}}
    schema = {"type": "object", "properties": parts, "required": ["km"], "additionalProperties": False}
    sampler = Sampler(1.0, seed=seed, processors=[Constraint(tokenizer, json_grammar(schema))])
    text_of, random = tokenizer.stream(), torch.Generator().manual_seed(seed)
    while (token := sampler(torch.randn(264, generator=random) * 3)) != STOP:  # more logits than there are tokens
        text += text_of(token)
    found = json.loads(text)
    assert 1 <= found["km"] <= 30
    assert found.keys() <= parts.keys()


@pytest.mark.parametrize(
    "schema", [{"type": "strange"}, [], {"$ref": "#/nowhere"}, {"type": "string", "pattern": "(?<"}]
)
def test_a_schema_that_cannot_be_followed_is_refused(schema):
    with pytest.raises(UsageError, match="no answer can follow this schema"):
        json_grammar(schema)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_tool_calls_are_taken_out_of_a_text_wherever_pieces_end(size):
    text = 'Well. <tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call> <tool_call>{"x"</tool_call> <tool'
    reader = ToolCallReader()
    said = "".join(reader(text[i : i + size]) for i in range(0, len(text), size)) + reader.flush()
    assert reader.calls == [ToolCall("look", '{"a": 1}')]
    assert said == 'Well.  <tool_call>{"x"</tool_call> <tool'
    only = ToolCallReader(only=True)
    assert only('{"name": "look", "arg') == only('uments": {}}') == only.flush() == ""
    assert only.calls == [ToolCall("look", "{}")]


def test_the_schema_of_calls_names_the_tools():
    tools = [{"function": {"name": "look"}}, {"function": {"name": "find", "parameters": {"type": "object"}}}]
    names = [call["properties"]["name"]["const"] for call in call_schema(tools)["anyOf"]]
    assert names == ["look", "find"]
