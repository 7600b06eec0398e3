"""A plain decoder (see ``localctx.models.architecture.decoder_config``) for training, with low-rank adapters that
change only the tokens after the documents: activated LoRA (arXiv:2504.12397).
"""

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from localctx.models.architecture.decoder_config import DecoderConfig, read_native_config
from localctx.models.architecture.frequencies import frequencies
from localctx.models.files.safetensors_files import open_weights

CHUNK = 192  # tokens
KV = list[tuple[Tensor, Tensor]]
"""Keys and values [1, kv_heads, T, D] by layer."""


class LoraLinear(nn.Module):
    """Several linear layers with the same input, computed as one. Their weights and biases are frozen, and each layer
    has an adapter of rank ``rank``.
    """

    def __init__(
        self, names: Sequence[str], weights: Sequence[Tensor], biases: Sequence[Tensor], rank: int, scale: float
    ) -> None:
        super().__init__()
        self.names, self.rank, self.scale = names, rank, scale
        self.register_buffer("weight", torch.cat(list(weights)).bfloat16())
        self.register_buffer("bias", torch.cat(list(biases)).bfloat16() if biases else None)
        inputs = weights[0].shape[1]
        self.a = nn.Parameter(torch.empty(len(names) * rank, inputs))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(len(w), rank)) for w in weights)

    def forward(self, x: Tensor, adapted: bool) -> Tensor:
        """Returns the outputs of the linear layers joined here (such as q, k and v), concatenated: [T, out] for their
        input x [T, in]. The adapters apply if ``adapted`` is True.
        """
        out = functional.linear(x, self.weight, self.bias)
        if not adapted:
            return out
        low = functional.linear(x, self.a.to(x.dtype)).split(self.rank, -1)
        parts = [functional.linear(part, b.to(x.dtype)) for part, b in zip(low, self.b, strict=True)]
        return out + self.scale * torch.cat(parts, -1)


class LoraLayer(nn.Module):
    """One decoder layer with adapters on its linear layers."""

    def __init__(self, config: DecoderConfig, tensors: dict[str, Tensor], at: str, rank: int, scale: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.eps = config.rms_norm_eps

        def linear(module: str, *parts: str) -> LoraLinear:
            names = [f"{at}.{module}.{part}_proj" for part in parts]
            biases = [tensors[f"{name}.bias"] for name in names if f"{name}.bias" in tensors]
            return LoraLinear(names, [tensors[f"{name}.weight"] for name in names], biases, rank, scale)

        self.qkv, self.o = linear("self_attn", "q", "k", "v"), linear("self_attn", "o")
        self.gate_up, self.down = linear("mlp", "gate", "up"), linear("mlp", "down")
        self.register_buffer("norm1", tensors[f"{at}.input_layernorm.weight"].bfloat16())
        self.register_buffer("norm2", tensors[f"{at}.post_attention_layernorm.weight"].bfloat16())

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], rows: Sequence["Rows"], adapted: bool
    ) -> tuple[Tensor, KV]:
        """Apply the layer to x [T, hidden], the concatenated tokens of the sequences in ``rows``. Returns the new x,
        and the new keys and values of each sequence.
        """
        q, k, v = (
            self.qkv(self._normed(x, self.norm1), adapted)
            .unflatten(-1, (-1, self.dim))
            .split([self.heads, self.kv_heads, self.kv_heads], 1)
        )
        q, k = _rotated(q, rope), _rotated(k, rope)
        attended, new = [], []
        for row in rows:
            own = [t[row.tokens].transpose(0, 1)[None] for t in (q, k, v)]
            new.append((own[1], own[2]))
            attended.append(row.attend(*own))
        x = x + self.o(torch.cat(attended), adapted)
        gate, up = self.gate_up(self._normed(x, self.norm2), adapted).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up, adapted), new

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.eps)


class Rows:
    """One sequence in a row of concatenated sequences. ``tokens`` is the sequence's slice of the row.

    The sequence is one text or, with a ``prefix``, several conversations that follow the keys and values of the prefix.
    Then ``segments`` [T] has the number of each token's conversation. A token attends to the prefix, and to the earlier
    tokens of its own conversation.
    """

    def __init__(self, tokens: slice, segments: Sequence[int] = (), prefix: KV | None = None) -> None:
        self.tokens, self._prefix, self._layer = tokens, prefix, 0
        key = prefix[0][0] if prefix else torch.empty(1, 1, 0)
        self._chunks = [
            (chunk, _mask(segments[chunk], key.shape[2]).to(key.device, non_blocking=True))
            for chunk in _chunks(segments)
        ]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Returns the attention output [T, Hq * D] of one layer. Each call uses the prefix of the next layer."""
        if self._prefix is None:
            out = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=True)
        else:
            before, self._layer = self._prefix[self._layer], self._layer + 1
            out = torch.cat([self._attend_chunk(q, k, v, before, *chunk) for chunk in self._chunks], 2)
        return out[0].transpose(0, 1).flatten(1)

    @staticmethod
    def _attend_chunk(
        q: Tensor, k: Tensor, v: Tensor, before: tuple[Tensor, Tensor], chunk: slice, mask: Tensor
    ) -> Tensor:
        keys, values = (torch.cat([a, b[:, :, chunk]], 2) for a, b in zip(before, (k, v), strict=True))
        return attend(q[:, :, chunk], keys, values, mask)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Returns the attention of q [1, Hq, T, D] over k and v [1, H, K, D], after adding ``mask`` [T, K] to the scores.
    It uses plain matrix products: on a CPU, in bf16 and with gradients, they take half the time of torch's fused
    attention.
    """
    groups = q.shape[1] // k.shape[1]
    together = (q * q.shape[-1] ** -0.5).unflatten(1, (-1, groups)).flatten(2, 3)  # heads that share keys, in a row
    scores = (together @ k.transpose(-1, -2)).unflatten(2, (groups, -1))
    shares = (scores + mask).softmax(-1)
    return (shares.flatten(2, 3) @ v).unflatten(2, (groups, -1)).flatten(1, 2)


