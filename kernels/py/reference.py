"""Attention over one block of keys, and exact merging of blocks by their log-sum-exp, in torch on any device."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

FLASH_WIDTH = 256  # widest heads that FlashAttention-2 supports
Part = tuple[Tensor, Tensor]
"""(out [Hq, T, Dv], lse [Hq, T] float32): softmax attention over some keys, and the natural log-sum-exp."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    softcap: float = 0,
) -> Part:
    """Returns (out [Hq, T, Dv], log-sum-exp [Hq, T]): the attention of q [Hq, T, D] over k [H, S, D], v [H, S, Dv].
    Query head i reads KV head i // (Hq / H). ``scale`` is the factor of scores.

    ``causal``: query t sees keys 0..t (T must equal S). ``mask`` [T, S] is True where a query sees a key; a query that
    sees no key gets out 0 and lse -inf. The reference also takes a mask [Hq, T, S]. ``softcap`` c > 0 squashes scores
    to c * tanh(score / c) (Gemma 2).
    """
    if q.device.type == "cpu" and not softcap and k.shape[2] >= v.shape[2]:
        # MLA's values are narrower than its keys: padding them with zeros is cheaper than computing all scores at once
        out, lse = _flash_cpu(q, k, functional.pad(v, (0, k.shape[2] - v.shape[2])), scale, causal, mask)
        return out[..., : v.shape[2]], lse
    if mask is None and not softcap and flash_runs(q, k.shape[2], v.shape[2]):
        return _flash_cuda(q, k, v, scale, causal)
    return attend_reference(q, k, v, scale, causal=causal, mask=mask, softcap=softcap)


def attend_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    softcap: float = 0,
) -> Part:
    """Compute ``attend``, with the same arguments, in the simplest way: all scores at once, softmax in float32."""
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    scores = (q @ k.transpose(1, 2)).float() * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if causal:
        mask = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    lse = scores.logsumexp(-1)
    p = torch.exp(scores - lse.clamp_min(torch.finfo(torch.float32).min).unsqueeze(-1))
    return (p.to(v.dtype) @ v), lse


def _flash_cpu(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, mask: Tensor | None) -> Part:
    bias = None
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -math.inf)
    if k.stride(-1) != 1:  # the kernel assumes this, and otherwise reads wrong values
        k = k.contiguous()
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q[None], k[None], v[None], 0.0, causal, attn_mask=None if bias is None else bias[None, None], scale=scale
    )
    if mask is not None:  # the kernel returns lse 0 for a query that sees nothing
        lse = lse.masked_fill(~mask.any(1), -math.inf)
    return out[0], lse[0]


def flash_runs(q: Tensor, k_dim: int, v_dim: int) -> bool:
    """Returns True if torch's FlashAttention supports queries q [Hq, T, D] with keys of ``k_dim`` and values of
    ``v_dim`` channels. It needs an NVIDIA GPU, Ampere or newer.
    """
    fits = q.dtype in (torch.bfloat16, torch.float16) and k_dim == v_dim <= FLASH_WIDTH and k_dim % 8 == 0
    return fits and q.device.type == "cuda" and torch.cuda.get_device_capability(q.device) >= (8, 0)


def _flash_cuda(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Part:
    """Compute ``attend`` with FlashAttention-2 or cuDNN. Query heads share KV heads without copying them.

    On Hopper, cuDNN computes twice as many products a second as FlashAttention-2, but builds a plan for each pair of
    lengths. So it is used only for lengths that recur (powers of two).
    """
    tokens, keys = q.shape[1], k.shape[1]
    hopper = torch.backends.cudnn.is_available() and torch.cuda.get_device_capability(q.device)[0] == 9
    come_again = tokens >= 256 and keys >= 4096 and not (tokens & (tokens - 1) or keys & (keys - 1))
    if hopper and come_again and not causal and q.shape[2] <= 128:
        out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q[None], k[None], v[None], None, True, 0.0, False, False, scale=scale
        )
        return out[0], lse[0, ..., 0]
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q[None], k[None], v[None], 0.0, causal, False, scale=scale
    )
    return out[0], lse[0]


def merge(parts: Sequence[Part], sinks: Tensor | None = None) -> Part:
    """Merge ``parts``, the attention over disjoint sets of keys, exactly into one result (out [Hq, T, Dv], lse [Hq,
    T]), as in Flash-Decoding's last step.

    ``sinks`` [Hq] are learned logits that take attention mass but add no value (gpt-oss).
    """
    if len(parts) == 1 and sinks is None:
        return parts[0]
    lses = torch.stack([lse for _, lse in parts])
    total = torch.logsumexp(lses, 0)
    if sinks is not None:
        total = torch.logaddexp(total, sinks.float()[:, None])
    weights = torch.exp(lses - total)
    out = parts[0][0].float() * weights[0, ..., None]
    for (o, _), w in zip(parts[1:], weights[1:], strict=True):
        out.addcmul_(o.float(), w[..., None])
    return out.to(parts[0][0].dtype), total
