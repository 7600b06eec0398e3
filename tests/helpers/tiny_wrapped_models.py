"""Tiny random models with a text model inside, as vision-language checkpoints have one."""

from pathlib import Path
from typing import Any

import torch
import transformers as tf
from safetensors.torch import save_file
from tiny_family_configs import tiny_config

# What comes before the names of the text model's weights, and before that of its output layer.
PREFIXES = (("model.language_model.", ""), ("language_model.model.", "language_model."), ("model.", ""))


def whole(kind: str, **text: Any) -> Any:
    """The whole model, with eager attention. ``text`` are values of the config of its text model."""
    torch.manual_seed(0)
    config = _config(kind, text)
    return tf.AutoModelForMultimodalLM.from_config(config, attn_implementation="eager").eval().float()


def save_wrapped(folder: Path, kind: str, prefix: tuple[str, str] = PREFIXES[0], **text: Any) -> Any:
    """The text model of ``kind`` alone, with eager attention, which is saved as if in the whole model: its weights
    have a prefix, and those of a tower are beside them. ``text`` are values of its config.
    """
    torch.manual_seed(0)
    config = _config(kind, text)
    inner = config.get_text_config(decoder=True)
    module = tf.AutoModelForCausalLM.from_config(inner, attn_implementation="eager").eval().float()
    named = {
        name: w for name, w in module.state_dict().items() if not (inner.tie_word_embeddings and "lm_head" in name)
    }
    renamed = {_renamed(name, prefix): w.contiguous() for name, w in named.items()}
    tower = {"model.vision_tower.layers.0.weight": torch.full((8, 8), torch.nan)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({**renamed, **tower}, folder / "model.safetensors", {"format": "pt"})
    config.architectures = None
    config.save_pretrained(folder)
    return module


def _config(kind: str, text: dict[str, Any]) -> tf.PreTrainedConfig:
    config = tiny_config(kind)
    for name, value in text.items():
        setattr(config.get_text_config(decoder=True), name, value)
    return config


def _renamed(name: str, prefix: tuple[str, str]) -> str:
    return prefix[0] + name.removeprefix("model.") if name.startswith("model.") else prefix[1] + name
