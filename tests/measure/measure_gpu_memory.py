"""Memory that runs out during a request on a GPU: ``python measure_gpu_memory.py [--device cuda] [--tiny]``.

A random model whose attention is sharp is asked on a document that it reads whole, through the product. Memory runs
out in several ways: torch's error is raised at some step, or another allocation leaves too little. Printed are what
the user was told, the pages in each tier, how many of the answer's tokens are those of the undisturbed answer, how far
the logits after the prompt are from its logits, and whether the next request gives the undisturbed answer again. Steps
of another size round differently in bf16, so a few tokens may differ where nothing is wrong.
"""

import argparse
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness  # noqa: F401
import torch
from tiny_models import make_tokenizer

import localctx
from localctx.engine.events import Done, Note, Planned, Token
from localctx.errors import UserError
from localctx.kv.cache import Cache
from localctx.session import Session

SIZE = {
    **{"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4, "num_attention_heads": 16},
    **{"num_key_value_heads": 4, "head_dim": 128},
}
TINY = {
    **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 16},
}
SHARP = 20  # attention weights are multiplied by this
PLAIN: dict[str, Any] = {
    **{"embedder": "none", "mode": "full", "careful": "off", "repeats": "allow", "answers": "free", "adapter": "none"},
    **{"max_tokens": 16, "effective_context": 1_000_000, "prompts": "off", "weights": "full"},
}
QUESTION = "How deep is lake 7?"
LEFT = (192 << 20, 96 << 20, 48 << 20)  # bytes that the other allocation leaves free
HEAD = "| memory | answer | logits off by | chunk | pages | next | s | told |"
When = Callable[[Cache], bool]
Disturbed = Callable[[Session], AbstractContextManager[None]]


@dataclass
class Heard:
    """What a request gave: tokens, notes, the error that ended it, and the last report's numbers."""

    ids: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    chunk: int | str = ""
    pages: str = ""
    logits: torch.Tensor | None = None
    seconds: float = 0.0


