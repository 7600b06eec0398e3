"""Checks support for a model before its weights are loaded, with a forward pass on torch's meta device.

The trial uses the same attention function as inference, so that planning and loading reject the same models.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from localctx.kv.attention import Expand
from localctx.kv.sequence_states import StateKey, States
from localctx.models.architecture.geometry import (
    KINDS,
    OTHER_KINDS,
    STATE_KINDS,
    LayerMap,
    geometry_of,
    has_states,
    layer_map,
    shape_of,
)
from localctx.models.architecture.text_decoder import build_without_weights, text_config
from localctx.models.architecture.unsupported import UnsupportedModel
from localctx.models.decoder.attention_function import attention
from localctx.models.decoder.attention_pass import AttentionPass, current_pass
from localctx.models.decoder.meta_tensors import MetaTensorMode
from localctx.shape import KVShape, StateShape

_TRIAL = "localctx-trial"  # the registered name of our attention and mask functions during a trial
_TOKENS = 3
_POSITIONS = "positions"  # the source name of position ids
_DYNAMIC = "dynamic"  # a RoPE type that would mix keys of several frequencies in one cache


def refuse_unfit(config: Any, module: Any = None) -> None:
    """Raise ModelError, with family and reason, if this version would compute the model incorrectly.

    ``config`` is a transformers config. ``module`` is the result of ``build_without_weights``, if already built.
    """
    try:
        text = text_config(config)
        _check_config(config, text)
        shape = supported_shape(text)
        if has_states(text):
            _states_of(text, shape)
        else:
            _check_layers(module if module is not None else build_without_weights(config), shape, text)
        if not getattr(text, "max_position_embeddings", None):
            raise UnsupportedModel("no window")
    except UnsupportedModel as e:
        raise e.of(config.model_type) from e


def _check_config(whole: Any, config: Any) -> None:
    """Raise UnsupportedModel if the config rules the model out. ``config`` is ``whole`` or the text config in it."""
    rope = getattr(config, "rope_parameters", None) or {}
    ropes = [r for r in rope.values() if isinstance(r, dict)] or [rope]
    kinds = {*(getattr(config, "layer_types", None) or [])}
    odd = kinds - set(KINDS) - STATE_KINDS - OTHER_KINDS
    reasons = {
        "encoder": any(getattr(c, "is_encoder_decoder", False) for c in (whole, config)),
        "kinds": odd,
        "states only": kinds and kinds.isdisjoint(KINDS),
        "index": getattr(config, "index_topk", None),
        "dynamic": any(r.get("rope_type") == _DYNAMIC for r in ropes),
    }
    for reason, applies in reasons.items():
        if applies:
            raise UnsupportedModel(reason, kinds=", ".join(sorted(odd)))


def supported_shape(config: Any) -> KVShape:
    """Returns the KVShape of a transformers (text) config, without recurrent states. Raises UnsupportedModel if it
    cannot be derived.
    """
    try:
        shape = shape_of(config)
        geometry_of(config)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        shares = getattr(config, "num_kv_shared_layers", 0)  # no earlier layer computes the shared keys and values
        raise UnsupportedModel("shared" if shares else "no heads") from e
    if not shape.bytes_per_token("bf16") > 0:
        raise UnsupportedModel("no heads")
    return shape


def model_shape(config: Any) -> KVShape:
    """Returns the KVShape of a transformers (text) config, including recurrent states. They are found by running the
    layers on the meta device. Raises UnsupportedModel.
    """
    shape = supported_shape(config)
    return replace(shape, states=_states_of(config, shape)) if has_states(config) else shape


_NO_MATTER = ("dtype", "_name_or_path", "transformers_version", "architectures")  # keys that do not affect states
_known_states = dict[str, tuple[StateShape, ...]]()  # by config text, because a trial takes seconds


def _states_of(config: Any, shape: KVShape) -> tuple[StateShape, ...]:
    """Returns the recurrent states of a (text) config's layers, found by a trial. Raises UnsupportedModel."""
    text = repr({k: v for k, v in config.to_dict().items() if k not in _NO_MATTER})
    if text not in _known_states:
        module = build_without_weights(config, torch.bfloat16)  # a state that is float32 here is always float32
        _known_states[text] = _check_layers(module, shape, config)
    return _known_states[text]


