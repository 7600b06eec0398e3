"""Computes plain decoders (see ``decoder_config``) on a processor without transformers, whose import and whose modules
cost more than the arithmetic when there are few tokens.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.decoder_layer_cpu import EntryWeights, Exit, enter, enter_chunk, leave, leave_chunk, normalize
from localctx.kernels.linear_cpu import Blocks, exact_blocks, multiply, picked
from localctx.kv.decode_batch import MAX_DECODE_TOKENS
from localctx.models.blocked_linear import WEIGHTS
from localctx.models.chat_tokenizer import ChatTokenizer
from localctx.models.decoder_config import DecoderConfig
from localctx.models.forward_batch import ForwardBatch
from localctx.models.frequencies import frequencies
from localctx.models.local_model import LocalModel
from localctx.models.rope import Angles, ModelRope, Pairs, Positions
from localctx.models.safetensors_files import get_tensor

AT_ONCE = 4  # layers whose weights are put into blocks: each has copies of its own meanwhile


class NativeDecoder(LocalModel):
    """See ``localctx.models.base.Model``; ``how`` as of ``LocalModel``.

    Keys, values and activations are float32. With a ``precision`` of bf16 chunks of a prompt are multiplied in bf16,
    which processors with such instructions do several times as fast; a token that is decoded, for which reading the
    weights is what costs, is computed as in float32.
    """

    computed_by = "localctx 1"  # to be counted up when the last digits change
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(
        self,
        config: DecoderConfig,
        weights: "NativeWeights",
        tokenizer: ChatTokenizer,
        *,
        precision: torch.dtype = torch.float32,
        **how: Any,
    ) -> None:
        self.precision, self.sums_depend_on_rows = precision, precision != torch.float32
        super().__init__(config, tokenizer, stored=weights.kept, **how)
        self._of, self.nbytes, self.parameters = weights, weights.nbytes, weights.count

    def _run(self, step: ForwardBatch) -> Tensor:
        of, eps = self._of, self._config.rms_norm_eps
        many = self.sums_depend_on_rows and any(len(feed.tokens) > MAX_DECODE_TOKENS for feed in step.feeds)
        before, after = (enter_chunk, leave_chunk) if many else (enter, leave)
        cos, sin = self._turns(step)
        x = picked(of.embedding, torch.tensor(step.tokens)).numpy()
        for i, (entry, exits) in enumerate(of.layers):
            q, k, v = (np.empty((len(x), heads, self._config.head_dim), np.float32) for heads in of.heads)
            before(x, entry, eps, cos, sin, q, k, v)
            rows = [torch.from_numpy(a).transpose(0, 1) for a in (q, k, v)]
            attended = step.attend(i, rows[0], rows[1], rows[2], self._config.head_dim**-0.5)
            after(x, attended.transpose(0, 1).flatten(1).contiguous().numpy(), exits, eps)
        normed = normalize(x[step.kept], of.norm, eps)
        return multiply(torch.from_numpy(normed), of.head)

    def _turns(self, step: ForwardBatch) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines [T, D / 2] of the positions of a step's tokens."""
        rope = step.rope or self.rope
        assert rope, "a plain decoder has rotary positions"
        angles = rope.angles[0]
        at = torch.tensor(step.places())[:, None].float() * angles.frequencies
        return (at.cos() * angles.scale).numpy(), (at.sin() * angles.scale).numpy()

    def _rope_of(self, said: Positions) -> ModelRope:
        angles, layers = Angles(*frequencies(said["rope_parameters"], self._config.head_dim)), len(self.shape.layers)
        return ModelRope(said, [angles] * layers, self._of.key_biases, lambda: [Pairs.HALVES] * layers)


