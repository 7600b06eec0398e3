"""Finds the text decoder of a transformers config: the whole model, or the text part of a multimodal model. Vision and
audio parts are neither built nor read from disk.
"""

import re
from collections.abc import Collection
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch

from localctx.models.architecture.unsupported import UnsupportedModel, one_line
from localctx.models.files.safetensors_files import open_weights


class TextDecoder(NamedTuple):
    """The transformers class (``kind``) of a text decoder, and its config. ``wrapped`` is True if the decoder is the
    text part of a larger model, where weight names on disk have a prefix.
    """

    kind: Any
    config: Any
    wrapped: bool = False


def text_config(config: Any) -> Any:
    """Returns the text decoder's part of ``config``, or ``config`` itself for a text model. Raises UnsupportedModel if
    there are several text decoders.
    """
    try:
        return config.get_text_config(decoder=True)
    except ValueError as e:
        raise UnsupportedModel("no decoder") from e


def decoder_of(config: Any) -> TextDecoder:
    """Returns the text decoder of ``config``. Raises UnsupportedModel if transformers has no class for it."""
    from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM

    causal, multimodal = AutoModelForCausalLM._model_mapping, AutoModelForMultimodalLM._model_mapping
    text = text_config(config)
    inside = text is not config and len(config.sub_configs) > 1
    if inside and type(text) in causal:
        return TextDecoder(AutoModelForCausalLM, _alone(text, config), wrapped=True)
    if inside and type(text) in multimodal:
        return TextDecoder(multimodal[type(text)], _alone(text, config), wrapped=True)
    if type(config) in causal:
        return TextDecoder(AutoModelForCausalLM, config)
    if inside and type(config) in multimodal:
        return TextDecoder(_without_towers(multimodal[type(config)]), config)
    raise UnsupportedModel("no decoder")


def build_without_weights(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """Build the decoder that ``config`` describes, on torch's meta device (shapes without values). Raises
    UnsupportedModel.
    """
    kind, own, _ = decoder_of(config)
    make = getattr(kind, "from_config", None) or kind._from_config
    try:
        with torch.device("meta"):
            return make(deepcopy(own), dtype=dtype).eval()
    except ImportError as e:
        raise UnsupportedModel("library", why=one_line(e)) from e
    except Exception as e:  # transformers' classes raise anything
        raise UnsupportedModel("layers", why=one_line(e)) from e


def loading_options(folder: Path, config: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the transformers class that loads the decoder in ``folder``, and its ``from_pretrained`` arguments.
    Raises UnsupportedModel, and ValueError for missing weights.
    """
    kind, own, wrapped = decoder_of(config)
    if not wrapped:
        return kind, {"config": own}
    module, names = build_without_weights(config), open_weights(folder)
    renamed, head = _renamed(module, names or {})
    if not head and not (own.tie_word_embeddings or config.tie_word_embeddings):
        raise ValueError("it lacks the output layer")
    own.tie_word_embeddings = not head  # the model's config and its text config may disagree
    return kind, {"config": own, "key_mapping": renamed}


def _alone(text: Any, config: Any) -> Any:
    """Returns ``text``, which is a part of ``config``, as a config of its own."""
    own = copy(text)
    if quantized := getattr(config, "quantization_config", None):
        own.quantization_config = quantized  # else quantized codes would be read as plain numbers
    return own


def _renamed(module: Any, stored: Collection[str]) -> tuple[dict[str, str], bool]:
    """Returns patterns that rename the ``stored`` weights to names in ``module``, and whether an output layer is among
    these weights. Raises ValueError if the input embeddings are missing.
    """
    wanted, base = {*module.state_dict()}, f"{module.base_model_prefix}."
    inputs, outputs = (
        _name_of(module, part) for part in (module.get_input_embeddings(), module.get_output_embeddings())
    )
    prefixes = _prefixes(stored, inputs.removeprefix(base))
    counts = {p: sum(base + name.removeprefix(p) in wanted for name in stored if name.startswith(p)) for p in prefixes}
    if not counts:
        raise ValueError(f"it lacks {inputs}")
    prefix = max(counts, key=lambda p: counts[p])
    heads = [p for p in _prefixes(stored, outputs) if prefix.startswith(p)]
    patterns = {f"^{re.escape(p + outputs)}$": outputs for p in heads}
    return {**patterns, f"^{re.escape(prefix)}": base}, bool(heads)


def _prefixes(names: Collection[str], ending: str) -> set[str]:
    """Returns the prefixes of the names that end with ``ending``."""
    return {name.removesuffix(ending) for name in names if f".{name}".endswith(f".{ending}")}


def _name_of(module: Any, part: Any) -> str:
    """Returns the weight name of the submodule ``part`` of ``module``."""
    return next(f"{name}.weight" for name, child in module.named_modules() if child is part)


def _without_towers(kind: Any) -> Any:
    """Returns a subclass of ``kind`` that does not build the modules for images and audio."""

    def build(module: Any, config: Any) -> None:
        kind.__init__(module, config)
        _drop_towers(module)

    # same class and module name, because transformers uses them to map weight names
    return type(kind.__name__, (kind,), {"__init__": build, "__module__": kind.__module__})


def _drop_towers(module: Any) -> None:
    text = text_config(module.config)
    inner = next((name for name, m in module.named_modules() if name and getattr(m, "config", None) is text), None)
    if inner is None:
        raise UnsupportedModel("no decoder")
    path = inner.split(".")
    for depth, name in enumerate(path):
        parent = module.get_submodule(".".join(path[:depth]))
        for other, child in [*parent.named_children()]:
            if other != name and child is not module.get_output_embeddings():
                setattr(parent, other, None)