def _check_layers(module: Any, shape: KVShape, config: Any) -> tuple[StateShape, ...]:
    """Run the layers of ``module``, which is on the meta device. Returns their recurrent states. Raises
    UnsupportedModel.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(_TRIAL, _trial_attention)
    AttentionMaskInterface.register(_TRIAL, _trial_mask)
    module.set_attn_implementation(_TRIAL)
    trial, _ = _try_pass(module, shape, config)
    counts = trial.positioned or has_states(config)  # states encode the order of tokens
    if not counts or _counts_after_padding(module):
        raise UnsupportedModel("positions")
    if found := trial.states.found:
        _, used = _try_pass(module, shape, config, {key: torch.empty_like(x) for key, x in found.items()})
        if not used.issuperset(found):
            raise UnsupportedModel("forgets")
    return trial.states.shapes(module.dtype)


def _try_pass(
    module: Any, shape: KVShape, config: Any, before: States | None = None
) -> tuple["_TrialPass", frozenset[Hashable]]:
    """Run the layers over a few tokens, starting from the states ``before`` (None: at the first token). Returns the
    pass, and the sources that its logits depend on. Raises UnsupportedModel.
    """
    tokens, positions = (torch.zeros(1, _TOKENS, dtype=torch.long, device="meta") for _ in range(2))
    numbers = MetaTensorMode([(_POSITIONS, positions), *(before or {}).items()])
    trial = _TrialPass(shape, layer_map(config), numbers, before)
    trial.is_cache |= has_states(config)
    cache = trial if trial.is_cache else None
    try:
        with torch.inference_mode(), numbers, trial.complete():
            out = module(
                input_ids=tokens,
                position_ids=positions,
                past_key_values=cache,
                use_cache=False,
                logits_to_keep=positions[0, -1:],
            )
            return trial, numbers.sources_of(out.logits)
    except UnsupportedModel:
        raise
    except Exception as e:  # families raise anything for unexpected inputs
        raise UnsupportedModel("not run") from e


def _counts_after_padding(module: Any) -> bool:
    """Returns True if positions start after the padding token's id, as in RoBERTa."""
    embeddings = [m for name, m in module.named_modules() if "position" in name]
    return any(getattr(embedding, "padding_idx", None) is not None for embedding in embeddings)


