"""Conversations to tokens: what transformers makes of the same templates and tokenizers, token by token."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import TEMPLATE, make_tokenizer
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from localctx.errors import ModelError
from localctx.models.load import load_model
from localctx.models.tokenizer.chat_tokenizer import NO_DATE, chat_tokenizer_of
from localctx.models.tokenizer.tokenizer_files import _QWEN_SPLIT, find_tokenizer, stops_of

pytestmark = pytest.mark.slow

TEMPLATES = {
    "plain": TEMPLATE,
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "blocks and loops": (
        "{%- for m in messages %}\n    {%- if loop.index0 > 5 %}{% break %}{% endif %}\n  {{ bos_token }}"
        "{{ m.role }}:\n    {% generation %}{{ m.content | trim }}{% endgeneration %}\n{{ eos_token }}\n{%- endfor %}\n"
    ),
    "namespace and json": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m | tojson }}{{ ns.n }}"
        "{{ dict(a=m.content) | tojson(indent=2) }}{% endfor %}{{ tools is none }}{{ documents is none }}"
    ),
    "a date": "{{ strftime_now('%d %b %Y') }}{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}",
    "thinking": "{% for m in messages %}{{ m.content.split('</s>')[-1] }}{% endfor %}{{ enable_thinking }}<think>",
}
PIECES = ["<s>", "</s>", "<think>", "<|im_start|>", "<|im_end|>", "<|im_", "end|>", "\n", " ", "é", "😀", "\U000f0000"]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=8).map("".join)
TALKS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "</s>"]), "content": TEXTS}),
    min_size=1,
    max_size=4,
)


def theirs_of(tokenizer, talk):
    """As transformers does it, with the date left out."""
    template = tokenizer.chat_template
    return tokenizer.apply_chat_template(
        talk,
        chat_template=NO_DATE + template if "strftime_now" in template else template,
        add_generation_prompt=True,
        enable_thinking=False,
        sanitize_control_tokens=True,
    )["input_ids"]


def made(template):
    """A tokenizer of transformers with tokens of several kinds."""
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("<|im_end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<|im_start|>", special=True, rstrip=True), AddedToken(" é", special=False)])
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("name", TEMPLATES)
@given(talk=TALKS)
@settings(max_examples=60, deadline=None)
def test_conversations_become_the_tokens_of_transformers(name, talk):
    tokenizer = made(TEMPLATES[name])
    mine = chat_tokenizer_of(tokenizer, None)
    assert mine.encode_chat(talk) == theirs_of(tokenizer, talk)
    text = talk[0]["content"]
    assert mine.encode(text) == tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def test_without_a_template_messages_stand_one_after_another():
    tokenizer = made(None)
    expected = tokenizer("a\n\n</s>\n\n", split_special_tokens=True)["input_ids"]
    said = [{"role": "user", "content": "a"}, {"role": "user", "content": "</s>"}]
    assert chat_tokenizer_of(tokenizer, None).encode_chat(said) == expected


def test_listed_control_tokens_are_those_that_are_heeded():
    tokenizer = made("{% for m in messages %}{{ m.content }}{% endfor %}")
    for listed in (None, ["<think>"], []):
        tokenizer.chat_control_tokens = listed
        talk = [{"role": "user", "content": "a<think>b</s>"}]
        assert chat_tokenizer_of(tokenizer, None).encode_chat(talk) == theirs_of(tokenizer, talk)


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no system here') }}",
        "{{ messages.__class__ }}{{ ''.__class__.__mro__ }}",
        "{{ dict.__class__.__base__.__subclasses__() }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(template):
    tokenizer = made(template)
    with pytest.raises(ModelError, match="chat template"):
        chat_tokenizer_of(tokenizer, None).encode_chat([{"role": "user", "content": "a"}])


# --- Folders


@pytest.fixture
def folder(tmp_path, tiny_model):
    return shutil.copytree(tiny_model, tmp_path / "model")


def change(file, **values):
    said = json.loads(file.read_text()) | values
    file.write_text(json.dumps({k: v for k, v in said.items() if v is not ...}))


TALK = [{"role": "user", "content": "Wie heißt <s>dieser</s> Fluss e\u0301?\n<|im_end|> 12 rivers  "}]


def same(folder, family="llama"):
    """Whether the folder's tokenizer is read without transformers; it is the same then."""
    mine = find_tokenizer(folder, family, stops_of(folder, None))
    theirs = AutoTokenizer.from_pretrained(folder)
    if mine:
        assert mine.encode_chat(TALK) == theirs_of(theirs, TALK)
        assert mine.encode(TALK[0]["content"]) == chat_tokenizer_of(theirs, None).encode(TALK[0]["content"])
        assert mine._specials == theirs.special_tokens_map
        if family == "llama":  # Qwen's class says nothing as "", not as null
            assert mine.identity == chat_tokenizer_of(theirs, None).identity
    return mine is not None


def test_the_tokenizer_of_a_folder(folder):
    assert same(folder)
    change(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", model_max_length=100)
    assert same(folder)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template=template)
    assert same(folder)


def test_tokenizers_that_transformers_would_change_are_left_to_it(folder):
    config, before = folder / "tokenizer_config.json", (folder / "tokenizer_config.json").read_text()
    for values in (
        {"tokenizer_class": "LlamaTokenizer"},
        {"tokenizer_class": ...},
        {"split_special_tokens": True},
        {"pad_token": "<pad>"},
        {"extra_special_tokens": ["<new>"]},
        {"added_tokens_decoder": {"256": {"content": "<s>", "special": True, "lstrip": True}}},
        {"chat_template": [{"name": "default", "template": TEMPLATE}]},
    ):
        change(config, **values)
        assert not same(folder), values
        config.write_text(before)
    for name in ("tekken.json", "special_tokens_map.json", "added_tokens.json"):
        (folder / name).write_text("{}")
        assert find_tokenizer(folder, "llama", None) is None
        (folder / name).unlink()
    assert same(folder)


def qwen(folder, **more):
    """A folder whose tokenizer is made as Qwen's are."""
    backend = make_tokenizer().backend_tokenizer
    backend.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_QWEN_SPLIT), behavior="isolated", invert=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<think>", normalized=False)])
    tokenizer.chat_template = TEMPLATES["chatml"]
    tokenizer.save_pretrained(folder)
    change(folder / "tokenizer_config.json", tokenizer_class="Qwen2Tokenizer", **more)
    config = json.loads((folder / "config.json").read_text())
    return folder, folder / "config.json", config


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_qwens_tokenizer_is_what_transformers_builds_of_it(folder, family):
    folder, file, config = qwen(folder)
    file.write_text(json.dumps(config | {"model_type": family}))
    assert same(folder, family)
    change(folder / "tokenizer_config.json", unk_token=None, bos_token=None)
    assert same(folder, family)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for normalizer, read in ((None, True), ({"type": "Lowercase"}, False)):  # a GGUF tells none
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": normalizer}))
        assert same(folder, family) is read


def test_what_ends_an_answer(folder):
    assert stops_of(folder, 3) == 257
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    assert load_model(folder, "m", "cpu", "f32").tokenizer.stop_ids == {5, 6, 257}
    assert load_model(folder, "m", "cpu", "bf16").tokenizer.stop_ids == {5, 6, 257}
    (folder / "generation_config.json").unlink()
    assert stops_of(folder, 3) == 3
    assert load_model(folder, "m", "cpu", "f32").tokenizer.stop_ids == {257}
