"""NativeDecoder: computes plain decoders (see ``decoder_config``) on a CPU, without transformers. For few tokens,
importing and calling transformers would cost more than the arithmetic.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.cpu.adapter import NO_ROWS
from localctx.kernels.cpu.decode_layers import LayerPages, arguments_of, decode_layers
from localctx.kernels.cpu.decoder_layer import (
    EntryWeights,
    ExitWeights,
    LayerChanges,
    enter,
    enter_chunk,
    leave,
    leave_chunk,
    normalize,
)
from localctx.kernels.cpu.linear import Blocks, exact_blocks, gather_rows, grouped_blocks, multiply
from localctx.kernels.llvm.vector_math import NIBBLES, SIGNED
from localctx.kernels.llvm.weight_groups import Groups, int4_groups, int8_groups
from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.models.adapter import Adapter
from localctx.models.architecture.decoder_config import DecoderConfig
from localctx.models.architecture.frequencies import frequencies
from localctx.models.decoder.forward_batch import ForwardBatch
from localctx.models.decoder.local_model import LocalModel
from localctx.models.decoder.native_adapter import DecoderChanges, layer_changes
from localctx.models.decoder.rope import Angles, ModelRope, Positions, RopeLayout
from localctx.models.files.block_file import BlockFile
from localctx.models.files.gguf_blocks import GgufBlocks
from localctx.models.files.safetensors_files import get_tensor
from localctx.models.quantized.weight_formats import KINDS, OUTPUT_KIND
from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer
from localctx.shape import ARITHMETIC_VERSION

MAX_LOADING = 4  # layers blocked at a time, because each needs memory for a temporary copy


class NativeDecoder(LocalModel):
    """A plain decoder (Llama, Mistral, Qwen 2 and 3) computed by our own CPU kernels, with the methods of
    ``PagedModel``. ``how`` are the keyword arguments of ``LocalModel``.

    Keys, values and activations are float32. With ``precision`` bf16, full-precision weights multiply prefill chunks in
    bf16, which is several times as fast on CPUs with bf16 instructions. Decoding always computes in float32, because
    its time is spent on reading weights. Weights at 8 or 4 bits use integer products in both phases, whatever the
    precision.
    """

    computed_by = f"localctx {ARITHMETIC_VERSION}"
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
        self.precision, by_floats = precision, weights.stored == "full"
        self.batch_invariant = not by_floats or precision == torch.float32
        self.torch_products = not self.batch_invariant
        super().__init__(config, tokenizer, stored=weights.stored, **how)
        self._weights, self.nbytes, self.parameters = weights, weights.nbytes, weights.count
        self._unchanged = DecoderChanges([LayerChanges()] * len(weights.layers))

    def _run(self, batch: ForwardBatch) -> Tensor:
        weights = self._weights
        x = gather_rows(weights.embedding, torch.tensor(batch.tokens)).numpy()
        if pages := batch.layer_pages:
            self._run_at_once(batch, pages, x)
        else:
            self._run_by_layer(batch, x)
        normed = normalize(x[batch.logit_indices], weights.norm, self._config.rms_norm_eps)
        return multiply(torch.from_numpy(normed), weights.head)

    def _run_at_once(self, batch: ForwardBatch, pages: LayerPages, x: np.ndarray) -> None:
        """Apply all layers to the tokens' hidden states ``x``, in place, with one kernel call."""
        weights, config = self._weights, self._config
        changes, changed = self._changes(batch)
        cos, sin = self._rotations(batch)
        heads, scale = config.num_attention_heads, config.head_dim**-0.5
        eps = config.rms_norm_eps
        batch.enter_layers(
            *decode_layers(x, heads, weights.arguments, changes.arguments, changed, eps, cos, sin, scale, pages)
        )

    def _run_by_layer(self, batch: ForwardBatch, x: np.ndarray) -> None:
        """Apply one layer after another to the tokens' hidden states ``x``, in place. Each layer takes two kernel calls
        and attention.
        """
        weights, eps = self._weights, self._config.rms_norm_eps
        chunk = any(len(request.tokens) > MAX_DECODE_TOKENS for request in batch.requests)
        before, after = (enter_chunk, leave_chunk) if chunk and not self.batch_invariant else (enter, leave)
        cos, sin = self._rotations(batch)
        changes, changed = self._changes(batch)
        for i, (entry, exits) in enumerate(weights.layers):
            q, k, v = (np.empty((len(x), heads, self._config.head_dim), np.float32) for heads in weights.heads)
            before(x, entry, changes.layers[i].qkv, changed, eps, cos, sin, q, k, v)
            attended = batch.attend_arrays(i, q, k, v, self._config.head_dim**-0.5)
            after(x, attended, exits, changes.layers[i], changed, eps)

    def _changes(self, batch: ForwardBatch) -> tuple[DecoderChanges, np.ndarray]:
        """Returns the active adapter's changes for every layer, and the rows they apply to."""
        rows = batch.adapted_rows
        if not rows:
            return self._unchanged, NO_ROWS
        return self._adapters[rows.fingerprint], np.array(rows.indices, NO_ROWS.dtype)

    def _fit(self, adapter: Adapter) -> DecoderChanges:
        return DecoderChanges(layer_changes(self._config, adapter))

    def _rotations(self, batch: ForwardBatch) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cosines and sines [T, D / 2] for the positions of the batch's tokens."""
        rope = batch.rope or self.rope
        assert rope, "a plain decoder has rotary positions"
        angles = rope.angles[0]
        at = torch.tensor(batch.positions())[:, None].float() * angles.frequencies
        return (at.cos() * angles.scale).numpy(), (at.sin() * angles.scale).numpy()

    def _rope_of(self, positions: Positions) -> ModelRope:
        scaled = frequencies(positions["rope_parameters"], self._config.head_dim)
        angles, layers = Angles(*scaled), len(self.shape.layers)
        return ModelRope(positions, [angles] * layers, self._weights.key_biases, lambda: [RopeLayout.HALVES] * layers)


