"""Measures every model type that transformers builds as a causal LM, and some with a text model inside, as a tiny
random model.

    python measure_families.py [TYPE ...]

A type is equal to transformers' eager attention (the largest difference of a logit is told), or refused with a sentence
before it answers. It fails where one is wrong, ends in a traceback, or is planned otherwise than loaded.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import harness  # noqa: F401
import torch
import transformers as tf
from tiny_family_configs import CAUSAL, TYPES, VOCABULARY, tiny_config

from localctx.errors import ModelError
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.architecture.text_decoder import loading_options, text_config
from localctx.models.choice.sizing import sizing_of
from localctx.models.decoder.transformers_model import TransformersModel, load_whole
from localctx.models.decoder.trial import refuse_unfit

STEPS = [1, 63, 64, 40, 1, 1, 1]
LARGEST = 1e-4  # of the largest logit, or of 1
GOOD = ("equal", "refused")


def main(kinds: list[str]) -> int:
    """Prints a line for each of ``kinds`` (all, if none) and the counts; returns the exit code."""
    tf.logging.set_verbosity_error()
    tf.logging.disable_progress_bar()
    counts = Counter[str]()
    for kind in kinds or TYPES:
        outcome, told = measure(kind)
        counts[outcome] += 1
        print(f"{kind:25}{outcome:10}{told}", flush=True)
    print(f"\n{counts.total()} types: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()))
    return int(any(outcome not in GOOD for outcome in counts))


def measure(kind: str) -> tuple[str, str]:
    """The outcome for a type (equal, refused, wrong, traceback, no config), and what is told about it."""
    try:
        config = tiny_config(kind)
    except Exception as e:
        return "no config", repr(e)[:200]
    try:
        refused = _refusal(config)
        planned = _planned(config)
        if planned != refused:
            return "wrong", f"planned: {planned}; loaded: {refused}"
        if refused:
            return "refused", refused
        return _compare(config)
    except Exception as e:
        return "traceback", repr(e)[:200]


def _refusal(config: tf.PreTrainedConfig) -> str | None:
    try:
        refuse_unfit(config)
    except ModelError as e:
        return e.problem
    return None


def _planned(config: tf.PreTrainedConfig) -> str | None:
    """The refusal of a plan, or None."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(config.to_dict(), default=str))
        try:
            return sizing_of(file, torch.float16).unfit  # float16 is left to transformers, whatever the family
        except ModelError as e:
            return e.problem


def _compare(config: tf.PreTrainedConfig) -> tuple[str, str]:
    torch.manual_seed(0)
    module = _eager(config)
    tokens = torch.randint(3, VOCABULARY, (sum(STEPS),)).tolist()
    with torch.inference_mode():
        expected = module(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    model = TransformersModel(module if text_config(module.config) is module.config else _text_of(module))
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    ends = [sum(STEPS[: i + 1]) for i in range(len(STEPS))]
    steps = zip(ends, STEPS, strict=True)
    got = torch.cat([model.forward(tokens[end - n : end], cache, num_logits=n) for end, n in steps])
    model.rope  # noqa: B018 (finds out how keys are rotated, which pools need)
    difference = (got - expected).abs().max().item()
    allowed = LARGEST * max(1.0, expected.abs().max().item())
    return ("equal" if difference < allowed else "wrong"), f"{difference:.1e}"


def _eager(config: tf.PreTrainedConfig) -> tf.PreTrainedModel:
    """The whole model, or the text model where a library for the rest is not installed."""
    auto = tf.AutoModelForCausalLM if config.model_type in CAUSAL else tf.AutoModelForMultimodalLM
    try:
        module = auto.from_config(config, attn_implementation="eager")
    except ImportError:
        module = tf.AutoModelForCausalLM.from_config(text_config(config), attn_implementation="eager")
    return module.eval().float()


def _text_of(module: tf.PreTrainedModel) -> tf.PreTrainedModel:
    """The text model in ``module``, from a folder."""
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        kind, how = loading_options(Path(folder), tf.AutoConfig.from_pretrained(folder))
        return load_whole(kind, Path(folder), dtype=torch.float32, **how)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
