"""Throughput of summarizing documents side by side: ``python measure_batch.py [squad.json] [documents]``.

Paragraphs of the data (see measure_retrieval.py) become documents, which are summarized one after another, side by
side, with transformers' continuous batching, and with llama.cpp if it is installed (``LOCALCTX_GGUF`` names the default
model's file for it). All ways take turns on each group of documents, so that noise of the machine affects all of them.
Prints each group, then medians, and how many of the greedy summaries are the same one after another and side by side.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import harness  # noqa: F401
from in_memory_output import Kept
from measure_retrieval import DATA

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Batch, Outcome
from localctx.batch.side_by_side import MAX_PARALLEL, run_side_by_side
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import AS_IT_IS
from localctx.session import Session
from localctx.settings import load_settings
from localctx.workflows.summary_task import SummaryTask

GROUPS = 3
TASK = SummaryTask(length="short")


def main(path: Path = DATA, count: int = 54) -> None:
    """Print tokens per second of each way, group by group, and the medians."""
    if not path.exists():
        sys.exit(f"{path} is absent: nothing to measure")
    texts = [p["text"] for article in json.loads(path.read_text()) for p in article["paragraphs"]]
    texts = texts[:: len(texts) // count][:count]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "home").mkdir()
        settings = load_settings(summaries="write")
        settings = replace(TASK.adapted(settings), home=Path(folder) / "home")
        (settings.home / "models").symlink_to(load_settings().models)
        with Session(settings) as session:
            measure(session, texts, Path(folder))


def measure(session: Session, texts: list[str], folder: Path) -> None:
    """Every way, on one group after another."""
    ways: dict[str, Callable[[list[str]], tuple[int, list[str]]]] = {
        "localctx, one after another": lambda group: ours(session, group, folder, 1),
        "localctx, side by side": lambda group: ours(session, group, folder, MAX_PARALLEL),
    }
    ways |= dict(peers(session))
    ours(session, texts[:2], folder, 2)  # compiles kernels and loads the model
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    same = total = 0
    for i in range(GROUPS):
        group, said = texts[i::GROUPS], {}
        for name, way in ways.items():
            start = time.perf_counter()
            tokens, said[name] = way(group)
            seconds = time.perf_counter() - start
            speeds[name].append(tokens / seconds)
            print(f"{name}: {len(group)} documents, {tokens:,} tokens written, {seconds:.1f} s", flush=True)
        alone, together = (said[name] for name in list(ways)[:2])
        same, total = same + sum(a == b for a, b in zip(alone, together, strict=True)), total + len(group)
    first = statistics.median(speeds["localctx, one after another"])
    for name, found in speeds.items():
        middle = statistics.median(found)
        print(f"{name}: {middle:.1f} tokens written/s ({min(found):.1f} to {max(found):.1f}), {middle / first:.2f} x")
    print(f"the same summary alone and side by side: {same} of {total}")


def ours(session: Session, texts: list[str], folder: Path, most: int) -> tuple[int, list[str]]:
    """Return the tokens written and the summaries, with at most so many documents at a time."""
    jobs = []
    for i, text in enumerate(texts):
        file = folder / f"{i:04}.txt"
        file.write_text(text, encoding="utf-8")
        jobs.append(DocumentJob(str(file), str(file), len(text)))
    kept = Kept()
    with session.workflows.summaries() as summarizing:
        batch = Batch(summarizing, TASK, [kept], force=True)
        told = run_side_by_side(batch.run, jobs, session.forward_each, session.runtime.cancelled, most)
        done = [what for _, what in told if isinstance(what, Outcome)]
    assert all(outcome.status == "done" for outcome in done), [o.why for o in done]
    return sum(o.entry["tokens"]["generated"] for o in done), [kept.summaries[Path(j.path).name] for j in jobs]


def peers(session: Session) -> Iterator[tuple[str, Callable[[list[str]], tuple[int, list[str]]]]]:
    """Yield transformers' continuous batching, and llama.cpp with its best options for the CPU."""
    tokenizer, folder = session.model.tokenizer, session.settings.models / session.settings.model
    prompts = lambda texts: [make_prompt(tokenizer, [t], TASK.document_instruction, (), AS_IT_IS).tokens for t in texts]  # noqa: E731
    yield "transformers generate_batch", generate_batch(folder, session, prompts)
    if gguf := os.environ.get("LOCALCTX_GGUF"):
        yield "llama.cpp, one after another", llama_cpp(gguf, prompts)


def generate_batch(folder: Path, session: Session, prompts) -> Callable[[list[str]], tuple[int, list[str]]]:
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=session.model.dtype, attn_implementation="sdpa")
    stops = sorted(session.model.tokenizer.stop_ids)
    how = GenerationConfig(max_new_tokens=TASK.tokens, do_sample=False, eos_token_id=stops, pad_token_id=stops[0])
    blocks = ContinuousBatchingConfig(num_blocks=256, max_batch_tokens=512, page_size=64)

    def run(texts: list[str]) -> tuple[int, list[str]]:
        found = model.generate_batch(prompts(texts), generation_config=how, continuous_batching_config=blocks)
        outs = [o.generated_tokens for o in found.values()]
        assert all(outs), [o.error for o in found.values()]
        return sum(map(len, outs)), []

    return run


def llama_cpp(gguf: str, prompts) -> Callable[[list[str]], tuple[int, list[str]]]:
    from llama_cpp import Llama

    model = Llama(gguf, n_ctx=2048, n_threads=os.cpu_count(), flash_attn=True, verbose=False, logits_all=False)

    def run(texts: list[str]) -> tuple[int, list[str]]:
        found = [model.create_completion(p, max_tokens=TASK.tokens, temperature=0) for p in prompts(texts)]
        return sum(f["usage"]["completion_tokens"] for f in found), []

    return run


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *map(int, sys.argv[2:3]))