class NativeWeights:
    """The weights of a plain decoder in the layout of our CPU kernels. ``tensors`` have the names of transformers'
    modules. ``stored`` is the format of matrices: ``full``, ``int8`` or ``int4``.

    ``published`` holds the quantized matrices of the GGUF that the model was converted from. Those in the format
    ``stored`` are used unchanged. Matrices that a 4-bit GGUF stores with more bits use 8 bits. The embedding always has
    full precision, the output layer at least 8 bits. Matrices and vectors in ``made`` are used unchanged. All of them
    are in ``blocks`` and ``vectors``, by name. Raises ValueError for a missing tensor or a wrong shape.
    """

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Mapping[str, Tensor],
        stored: str = "full",
        published: GgufBlocks | None = None,
        made: BlockFile | None = None,
    ) -> None:
        self.stored = stored
        self._config, self._tensors, self._published = config, tensors, published or GgufBlocks()
        self.blocks = dict(made.blocks if made else {})
        self.vectors = dict(made.vectors if made else {})
        hidden, vocabulary = config.hidden_size, config.vocab_size
        self.heads = config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads
        with _side_by_side() as pool:
            layers = [pool.submit(self._layer, f"model.layers.{i}") for i in range(config.num_hidden_layers)]
            name = "model.embed_tokens" if config.tie_word_embeddings else "lm_head"
            same = config.tie_word_embeddings and stored == "full"
            head = None if same else pool.submit(self._blocks, "head", (name, vocabulary, hidden), kind=OUTPUT_KIND)
            self.embedding = self._exact("embedding", ("model.embed_tokens", vocabulary, hidden))
            self.layers = [layer.result() for layer in layers]
            self.head = head.result() if head else self.embedding
        self.arguments = arguments_of(self.layers)
        self.norm = self._floats("model.norm.weight", hidden)
        del self._tensors, self._published  # closes their files
        self.key_biases = [self._key_bias(entry) for entry, _ in self.layers]

    @property
    def nbytes(self) -> int:
        """The size of the weights in bytes; tied weights count once."""
        return sum(part.nbytes for parts in self._parts() for part in parts)

    @property
    def count(self) -> int:
        """The number of parameters; tied parameters count once."""
        blocks, floats = self._parts()
        return sum(part.size for part in blocks) + sum(part.size for part in floats)

    def _parts(self) -> tuple[list[Blocks], list[np.ndarray]]:
        blocks = [self.embedding, *([] if self.head is self.embedding else [self.head])]
        floats = [self.norm]
        for entry, exits in self.layers:
            blocks += [entry.qkv, exits.output, exits.gate_up, exits.down]
            floats += [entry.norm, entry.bias, entry.q_norm, entry.k_norm, exits.norm]
        return blocks, floats

    def _layer(self, at: str) -> tuple[EntryWeights, ExitWeights]:
        config, hidden, inner = self._config, self._config.hidden_size, self._config.intermediate_size
        parts = [
            (f"{at}.self_attn.{c}_proj", n * config.head_dim, hidden) for c, n in zip("qkv", self.heads, strict=True)
        ]
        biases = (
            [self._floats(f"{name}.bias", outputs) for name, outputs, _ in parts] if config.qkv_bias else [_NOTHING]
        )
        norms = [
            self._floats(f"{at}.self_attn.{c}_norm.weight", config.head_dim) if config.head_norms else _NOTHING
            for c in "qk"
        ]
        entry = EntryWeights(
            self._floats(f"{at}.input_layernorm.weight", hidden),
            self._blocks(f"{at}.qkv", *parts),
            np.concatenate(biases),
            *norms,
        )
        gate_up = (f"{at}.mlp.gate_proj", inner, hidden), (f"{at}.mlp.up_proj", inner, hidden)
        exits = ExitWeights(
            self._blocks(f"{at}.output", (f"{at}.self_attn.o_proj", hidden, self.heads[0] * config.head_dim)),
            self._floats(f"{at}.post_attention_layernorm.weight", hidden),
            self._blocks(f"{at}.gate_up", *gate_up),
            self._blocks(f"{at}.down", (f"{at}.mlp.down_proj", hidden, inner)),
        )
        return entry, exits

    def _blocks(self, name: str, *parts: tuple[str, int, int], kind: int | None = None) -> Blocks:
        """Returns the matrix ``name``: the weights ``parts`` [outputs, inputs], concatenated. ``kind`` is the number
        format for quantized weights of the output layer.
        """
        if self.stored == "full":
            return self._exact(name, *parts)
        return self._make(name, parts, lambda: self._grouped(parts, kind))

    def _exact(self, name: str, *parts: tuple[str, int, int]) -> Blocks:
        """Returns the matrix ``name`` in full precision."""
        return self._make(name, parts, lambda: exact_blocks(_joined([self._matrix(*part) for part in parts])))

    def _make(self, name: str, parts: Sequence[tuple[str, int, int]], make: Callable[[], Blocks]) -> Blocks:
        """Returns the matrix ``name`` of the sizes in ``parts``: the one made before, if any, else ``make()``."""
        outputs, inputs = sum(outputs for _, outputs, _ in parts), parts[0][2]
        made = self.blocks.get(name)
        if made is None or (made.outputs, made.inputs) != (outputs, inputs):
            made = self.blocks[name] = make()
        return made

    def _grouped(self, parts: Sequence[tuple[str, int, int]], kind: int | None) -> Blocks:
        finer = any(name in self._published.finer for name, _, _ in parts)
        first, *others = (self._groups(SIGNED if finer else kind or KINDS[self.stored], *part) for part in parts)
        return grouped_blocks(first.join(*others) if others else first)

    def _groups(self, kind: int, name: str, outputs: int, inputs: int) -> Groups:
        """Returns the quantized weight ``name`` in the number format ``kind``: the published one if there is one in
        this format, else quantized here.
        """
        quantize = int4_groups if kind == NIBBLES else int8_groups
        weight = self._matrix(name, outputs, inputs)
        return self._published.groups(f"{name}.weight", kind) or quantize(weight)

    def _matrix(self, name: str, outputs: int, inputs: int) -> Tensor:
        return get_tensor(self._tensors, f"{name}.weight", outputs, inputs).detach()

    def _floats(self, name: str, size: int) -> np.ndarray:
        made = self.vectors.get(name)
        if made is None or made.shape != (size,):
            made = self.vectors[name] = get_tensor(self._tensors, name, size).detach().float().clone().numpy()
        return made

    def _key_bias(self, entry: EntryWeights) -> Tensor | None:
        dim = self._config.head_dim
        bias = torch.from_numpy(entry.bias[self.heads[0] * dim : (self.heads[0] + self.heads[1]) * dim])
        return bias.unflatten(0, (-1, dim)) if bias.any() else None


def _joined(matrices: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(matrices)) if len(matrices) > 1 else matrices[0]


@contextmanager
def _side_by_side() -> Iterator[ThreadPoolExecutor]:
    """Yields a thread pool with at most as many threads as torch uses, and limits torch to one thread in each. Threads
    that share one small operation would wait for each other whenever another program takes a CPU from one of them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(min(threads, MAX_LOADING)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)


_NOTHING = np.empty(0, np.float32)