def _chunks(segments: Sequence[int]) -> list[slice]:
    """Split the tokens into slices of whole conversations, about CHUNK tokens each. Long slices would waste work on
    scores between different conversations, which are masked anyway.
    """
    bounds = [0]
    for i in range(1, len(segments)):
        if segments[i] != segments[i - 1] and i - bounds[-1] >= CHUNK:
            bounds.append(i)
    return [slice(a, b) for a, b in zip(bounds, [*bounds[1:], len(segments)], strict=True)]


def _mask(segments: Sequence[int], prefix: int) -> Tensor:
    """Returns the attention mask [T, prefix + T]: 0 where a token attends, else minus infinity."""
    numbers = torch.tensor(segments)
    hidden = (numbers[:, None] != numbers) | torch.ones(len(numbers), len(numbers), dtype=torch.bool).triu(1)
    own = torch.zeros(hidden.shape, dtype=torch.bfloat16).masked_fill(hidden, float("-inf"))
    return torch.cat([own.new_zeros(len(own), prefix), own], 1)


class LoraDecoder(nn.Module):
    """The decoder in ``folder``, with frozen weights, and adapters of rank ``rank`` on all linear layers."""

    def __init__(self, folder: Path, rank: int, alpha: float) -> None:
        super().__init__()
        config, tensors = read_native_config(folder), open_weights(folder)
        if config is None or tensors is None or config.head_norms:
            raise SystemExit(f"{folder} is not a plain Llama or Qwen 2: other models are not trained yet")
        self.config, self.rank, self.alpha = config, rank, alpha
        self.register_buffer("embedding", tensors["model.embed_tokens.weight"].bfloat16())
        head = self.embedding if config.tie_word_embeddings else tensors["lm_head.weight"].bfloat16()
        self.register_buffer("head", head)
        self.register_buffer("norm", tensors["model.norm.weight"].bfloat16())
        layers = range(config.num_hidden_layers)
        self.layers = nn.ModuleList(LoraLayer(config, tensors, f"model.layers.{i}", rank, alpha / rank) for i in layers)
        self.register_buffer("frequencies", frequencies(config.rope_parameters, config.head_dim)[0])

    def forward(
        self, tokens: Tensor, positions: Tensor, rows: Sequence[Rows], adapted: bool
    ) -> tuple[Tensor, list[KV]]:
        """Run ``tokens`` at ``positions``, both [T], through all layers. Returns the normalized hidden states [T,
        hidden], and the new keys and values of each sequence.
        """
        angles = positions[:, None].float() * self.frequencies
        rope = angles.cos()[:, None], angles.sin()[:, None]
        x, caches = self.embedding[tokens], [KV() for _ in rows]
        for layer in self.layers:
            x, new = layer(x, rope, rows, adapted)
            for cache, kv in zip(caches, new, strict=True):
                cache.append(kv)
        return functional.rms_norm(x, self.norm.shape, self.norm, self.config.rms_norm_eps), caches

    @torch.no_grad()
    def read(self, texts: Sequence[Sequence[int]]) -> list[KV]:
        """Returns the keys and values of each of ``texts``, computed without adapters."""
        ends = list(accumulate(map(len, texts)))
        rows = [Rows(slice(end - len(text), end)) for text, end in zip(texts, ends, strict=True)]
        positions = torch.cat([torch.arange(len(text)) for text in texts])
        tokens = torch.tensor([token for text in texts for token in text])
        return self(tokens.to(self.norm.device), positions.to(self.norm.device), rows, adapted=False)[1]

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits [n, vocabulary] float32 of hidden states [n, hidden]."""
        return functional.linear(hidden, self.head).float()

    def load(self, folder: Path) -> None:
        """Load the adapter that ``save`` wrote to ``folder``."""
        tensors = load_file(folder / "adapter_model.safetensors")
        for layer in self.layers:
            for linear in (layer.qkv, layer.o, layer.gate_up, layer.down):
                names = [f"base_model.model.{name}.lora" for name in linear.names]
                linear.a.data.copy_(torch.cat([tensors[f"{name}_A.weight"] for name in names]))
                for b, name in zip(linear.b, names, strict=True):
                    b.data.copy_(tensors[f"{name}_B.weight"])

    def save(self, folder: Path, model_name: str, invocation: Sequence[int]) -> None:
        """Write the adapter to ``folder`` in PEFT's format: ``adapter_config.json``, and ``adapter_model.safetensors``
        in bf16.
        """
        folder.mkdir(parents=True, exist_ok=True)
        tensors = dict[str, Tensor]()
        for layer in self.layers:
            for linear in (layer.qkv, layer.o, layer.gate_up, layer.down):
                for name, a, b in zip(linear.names, linear.a.split(self.rank), linear.b, strict=True):
                    tensors[f"base_model.model.{name}.lora_A.weight"] = a.detach().bfloat16().contiguous()
                    tensors[f"base_model.model.{name}.lora_B.weight"] = b.detach().bfloat16().contiguous()
        save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": model_name,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            "alora_invocation_tokens": list(invocation),
            "inference_mode": True,
        }
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _rotated(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Returns x [T, heads, D] after RoPE, with the cosines and sines [T, 1, D / 2] of the tokens' positions."""
    cos, sin = rope
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
