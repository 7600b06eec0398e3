"""The engine's promises in both precisions, whatever this processor prefers, and on an older one's instructions."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import promises
import pytest
from ask_in_process import session
from older_processor import AVX2, QUESTIONS
from tiny_adapters import save_adapter
from tiny_models import make_tokenizer, save_sharp_model

pytestmark = pytest.mark.slow

BOUND = {"f32": 1e-4, "bf16": 0.1}  # of logits, with pages in f32, where chunks are of another size


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """A model that is computed by us, and one whose modules are those of transformers."""
    import torch
    from transformers import GraniteConfig, GraniteForCausalLM

    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 260}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    config = GraniteConfig(**sizes, **heads, bos_token_id=256, eos_token_id=257)
    GraniteForCausalLM(config).save_pretrained(folder / "transformers")
    make_tokenizer().save_pretrained(folder / "transformers")
    return {"ours": save_sharp_model(folder / "ours", seed=0), "transformers": folder / "transformers"}


@pytest.fixture(params=["f32", "bf16"])
def precision(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def adapters(models, tmp_path_factory) -> dict[str, Path]:
    """An adapter for each model."""
    folder = tmp_path_factory.mktemp("adapters")
    return {name: save_adapter(folder / name, model) for name, model in models.items()}


@pytest.fixture(params=["ours", "ours, adapted", "transformers", "transformers, adapted"])
def asked(request, precision, home, models, adapters):
    """A session with one of the models in one of the precisions, with an adapter or without one."""
    name, _, adapted = request.param.partition(", ")
    adapter = str(adapters[name]) if adapted else "none"
    with session(home, models[name], dtype=precision, max_tokens=20, draft=0, adapter=adapter) as s:
        assert str(s.model.precision).endswith({"f32": "float32", "bf16": "bfloat16"}[precision])
        assert type(s.model).__name__ == {"ours": "NativeDecoder", "transformers": "TransformersModel"}[name]
        assert bool(s.runtime.adapter) == bool(adapted)
        yield s


def test_restored_pages_give_the_same_logits_to_the_bit(asked, document):
    assert promises.difference(*promises.restored(asked, document, QUESTIONS[0]))[0] == 0


def test_a_question_beside_others_gives_the_same_logits_to_the_bit_as_alone(asked, document):
    assert promises.difference(*promises.alone(asked, document, QUESTIONS[0], QUESTIONS[1:]))[0] == 0


def test_what_an_adapter_answers_beside_what_the_model_answers_is_what_each_is_alone(asked, document):
    instruction = "Summarize it."  # to the model itself
    assert promises.difference(*promises.alone(asked, document, QUESTIONS[0], [instruction]))[0] == 0
    assert promises.difference(*promises.alone(asked, document, instruction, QUESTIONS))[0] == 0


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("name", ["ours", "transformers"])
def test_the_promises_hold_with_weights_in_few_bits(home, models, document, precision, name, weights):
    how = {"dtype": precision, "weights": weights, "max_tokens": 12, "draft": 0, "adapter": "none"}
    with session(home, models[name], **how) as s:
        assert promises.difference(*promises.restored(s, document, QUESTIONS[0]))[0] == 0
        assert promises.difference(*promises.alone(s, document, QUESTIONS[0], QUESTIONS[1:]))[0] == 0
        if name == "ours":
            assert s.model.batch_invariant, "whatever the precision"
            s.change(replace(s.settings, kv="f32"))
            assert promises.difference(*promises.chunked(s, document, QUESTIONS[0], (64, 256)))[1] <= BOUND["bf16"]


def test_drafted_tokens_give_the_same_logits_to_the_bit(asked, document):
    assert promises.difference(*promises.drafted(asked, document, QUESTIONS[0]))[0] == 0


def test_chunks_of_another_size_give_nearly_the_same_logits(asked, precision, document):
    """Within a chunk tokens see each other before they are encoded, so only unquantized pages can be compared."""
    asked.change(replace(asked.settings, kv="f32"))
    differ, most = promises.difference(*promises.chunked(asked, document, QUESTIONS[0], (64, 256)))
    print(f"{differ} positions differ, by {most:.2g} at most", file=sys.stderr)
    assert most <= BOUND[precision]


# Older instructions


PRODUCT = """
import sys, torch
from numba.core.codegen import get_host_cpu_features
from numba.core.config import CPU_FEATURES
from localctx.kernels.cpu.linear import exact_blocks, int4_blocks, int8_blocks, multiply
features = (CPU_FEATURES or get_host_cpu_features()).replace("-avx512", "")
print(torch.backends.cpu.get_cpu_capability(), "avx512" in features)
torch.manual_seed(0)
w, x = torch.randn(96, 200).bfloat16().float(), torch.randn(3, 200)
print(*(multiply(x, make(w)).view(torch.int32).sum().item() for make in (exact_blocks, int8_blocks, int4_blocks)))
"""


def test_products_are_the_same_to_the_bit_on_an_older_processor():
    """Instructions are taken away from libraries, and what is left is asked of them."""
    host, older = (run_product(environment) for environment in ({}, AVX2))
    assert older[:2] == ["AVX2", "False"], "these are not the instructions that were asked for"
    assert host[2:] == older[2:]


def run_product(environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRODUCT], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif("ATEN_CPU_CAPABILITY" not in os.environ, reason="no instructions are taken away")
def test_the_instructions_that_were_taken_away_are_not_used():
    import torch

    assert torch.backends.cpu.get_cpu_capability() == os.environ["ATEN_CPU_CAPABILITY"].upper()
    assert os.environ["NUMBA_CPU_NAME"]
    assert os.environ["LOCALCTX_DTYPE"], "which precision is auto is asked of the processor itself"
