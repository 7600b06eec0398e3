"""Decoding with weights at fewer bits on a GPU: ``python measure_gpu_weights.py [--layers 8] [--tokens 4096]``.

A random model of Llama 3 8B's shape is written to a temporary folder, and loaded as the product loads it: in bf16, and
in nf4 by bitsandbytes (``--weights full,nf4,int8``: in int8, too). It decodes behind random keys and values, with
captured graphs where they can be, beside transformers' step with the same weights, a DynamicCache and SDPA. Weights in
int4, which are also the 4-bit blocks that a model was published in, are for processors: on a GPU the product refuses
them, which the last row tells. A way that fails prints why.
"""

import argparse
import gc
import statistics
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import harness  # noqa: F401
import torch
from measure_gpu import LLAMA_3_8B, made_model
from measure_gpu_model import STEPS, step_of, timed
from tiny_models import make_tokenizer

from localctx.errors import UserError
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.load import load_model

TINY = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8}
WEIGHTS, WAYS = "full,nf4,int4", ("DynamicCache", "int8", "bf16")
HEAD = "| weights | KV | ms a token | least | times as fast | weights GiB | peak GiB | loaded in s |"


def main() -> None:
    """Print a row for every way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--weights", default=WEIGHTS)
    parser.add_argument("--tiny", action="store_true", help="a small model, to try the script")
    options = parser.parse_args()
    began, size = time.perf_counter(), {**(TINY if options.tiny else LLAMA_3_8B), "num_hidden_layers": options.layers}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder, torch.device(options.device), size)
        print(f"{options.layers} layers, {options.tokens:,} tokens; written in {time.perf_counter() - began:.0f} s\n")
        print(f"{HEAD}\n|{'---|' * 8}", flush=True)
        for weights in options.weights.split(","):
            try:
                measure(folder, options.device, weights, options.tokens)
            except UserError as e:
                print(f"| {weights} | - | refused: {e} |", flush=True)
            except Exception:
                print(f"| {weights} | failed |\n{traceback.format_exc()}", flush=True)
            gc.collect()
    print(f"\n{time.perf_counter() - began:.0f} s", flush=True)


def save_model(folder: Path, device: torch.device, size: dict[str, int]) -> None:
    """Write a random model and a tokenizer, as a model folder."""
    made_model(device, size)._module.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    gc.collect()


def measure(folder: Path, device: str, weights: str, tokens: int) -> None:
    """Print the rows of a model with these weights. Raises UserError if the product refuses them."""
    start = time.perf_counter()
    model = load_model(folder, "random", device, "bf16", weights=weights)
    if not isinstance(model, TransformersModel):
        print(f"| {weights} | - | computed by {model.computed_by} |", flush=True)
        return
    loaded, first = time.perf_counter() - start, None
    for way in WAYS:
        try:
            with torch.inference_mode():
                ms = list(timed_way(model, way, tokens))
        except Exception:
            print(f"| {weights} | {way} | failed |\n{traceback.format_exc()}", flush=True)
            continue
        median = statistics.median(ms[4:])
        first = first or median
        cells = [
            weights,
            way,
            f"{median:.2f}",
            f"{min(ms):.2f}",
            f"{first / median:.1f}",
            f"{model.nbytes / 2**30:.2f}",
        ]
        print(f"| {' | '.join(cells)} | {peak():.2f} | {loaded:.1f} |", flush=True)
    graphs = "not used" if model.graphs is None else model.graphs.refused or "captured"
    print(f"  {model.computed_by}; graphs: {graphs}", flush=True)


def timed_way(model: TransformersModel, way: str, tokens: int) -> Iterator[float]:
    """Milliseconds of each step."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return timed(step_of(model, way, tokens), STEPS)


def peak() -> float:
    """The most GiB that torch had allocated."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


if __name__ == "__main__":
    main()