class NativeWeights:
    """The weights of a plain decoder, as the kernels take them. ``tensors`` by the names transformers gives them;
    ``kept`` says how (``linear.WEIGHTS``), but of the embedding, which nothing is multiplied by. Raises ValueError
    where one is absent or of another shape.
    """

    def __init__(self, config: DecoderConfig, tensors: Mapping[str, Tensor], kept: str = "full") -> None:
        self.kept = kept
        self._config, self._tensors, self._make = config, tensors, WEIGHTS[kept]
        hidden, vocabulary = config.hidden_size, config.vocab_size
        self.heads = config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads
        with _side_by_side() as pool:
            layers = [pool.submit(self._layer, f"model.layers.{i}") for i in range(config.num_hidden_layers)]
            name = "model.embed_tokens" if config.tie_word_embeddings else "lm_head"
            same = config.tie_word_embeddings and kept == "full"
            head = None if same else pool.submit(self._blocks, (name, vocabulary, hidden))
            self.embedding = exact_blocks(get_tensor(tensors, "model.embed_tokens.weight", vocabulary, hidden).detach())
            self.layers = [layer.result() for layer in layers]
            self.head = head.result() if head else self.embedding
        self.norm = self._floats("model.norm.weight", hidden)
        del self._tensors  # their files
        self.key_biases = [self._key_bias(entry) for entry, _ in self.layers]

    @property
    def nbytes(self) -> int:
        """What they take, a tied one once."""
        return sum(part.nbytes for some in self._parts() for part in some)

    @property
    def count(self) -> int:
        """How many numbers they are, a tied one once."""
        blocks, floats = self._parts()
        return sum(part.size for part in blocks) + sum(part.size for part in floats)

    def _parts(self) -> tuple[list[Blocks], list[np.ndarray]]:
        blocks = [self.embedding, *([] if self.head is self.embedding else [self.head])]
        floats = [self.norm]
        for entry, exits in self.layers:
            blocks += [entry.qkv, exits.output, exits.gate_up, exits.down]
            floats += [entry.norm, entry.bias, entry.q_norm, entry.k_norm, exits.norm]
        return blocks, floats

    def _layer(self, at: str) -> tuple[EntryWeights, Exit]:
        of, hidden, inner = self._config, self._config.hidden_size, self._config.intermediate_size
        parts = [(f"{at}.self_attn.{c}_proj", n * of.head_dim, hidden) for c, n in zip("qkv", self.heads, strict=True)]
        biases = [self._floats(f"{name}.bias", outputs) for name, outputs, _ in parts] if of.qkv_bias else [_NOTHING]
        norms = [
            self._floats(f"{at}.self_attn.{c}_norm.weight", of.head_dim) if of.head_norms else _NOTHING for c in "qk"
        ]
        entry = EntryWeights(
            self._floats(f"{at}.input_layernorm.weight", hidden), self._blocks(*parts), np.concatenate(biases), *norms
        )
        exits = Exit(
            self._blocks((f"{at}.self_attn.o_proj", hidden, self.heads[0] * of.head_dim)),
            self._floats(f"{at}.post_attention_layernorm.weight", hidden),
            self._blocks((f"{at}.mlp.gate_proj", inner, hidden), (f"{at}.mlp.up_proj", inner, hidden)),
            self._blocks((f"{at}.mlp.down_proj", hidden, inner)),
        )
        return entry, exits

    def _blocks(self, *parts: tuple[str, int, int]) -> Any:
        """Weights [outputs, inputs] by name, one after another, as one."""
        found = [get_tensor(self._tensors, f"{name}.weight", *shape).detach() for name, *shape in parts]
        return self._make(torch.cat(found) if len(found) > 1 else found[0])

    def _floats(self, name: str, size: int) -> np.ndarray:
        return get_tensor(self._tensors, name, size).detach().float().clone().numpy()

    def _key_bias(self, entry: EntryWeights) -> Tensor | None:
        first, of = self.heads[0] * self._config.head_dim, self._config
        bias = torch.from_numpy(entry.bias[first : first + self.heads[1] * of.head_dim])
        return bias.unflatten(0, (-1, of.head_dim)) if bias.any() else None


@contextmanager
def _side_by_side() -> Iterator[ThreadPoolExecutor]:
    """Threads, as many as torch computes with at most, each of which computes alone: those that share the work of one
    small operation wait for each other wherever another program takes a processor from one of them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(min(threads, AT_ONCE)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)


_NOTHING = np.empty(0, np.float32)
