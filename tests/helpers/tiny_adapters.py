"""Random activated LoRA adapters made on the spot, as folders that PEFT writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
INVOCATION = "Question:"


def save_adapter(
    folder: Path,
    model: Path,
    invocation: Sequence[int] | None = None,
    *,
    targets: Sequence[str] = LAYERS,
    rank: int = 4,
    seed: int = 0,
    size: float = 0.3,
    **more: Any,
) -> Path:
    """An adapter of the model in a folder, with random changes of about ``size`` times its weights. Its invocation
    tokens are those of ``INVOCATION`` as a tiny model's tokenizer has them, if none are given.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from tiny_models import make_tokenizer
    from transformers import AutoModelForCausalLM

    tokens = list(invocation or make_tokenizer().encode(INVOCATION))
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(seed)
    how = {"r": rank, "lora_alpha": 2 * rank, "target_modules": list(targets), "task_type": "CAUSAL_LM", **more}
    adapted = get_peft_model(module, LoraConfig(alora_invocation_tokens=tokens, **how))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn_like(weight) * size * 0.1)
    adapted.save_pretrained(folder)
    return folder


def peft_logits(model: Path, adapter: Path, tokens: Sequence[int]) -> Any:
    """What PEFT computes: the logits [tokens, vocabulary] of a prompt, with the adapter from its invocation on."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.inference_mode():
        return PeftModel.from_pretrained(module, adapter).eval()(input_ids=torch.tensor([list(tokens)])).logits[0]
