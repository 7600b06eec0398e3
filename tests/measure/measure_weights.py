"""What weights at fewer bits, and adapters, cost and gain: ``python measure_weights.py bits|adapter [options]``.

``bits MODEL_FOLDER TEXT [--tokens 2000] [--dtype f32] [--runs 40] [WEIGHTS ...]``: a model's weights at fewer
bits beside its full ones on this processor, in one run. Quality: KL divergence from the full weights, agreement on the
likeliest token and perplexity, over the second half of the tokens. Speed: the tokens a second of reading, and
milliseconds of a decoded token after 512 tokens, by turns.

``adapter [FOLDER] [--tokens 6000]``: what an adapter (``auto`` without a FOLDER) costs, with the default model. Prints
the time to the first token of a second question on a kept document of about so many tokens, and that of a decoded
token, with the adapter and without, asked by turns. Pages must be the same.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import harness
import torch

from localctx.cli.common import measuring_text
from localctx.engine.events import Done
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.decoder.local_model import LocalModel
from localctx.models.load import load_model
from localctx.session import Session
from localctx.settings import load_settings

# --- Bits


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


def measure_bits(arguments: list[str]) -> None:
    """Print a line for each of the weights."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("text", type=Path)
    options.add_argument("weights", nargs="*", default=["int8", "int4"])
    options.add_argument("--tokens", type=int, default=2000)
    options.add_argument("--dtype", default="f32")
    options.add_argument("--runs", type=int, default=40)
    given = options.parse_args(arguments)
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


# --- Adapters


WORDS = ("page", "codec", "keeper", "fork", "tier", "sink", "window", "chunk")
PHASES = {"first_token": "first token of a kept document", "decode": "a decoded token"}


def measure_adapter(arguments: list[str]) -> None:
    """Ask by turns, and print the medians and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("adapter", nargs="?", default="auto")
    parser.add_argument("--tokens", type=int, default=6_000)
    given = parser.parse_args(arguments)
    adapter, tokens = given.adapter, given.tokens
    with TemporaryDirectory() as folder:
        seconds = ask_by_turns(Path(folder), adapter, tokens)
    for phase, words in PHASES.items():
        with_it, without = (median(seconds[phase, name]) * 1e3 for name in (adapter, "none"))
        print(f"{words}: {with_it:.1f} ms with {adapter}, {without:.1f} ms without: {with_it / without:.3f}")


def ask_by_turns(folder: Path, adapter: str, tokens: int) -> dict[tuple[str, str], list[float]]:
    """The seconds of each question, by phase and adapter; those of the first two, which read and compile, left out."""
    models, home, file = load_settings().models, folder / "home", folder / "text.txt"
    home.mkdir()
    (home / "models").symlink_to(models)
    file.write_text(measuring_text(None)[: 4 * tokens])
    seconds, kept = defaultdict[tuple[str, str], list[float]](list), set[bytes]()
    plain = {"mode": "full", "answers": "free", "careful": "off", "embedder": "none"}
    settings = load_settings(home=home, max_tokens=32, draft=0, **plain)
    with closing(Session(settings, lambda event: None)) as session:
        for number, word in enumerate(WORDS):
            for name in (adapter, "none"):
                session.change(replace(settings, adapter=name))
                *_, done = session.stream(f"What is a {word}?", [str(file)])
                assert isinstance(done, Done)
                report = done.report.to_json()
                names = {row["name"] for row in session.store.db.query("SELECT name FROM pages")}
                assert not kept or names == kept, "an adapter changes no page of a document"
                kept = names
                assert name == "auto" or bool(report["adapter"]) == (name != "none")
                if number:
                    seconds["first_token", name].append(report["seconds"]["first_token"])
                    each = report["seconds"]["decode"] / max(1, report["tokens"]["generated"] - 1)
                    seconds["decode", name].append(each)
    return seconds


if __name__ == "__main__":
    harness.run(__doc__, bits=measure_bits, adapter=measure_adapter)