def main() -> None:
    """Print a row for every way in which memory runs out; one that fails prints why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", default="bf16", help="several: bf16,f32")
    parser.add_argument("--tokens", type=int, default=16_000)
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--tiny", action="store_true", help="a small model and document, to try the script")
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        made = save_model(Path(folder) / "model", TINY if options.tiny else SIZE)
        text = save_text(Path(folder) / "lakes.txt", 2600 if options.tiny else options.tokens)
        how = {**PLAIN, "model": str(made), "device": options.device, "chunk": 512 if options.tiny else options.chunk}
        for dtype in options.dtypes.split(","):
            try:
                measure(Path(folder) / dtype, text, {**how, "dtype": dtype})
            except Exception:
                traceback.print_exc()
    print(f"\n{time.perf_counter() - began:.0f} s", flush=True)


def measure(home: Path, text: Path, how: dict[str, Any]) -> None:
    """Print the rows of one precision."""
    with localctx.open(text, home=home, **how) as session:
        ask(session)  # which compiles and loads kernels
        plain = ask(session)
        print(f"\n{session.model.device}, {how['dtype']}: {plain.chunk} tokens at a time, pages {plain.pages}")
        print(f"\n{HEAD}\n|{'---|' * 8}", flush=True)
        for name, disturbed in ways(how["device"] != "cpu").items():
            try:
                print_row(session, name, disturbed, plain)
            except Exception:
                print(f"| {name} | failed |\n{traceback.format_exc()}", flush=True)
        graphs = getattr(session.model, "graphs", None)
        print(f"\ngraphs: {'none' if graphs is None else graphs.refused or 'captured'}", flush=True)


def print_row(session: Session, name: str, disturbed: Disturbed, plain: Heard) -> None:
    """Ask while memory runs out, then once more."""
    heard = ask(session, disturbed(session))
    after = ask(session)
    left = sum(session.runtime.pools.page_counts.values())
    again = compared(after, plain) + (f", {left} pages left behind" if left else "") + "".join(after.told)
    off = distance(heard, plain)
    cells = [name, compared(heard, plain), off, heard.chunk, heard.pages, again, f"{heard.seconds:.1f}"]
    print(f"| {' | '.join(map(str, cells))} | {' / '.join(heard.told) or 'nothing'} |", flush=True)


def ways(on_gpu: bool) -> dict[str, Disturbed]:
    """The ways in which memory runs out, by name."""

    def raised(when: When) -> Disturbed:
        return lambda session: failing(session, when)

    found: dict[str, Disturbed] = {
        "none, for comparison": lambda session: nullcontext(),
        "raised at the third step": raised(nth(3)),
        "raised in the third step's layers": lambda session: failing_amid(session, 3),
        "raised while over half is on the device": raised(over_half()),
        "raised in the answer": raised(lambda cache: cache.phase == "answering" and cache.tail % 4 == 0),
    }
    if on_gpu:
        found |= {f"another takes all but {left >> 20} MiB at step 3": taken(nth(3), left) for left in LEFT}
        found["another has taken all but 512 MiB before"] = taken(None, 512 << 20)
    return found


def nth(count: int) -> When:
    """True at the ``count``-th step of reading, once."""
    steps = iter(range(1, 1 << 30))
    return lambda cache: cache.phase != "answering" and next(steps) == count


def over_half() -> When:
    """True while reading behind 1,024 tokens with more than half of its pages on the device."""
    return lambda cache: (
        cache.phase != "answering" and cache.length > 1024 and 2 * len(cache.pool.device_tier) > cache.num_pages
    )


def ask(session: Session, disturbed: AbstractContextManager[None] | None = None) -> Heard:
    """Ask the question; an error ends up among what was told."""
    heard, start = Heard(), time.perf_counter()
    with disturbed or nullcontext(), listening(session, heard):
        try:
            for event in session.stream(QUESTION, persist=False):
                note(heard, event)
        except UserError as e:
            heard.told.append(f"{type(e).__name__}: {e}")
        except Exception as e:
            heard.told.append(f"NOT TOLD, {type(e).__name__}: {e}")
            traceback.print_exc()
    heard.seconds = time.perf_counter() - start
    return heard


def note(heard: Heard, event: object) -> None:
    """Take down what an event says."""
    if isinstance(event, Token):
        heard.ids.append(event.id)
    elif isinstance(event, Note):
        heard.told.append(event.text)
    elif isinstance(event, Planned):
        heard.pages = "planned " + "/".join(f"{n >> 20}" for n in event.tiers.values()) + " MiB"
    elif isinstance(event, Done):
        kv = event.report.to_json()["kv"]
        heard.chunk, heard.pages = kv["chunk"], "/".join(map(str, kv["pages"].values()))


@contextmanager
def listening(session: Session, heard: Heard) -> Iterator[None]:
    """Keep the logits after the prompt."""
    forward_each = session.model.forward_each

    def kept(requests: Sequence[Any], *how: Any) -> list[torch.Tensor]:
        logits = forward_each(requests, *how)
        if requests[0].cache.phase == "asking":
            heard.logits = logits[0][-1].float().cpu()
        return logits

    with patched(session.model, "forward_each", kept):
        yield


@contextmanager
def failing(session: Session, when: When) -> Iterator[None]:
    """While ``when`` says so, a step runs out of memory."""
    forward_each = session.model.forward_each

    def fails(requests: Sequence[Any], *how: Any) -> list[torch.Tensor]:
        if when(requests[0].cache):
            raise torch.OutOfMemoryError("injected")
        return forward_each(requests, *how)

    with patched(session.model, "forward_each", fails):
        yield


@contextmanager
def failing_amid(session: Session, step: int) -> Iterator[None]:
    """Memory runs out in a step, when its keys are appended to the last layer."""
    extend, calls, count = Cache.extend, iter(range(1, 1 << 30)), step * len(session.paged_model.shape.layers)

    def fails(cache: Cache, *how: Any) -> None:
        if next(calls) == count:
            raise torch.OutOfMemoryError("injected")
        extend(cache, *how)

    with patched(Cache, "extend", fails):
        yield


def taken(when: When | None, left: int) -> Disturbed:
    """All memory of the GPU but ``left`` bytes is taken once ``when`` says so (None: before) until the request ends."""

    @contextmanager
    def disturbed(session: Session) -> Iterator[None]:
        held, forward_each = list[torch.Tensor](), session.model.forward_each

        def takes(requests: Sequence[Any], *how: Any) -> list[torch.Tensor]:
            if when and when(requests[0].cache):
                held.append(all_but(left))
            return forward_each(requests, *how)

        held += [] if when else [all_but(left)]
        with patched(session.model, "forward_each", takes):
            yield
        held.clear()
        torch.cuda.empty_cache()

    return disturbed


def all_but(left: int) -> torch.Tensor:
    """Memory of the GPU, so much that ``left`` bytes stay free."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.empty(max(0, torch.cuda.mem_get_info()[0] - left), dtype=torch.uint8, device="cuda")


@contextmanager
def patched(owner: Any, name: str, value: object) -> Iterator[None]:
    """``owner`` has another attribute meanwhile."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def compared(heard: Heard, plain: Heard) -> str:
    """Whether the answers are the same."""
    if heard.ids == plain.ids:
        return "same"
    same = sum(a == b for a, b in zip(heard.ids, plain.ids, strict=False))
    return f"{same} of {len(plain.ids)} tokens" if heard.ids else "none"


def distance(heard: Heard, plain: Heard) -> str:
    """How far the logits are from the undisturbed ones, relative to the greatest."""
    if heard.logits is None or plain.logits is None:
        return "-"
    return f"{float((heard.logits - plain.logits).abs().max() / plain.logits.abs().max()):.0e}"


def save_model(folder: Path, size: dict[str, int]) -> Path:
    """A random Llama with sharp attention, and a tokenizer with a token for each byte, as a model folder."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    ids = {"vocab_size": 260, "max_position_embeddings": 32_768, "bos_token_id": 256, "eos_token_id": 257}
    model = LlamaForCausalLM(LlamaConfig(**ids, **size))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "self_attn" in name:
                weight.mul_(SHARP * (TINY["hidden_size"] / size["hidden_size"]) ** 0.5)
    model.to(torch.bfloat16).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def save_text(path: Path, tokens: int) -> Path:
    """A text of so many bytes, each of which is a token."""
    path.write_text("".join(f"Lake {i:04} is {i * 7919 % 997} feet deep.\n" for i in range(tokens // 26)))
    return path


if __name__ == "__main__":
    main()
