"""What a model's weights at fewer bits cost and gain on this processor, beside its full ones, in one run.

python measure_weights.py MODEL_FOLDER TEXT [--tokens 2000] [--dtype f32] [--runs 40] [WEIGHTS ...]

Quality: KL divergence from the full weights, agreement on the likeliest token and perplexity, over the second half of
the tokens. Speed: the tokens a second of reading, and milliseconds of a decoded token after 512 tokens, by turns.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch

from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.decoder.local_model import LocalModel
from localctx.models.load import load_model

CHUNK, AFTER = 512, 512


def cache_of(model: LocalModel, codec: str) -> Cache:
    """An empty cache."""
    return Cache(Pool(model.shape, codec, rope=model.rope), model.dtype)


def read(model: LocalModel, tokens: list[int]) -> tuple[torch.Tensor, float]:
    """Log-probabilities after each token, and seconds."""
    cache, start = cache_of(model, "f32"), time.perf_counter()
    parts = [tokens[at : at + CHUNK] for at in range(0, len(tokens), CHUNK)]
    logits = torch.cat([model.forward(part, cache, len(part)) for part in parts])
    return logits.float().log_softmax(-1), time.perf_counter() - start


def decoder(model: LocalModel, tokens: list[int]) -> Callable[[], float]:
    """A function that decodes a token after the first ones of the text, and returns its milliseconds."""
    cache = cache_of(model, "int8")
    model.forward(tokens[:AFTER], cache)

    def step() -> float:
        start = time.perf_counter()
        model.forward(tokens[AFTER : AFTER + 1], cache)
        return (time.perf_counter() - start) * 1000

    return step


def main() -> None:
    """Print a line for each of the weights."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("text", type=Path)
    options.add_argument("weights", nargs="*", default=["int8", "int4"])
    options.add_argument("--tokens", type=int, default=2000)
    options.add_argument("--dtype", default="f32")
    options.add_argument("--runs", type=int, default=40)
    given = options.parse_args()
    names = ["full", *given.weights]
    models = {name: load_model(given.folder, name, "cpu", given.dtype, weights=name) for name in names}
    tokens = models["full"].tokenizer.encode(given.text.read_text(encoding="utf-8"))[: given.tokens]
    found = {name: read(model, tokens) for name, model in models.items()}
    steps = {name: decoder(model, tokens) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(given.runs):
        for name, step in steps.items():
            times[name].append(step())
    first, after = len(tokens) // 2, torch.tensor(tokens)
    base = found["full"][0][first:-1]
    print(f"{len(tokens)} tokens, {given.dtype}; {given.runs} decoded tokens each, after {AFTER}")
    print("weights    MB      KL  same  perplexity  read t/s  decode ms: least, median")
    for name, model in models.items():
        own = found[name][0][first:-1]
        kl = (base.exp() * (base - own)).sum(-1).mean()
        same = (base.argmax(-1) == own.argmax(-1)).float().mean()
        perplexity = (-own.gather(1, after[first + 1 :, None]).mean()).exp()
        least, median = min(times[name]), sorted(times[name])[given.runs // 2]
        print(
            f"{name:7} {model.nbytes / 1e6:5.0f}  {kl:.5f}  {same:.3f}  {perplexity:9.3f}"
            f"  {len(tokens) / found[name][1]:8.0f}  {least:8.2f}  {median:8.2f}"
        )


if __name__ == "__main__":
    main()