class _TrialPass(AttentionPass):
    """A pass on the meta device, which computes only shapes. It creates the masks, and recognizes them when layers
    attend.
    """

    def __init__(self, shape: KVShape, layers: LayerMap, numbers: MetaTensorMode, before: States | None = None) -> None:
        super().__init__(shape, layers)
        self._states = _TrialStates(before)
        self.positioned, self._numbers = False, numbers
        self._checked = set[tuple[int, int | None]]()
        self._masks: list[tuple[Tensor, Callable[..., Tensor]]] = []

    def make_mask(self, *, q_length: int, kv_length: int, mask_function: Callable[..., Tensor], **_: Any) -> Tensor:
        """Returns a meta tensor as the mask, and records transformers' ``mask_function`` for it."""
        mask = torch.empty(1, 1, q_length, kv_length, dtype=torch.bool, device="meta")
        self._masks.append((mask, mask_function))
        return mask

    @property
    def states(self) -> Any:
        """The recurrent states that layers stored in this pass."""
        return self._states

    @property
    def span(self) -> tuple[int, int]:
        return 0, _TOKENS

    def conv_width(self, inputs: Tensor, layer: int, state_idx: int, conv_kernel_size: int = 0, **_: Any) -> int:
        """Returns the number of inputs that a convolution remembers: the kernel size of the layer, else the number of
        its inputs.
        """
        return conv_kernel_size or inputs.shape[-1]

    def get_query_offset(self, layer: int = 0) -> int:
        """Returns the number of tokens before this pass, which transformers needs for masks."""
        return 0

    def get_mask_sizes(self, queries: int, layer: int = 0) -> tuple[int, int]:
        """Returns the number of keys that a mask covers, and the position of the first."""
        return queries, 0

    def check_mask(self, layer: int, mask: Tensor | None) -> None:
        """Raise UnsupportedModel for a mask that this pass did not create, or that does not match ``shape``."""
        seen = next((function for own, function in self._masks if own is mask), None)
        if seen is None:
            raise UnsupportedModel("mask")
        shape = self.shape_of_layer(layer)
        window = shape.window if shape else None
        if (id(seen), window) in self._checked:
            return
        queries, keys, expected = _visible(window)
        for query, key, wrong in zip(queries, keys, seen(0, 0, queries, keys) != expected, strict=True):
            if wrong:
                sees = "does not see" if key <= query < key + (window or query + 1) else "sees"
                reason = "not a decoder" if key > query else "window"
                raise UnsupportedModel(reason, told=f"token {query:,} {sees} token {key:,}")
        self._checked.add((id(seen), window))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, expand: Expand | None = None, **_: Any
    ) -> Tensor:
        """Check the shapes in a layer's call of attention. Returns a tensor of the right shape, without values."""
        entered = self.enter_layer(layer, k, v, expand)
        self.positioned |= _POSITIONS in self._numbers.sources_of(q)
        k, v = expand(*entered.new) if expand else (k, v)
        if q.shape[0] % k.shape[0] or q.shape[2] != k.shape[2]:
            raise UnsupportedModel("widths", found=[*k.shape], expected=[*q.shape])
        out = q.new_empty(q.shape[1], q.shape[0], v.shape[2]).transpose(0, 1)
        return out + (k.sum() + v.sum()).to(q.dtype)  # so that it depends on q, k and v


class _TrialStates:
    """The recurrent states of a trial: ``now`` are those before the pass (None at the first token), ``found`` those
    that layers stored.
    """

    def __init__(self, now: States | None) -> None:
        self.now, self.found = now, dict[StateKey, Tensor]()

    def get(self, key: StateKey) -> Tensor | None:
        return self.now.get(key) if self.now else None

    def put(self, key: StateKey, state: Tensor) -> None:
        self.found[key] = state

    def put_end(self, length: int, key: StateKey, state: Tensor) -> None:
        """Do nothing, because the few tokens of the trial complete no page."""

    def shapes(self, dtype: torch.dtype) -> tuple[StateShape, ...]:
        """Returns the shapes of stored states for layers that compute in ``dtype``. Raises UnsupportedModel for states
        that are neither ``dtype`` nor float32.
        """
        if any(x.dtype not in (dtype, torch.float32) for x in self.found.values()):
            raise UnsupportedModel("states")
        return tuple(
            StateShape(*key, tuple(x.shape[1:]), None if x.dtype == dtype else 32) for key, x in self.found.items()
        )


def _trial_mask(**how: Any) -> Tensor:
    trial = current_pass()
    assert isinstance(trial, _TrialPass)
    return trial.make_mask(**how)


def _visible(window: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns pairs of a query and a key as three tensors: the query positions, the key positions, and whether the
    query sees the key.
    """
    far = [0, 1, 2, 100, 1000, 100_000, *((window - 1, window, window + 1) if window else ())]
    pairs = [(q, q - d) for d in far for q in (d, d + 1, 200_000 + d)]
    pairs += [(q, q + d) for d in far[1:] for q in (0, 1, 200_000)]
    queries, keys = torch.tensor(pairs).T
    return queries, keys, (keys <= queries) & (queries - keys < (window or torch.inf))


def _trial_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **how: Any
) -> tuple[Tensor, None]:
    trial, layer = current_pass(), getattr(module, "layer_idx", None)
    if isinstance(trial, _TrialPass) and isinstance(layer, int):
        trial.check_mask(layer, attention_mask)
    return attention(module, query, key, value, None, **how)
