"""A plain decoder (see ``localctx.models.decoder_config``) with low-rank adapters that act on the tokens after the
documents only: activated LoRA (arXiv:2504.12397). It is used for training.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from localctx.models.decoder_config import DecoderConfig, read_native_config
from localctx.models.frequencies import frequencies
from localctx.models.safetensors_files import open_weights

KV = list[tuple[Tensor, Tensor]]
"""Keys and values [1, kv_heads, T, D] by layer."""


class LoraLinear(nn.Module):
    """Linear layers of the same input, computed as one: frozen weights, and an adapter of ``rank`` for each."""

    def __init__(self, names: Sequence[str], weights: Sequence[Tensor], rank: int, scale: float) -> None:
        super().__init__()
        self.names, self.rank, self.scale = names, rank, scale
        self.register_buffer("weight", torch.cat(list(weights)).bfloat16())
        inputs = weights[0].shape[1]
        self.a = nn.Parameter(torch.empty(len(names) * rank, inputs))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(len(w), rank)) for w in weights)

    def forward(self, x: Tensor, adapted: bool) -> Tensor:
        """x [T, in] to [T, out of all parts]."""
        out = functional.linear(x, self.weight)
        if not adapted:
            return out
        low = functional.linear(x, self.a.to(x.dtype)).split(self.rank, -1)
        parts = [functional.linear(part, b.to(x.dtype)) for part, b in zip(low, self.b, strict=True)]
        return out + self.scale * torch.cat(parts, -1)


class LoraLayer(nn.Module):
    """One layer of the decoder."""

    def __init__(self, config: DecoderConfig, tensors: dict[str, Tensor], at: str, rank: int, scale: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.eps = config.rms_norm_eps

        def linear(module: str, *parts: str) -> LoraLinear:
            names = [f"{at}.{module}.{part}_proj" for part in parts]
            return LoraLinear(names, [tensors[f"{name}.weight"] for name in names], rank, scale)

        self.qkv, self.o = linear("self_attn", "q", "k", "v"), linear("self_attn", "o")
        self.gate_up, self.down = linear("mlp", "gate", "up"), linear("mlp", "down")
        self.register_buffer("norm1", tensors[f"{at}.input_layernorm.weight"].bfloat16())
        self.register_buffer("norm2", tensors[f"{at}.post_attention_layernorm.weight"].bfloat16())

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], rows: Sequence["Rows"], adapted: bool
    ) -> tuple[Tensor, KV]:
        """x [T, hidden], several sequences in a row; returns x and the new keys and values of each sequence."""
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
    """The ``tokens`` (a slice of the row) of one sequence, after the keys and values of its prefix, if it has one.

    ``mask`` [tokens, prefix + tokens] says which of both each token attends to; None: all before it.
    """

    def __init__(self, tokens: slice, mask: Tensor | None = None, prefix: KV | None = None) -> None:
        self.tokens, self.mask, self._prefix, self._layer = tokens, mask, prefix, 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Returns the attention's output [T, Hq * D] of the next layer."""
        if self._prefix:
            before = self._prefix[self._layer]
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        self._layer += 1
        how = {"is_causal": True} if self.mask is None else {"attn_mask": self.mask}
        out = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **how)
        return out[0].transpose(0, 1).flatten(1)


class LoraDecoder(nn.Module):
    """The decoder in ``folder``, whose weights are frozen, with adapters of ``rank`` on all linear layers."""

    def __init__(self, folder: Path, rank: int, alpha: float) -> None:
        super().__init__()
        config, tensors = read_native_config(folder), open_weights(folder)
        assert config and tensors is not None, "a plain decoder is trained"
        assert config.tie_word_embeddings and not (config.qkv_bias or config.head_norms), "a Llama with tied embeddings"
        self.config, self.rank, self.alpha = config, rank, alpha
        self.register_buffer("embedding", tensors["model.embed_tokens.weight"].bfloat16())
        self.register_buffer("norm", tensors["model.norm.weight"].bfloat16())
        layers = range(config.num_hidden_layers)
        self.layers = nn.ModuleList(LoraLayer(config, tensors, f"model.layers.{i}", rank, alpha / rank) for i in layers)
        self.frequencies, _ = frequencies(config.rope_parameters, config.head_dim)

    def forward(
        self, tokens: Tensor, positions: Tensor, rows: Sequence[Rows], adapted: bool
    ) -> tuple[Tensor, list[KV]]:
        """tokens and positions [T]; returns the normalized hidden states [T, hidden] and, by sequence, its new KV."""
        angles = positions[:, None].float() * self.frequencies
        rope = angles.cos()[:, None], angles.sin()[:, None]
        x, caches = self.embedding[tokens], [KV() for _ in rows]
        for layer in self.layers:
            x, new = layer(x, rope, rows, adapted)
            for cache, kv in zip(caches, new, strict=True):
                cache.append(kv)
        return functional.rms_norm(x, self.norm.shape, self.norm, self.config.rms_norm_eps), caches

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n, hidden] to logits [n, vocabulary], float32."""
        return functional.linear(hidden, self.embedding).float()

    def save(self, folder: Path, model_name: str, invocation: Sequence[int]) -> None:
        """Write the adapter as PEFT does: ``adapter_config.json`` and ``adapter_model.safetensors``, in bf16."""
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
    """x [T, heads, D] rotated by the cosines and sines [T, 1, D / 2] of its positions."""
    cos, sin = rope
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
