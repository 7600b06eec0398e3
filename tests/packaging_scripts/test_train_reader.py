"""A reader is trained on a tiny model: it learns, a stopped run ends as an unstopped one, PEFT computes the same."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from repository import ROOT

from localctx.engine.model_loader import ModelLoader
from localctx.engine.prompt_wording import NOT_SAID
from localctx.settings import load_settings

sys.path.insert(0, str(ROOT / "packaging"))
import near_misses
import train_reader
from lora_decoder import LoraDecoder, Rows
from reader_examples import Example, ReaderData

pytestmark = pytest.mark.slow

WORDS = ["red", "blue", "green", "white", "black", "brown"]


def paragraph(i: int) -> dict:
    """A paragraph of one sentence, and a question that it answers."""
    colour = WORDS[i % len(WORDS)]
    return {
        "text": f"House {i} is {colour}.",
        "questions": [
            {"question": f"What colour is house {i}?", "answers": [colour.title()]},
            {"question": f"Which house is {colour}?", "answers": [f"House {i}"]},
        ],
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Articles and stories in the form of the data that readers are trained on."""
    folder = tmp_path_factory.mktemp("data")
    articles = [{"title": "train", "paragraphs": [paragraph(i) for i in range(12)]}]
    stories = [{"title": f"story {k}", "paragraphs": [paragraph(100 * k + i) for i in range(4)]} for k in range(1, 5)]
    (folder / "squad-train.json").write_text(json.dumps(articles))
    (folder / "fairytale-train.json").write_text(json.dumps(stories))
    return folder


@pytest.fixture(autouse=True)
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps are trained here, all at a high rate."""
    monkeypatch.setattr(train_reader, "WARMUP", 2)
    monkeypatch.setattr(near_misses, "MOST_THINGS", 2)  # short documents
    monkeypatch.setattr(near_misses, "MOST_FACTS", 1)


def train(data: Path, tied: Path, output: Path, steps: int = 16) -> torch.Tensor:
    """Train for some steps; returns the adapters as one row."""
    options = {"model": str(tied), "rank": 2, "rate": 2e-2, "questions": 4, "seed": 3, "steps": steps, "hours": 0}
    options |= {"threads": 0, "device": "cpu", "longest": 0}
    train_reader.run(Namespace(data=data, output=output, **options), output.with_suffix(".training"))
    state = torch.load(output.with_suffix(".training") / "state.pt", weights_only=True)
    return torch.cat([p.flatten() for p in state["parameters"]])


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama whose embedding is its head."""
    from tiny_models import make_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"bos_token_id": 256, "eos_token_id": 257, "tie_word_embeddings": True}
    config = LlamaConfig(
        vocab_size=260, num_key_value_heads=2, head_dim=16, max_position_embeddings=4096, **shape, **ends
    )
    folder = tmp_path_factory.mktemp("tied")
    LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def test_examples_have_every_question_and_some_without_an_answer(data: Path) -> None:
    """Every paragraph is in one example with its questions; questions from elsewhere are answered by NOT_SAID."""
    used = ReaderData(data)
    examples = [e for e in used.epoch(1) if all("house" in turns[-1][0].lower() for turns in e.conversations)]
    asked = {turns[-1] for example in examples for turns in example.conversations}
    assert {turn[1] for turn in asked} >= {NOT_SAID, "red", "House 203"}, "answers are as the text writes them"
    own = [p.text for p in (*used.articles, *used.stories)]
    for text in own:
        assert sum(text in "\n\n".join(example.texts) for example in examples) == 1
    for example in examples:
        for turns in example.conversations:
            assert (turns[-1][1] == NOT_SAID) == (turns[-1][1] not in " ".join(example.texts))


def test_half_of_the_examples_are_made(data: Path) -> None:
    """Their questions are about near misses; article paragraphs may stand among them."""
    examples = ReaderData(data).epoch(1)
    made = [e for e in examples if not any("house" in turns[-1][0].lower() for turns in e.conversations)]
    assert len(made) == len(examples) / 2
    assert all(any(turns[-1][1] == NOT_SAID for turns in e.conversations) for e in made)


def test_held_out_paragraphs_are_not_trained_on(data: Path) -> None:
    """The two kinds have no paragraph in common."""
    kinds = [{p.text for p in (*some.articles, *some.stories)} for some in (ReaderData(data), ReaderData(data, True))]
    assert all(kinds)
    assert not kinds[0] & kinds[1]


def test_a_stopped_run_ends_as_an_unstopped_one(data: Path, tied: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """Progress is saved after each step here; the second run goes on from there, to the same bits."""
    whole = train(data, tied, tmp_path / "whole")
    losses = [json.loads(line)["loss"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    monkeypatch.setattr(train_reader, "SAVE_EVERY", 0.0)
    step, steps = train_reader.Trainer.train, []

    def stop_after_three(trainer: train_reader.Trainer, examples: list) -> float:
        if len(steps) == 3:
            raise KeyboardInterrupt
        steps.append(step(trainer, examples))
        return steps[-1]

    monkeypatch.setattr(train_reader.Trainer, "train", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        train(data, tied, tmp_path / "stopped")
    monkeypatch.setattr(train_reader.Trainer, "train", step)
    assert torch.equal(train(data, tied, tmp_path / "stopped"), whole)
    assert losses[-1] < 5.4, "a uniform guess among 260 tokens is 5.56"


def test_peft_computes_the_same(data: Path, tied: Path, tmp_path: Path) -> None:
    """PEFT loads the adapter and, told where it begins by the invocation tokens, gives the same logits."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    train(data, tied, tmp_path / "reader", steps=8)
    decoder = LoraDecoder(tied, 2, 4.0)
    decoder.load(tmp_path / "reader")
    tokenizer = ModelLoader().load(load_settings(model=str(tied)), lambda progress: None)[0].tokenizer
    packed = train_reader.Packer(tokenizer).pack(Example(["House 1 is red."], [[("What is red?", "House 1")]]))
    with torch.no_grad():
        rows = [Rows(slice(0, len(packed.tokens)), packed.segments, decoder.read([packed.prefix])[0])]
        hidden, _ = decoder(torch.tensor(packed.tokens), torch.tensor(packed.positions), rows, adapted=True)
        mine = decoder.logits(hidden)
        reference = AutoModelForCausalLM.from_pretrained(tied, dtype=torch.bfloat16)
        adapted = peft.PeftModel.from_pretrained(reference, tmp_path / "reader")
        theirs = adapted(torch.tensor([packed.prefix + packed.tokens])).logits[0, len(packed.prefix) :].float()
    assert (mine - theirs).abs().max() < 0.05 * theirs.abs().max()


def test_documents_keep_the_bias_of_their_keys(tmp_path: Path) -> None:
    """Pages of int8 have no bias, but their first one does: every key that is trained on has it."""
    from tiny_models import make_tokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=260, num_key_value_heads=2, max_position_embeddings=512, **shape))
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.k_proj.bias, std=20.0)
    model.bfloat16().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    loaded = ModelLoader().load(load_settings(model=str(tmp_path)), lambda progress: None)[0]
    tokens = [i % 250 for i in range(200)]
    rounded, exact = (train_reader.DocumentReader(loaded, codec).read([tokens])[0] for codec in ("int8", "bf16"))
    for (key, _), (expected, _) in zip(rounded, exact, strict=True):
        error = (key.float() - expected.float()).norm(dim=(1, 3)) / expected.float().norm(dim=(1, 3))
        assert error.max() < 0.05
