"""Whole requests on a GPU: ``python measure_gpu_requests.py --random llama-3-8b`` or ``--model FOLDER``.

One process asks a question on each document, which are read for it; another one asks the same again, of the pages that
the first has kept. Prints the time to the first token of both, how much was reused, and whether the answers are the
same. Then, in a third process, the logits: cold and restored, and alone and side by side with questions on the same
document and on another. A random model's answers are noise, which never ends by itself. ``--tiny`` tries the script on
a processor; ``--parts`` chooses among requests and exactness.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import harness  # noqa: F401
import torch
from random_models import SIZES, save_random_model

RESERVED = 512  # tokens of the window for the question, the prompt's own words and the answer
ANSWER = 16
QUESTION = "Which town had the most visitors, and in which year?"
OTHERS = ("How long is the river at the mill?", "Who keeps the ferry in winter?")
WARM = 900  # tokens of a document that is asked first, for which kernels are compiled
PARTS = ("requests", "exactness")
NOUNS = ("river", "mill", "ferry", "harbour", "bridge", "market", "tower", "garden", "school", "quarry", "orchard")
VERBS = ("opened", "closed", "grew", "burned", "moved", "was flooded", "changed hands", "lost its roof", "was sold")
PLACES = ("Aldern", "Birkwell", "Corrow", "Dunmere", "Eskling", "Farholt", "Grenna", "Holmby", "Istrad", "Jarrow")


def main() -> None:
    """Measure in child processes; a part that fails prints why, and the next one is run."""
    options = parse_options()
    if options.child:
        CHILDREN[options.child](options)
        return
    name = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    print(f"{name}, torch {torch.__version__}, {options.model or options.random}", flush=True)
    with tempfile.TemporaryDirectory() as folder, tried("the measurement"):
        prepare(options, Path(folder))
        if "requests" in options.parts:
            with tried("requests"):
                measure_requests(options)
        if "exactness" in options.parts:
            with tried("exactness"):
                for line in child("exactness", options):
                    print(f"{line['name']}: {line['result']}", flush=True)


def parse_options() -> argparse.Namespace:
    """The arguments; ``--tiny`` chooses small ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder, instead of a random model")
    parser.add_argument("--random", default="llama-3-8b", choices=sorted(SIZES))
    parser.add_argument("--layers", type=int, help="of the random model (all)")
    parser.add_argument("--tokenizer", type=Path, help="folder of the random model's tokenizer (a token for each byte)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32_768])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--kv", default="auto")
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--tiny", action="store_true", help="a small model on the processor, to try the script")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--files", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiny:
        options.random, options.device, options.tokens = "tiny", "cpu", [2048, 4096]
    return options


@contextmanager
def tried(what: str) -> Iterator[None]:
    """Print an error instead of raising it."""
    try:
        yield
    except Exception:
        print(f"{what} failed\n{traceback.format_exc()}", flush=True)


# --- What is asked


def prepare(options: argparse.Namespace, folder: Path) -> None:
    """Make the random model and the documents in ``folder``, and set the options that name them."""
    if not options.model:
        start = time.perf_counter()
        how = options.random, options.device, options.layers, options.tokenizer
        options.model = str(save_random_model(folder / "model", *how))
        print(f"the random model was made and written in {time.perf_counter() - start:.1f} s", flush=True)
    options.home = folder / "home"
    options.home.mkdir()
    encode = encoder(Path(options.model))
    options.files = []
    for number, tokens in enumerate([WARM + RESERVED, *options.tokens]):
        file = folder / f"document-{number}.txt"
        file.write_text(text_of(tokens - RESERVED, number, encode))
        options.files.append(str(file))


def encoder(model: Path) -> Callable[[str], Sequence[int]]:
    """The tokenizer in a model's folder."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def text_of(tokens: int, seed: int, encode: Callable[[str], Sequence[int]]) -> str:
    """Sentences that differ, of about as many tokens."""
    some = "".join(sentence(i, seed) for i in range(50))
    count = 1 + 50 * tokens // len(encode(some))
    text = "".join(sentence(i, seed) for i in range(count))
    excess = len(encode(text)) - tokens
    return text[: len(text) - max(0, excess) * len(text) // max(1, len(encode(text)))]


def sentence(number: int, seed: int) -> str:
    """One of many; no two have the same year and place."""
    n = number * 7919 + seed * 104_729
    noun, place, verb = NOUNS[n % len(NOUNS)], PLACES[n // 3 % len(PLACES)], VERBS[n // 7 % len(VERBS)]
    ends = f"and {n % 9973} people came to see it" if n % 2 else f"{n % 89} days before the fair of {PLACES[n % 10]}"
    return f"In {1200 + number % 800} the {noun} of {place} {verb}, {ends}.{' ' if number % 9 else chr(10) * 2}"


# --- Requests


def measure_requests(options: argparse.Namespace) -> None:
    """Print a row for every document: read by one process, and restored by another."""
    cold, restored = (list(child("requests", options)) for _ in range(2))
    for name, (first, *_) in (("first", cold), ("second", restored)):
        took = f"loading {first['load']:.1f} s, a first short question {first['wall']:.1f} s"
        print(f"the {name} process: {took}; notes {first['notes']}")
    print("\n| tokens | codec | cold s | restored s | times | reused | restoring s | tokens/s | answer | kept |")
    print(f"|{'---|' * 10}", flush=True)
    for one, two in zip(cold[1:], restored[1:], strict=True):
        same = "the same" if one["ids"] == two["ids"] else "same text" if one["text"] == two["text"] else "DIFFERS"
        times, share = one["first"] / two["first"], two["reused"] / two["prompt"]
        shown = f"{one['first']:.2f} | {two['first']:.3f} | {times:.0f} | {share:.1%} | {two['restore']:.3f}"
        kept = one["failed"] or two["failed"] or "yes"
        print(f"| {one['prompt']:,} | {one['codec']} | {shown} | {two['speed']:.1f} | {same} | {kept} |", flush=True)
        if same == "DIFFERS":
            print(f"cold {one['ids']} {one['text']!r}\nrestored {two['ids']} {two['text']!r}", flush=True)


def child(part: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the objects that another process prints, one a line. Raises RuntimeError if it fails."""
    names = ("model", "device", "dtype", "kv", "chunk", "home")
    given = [text for name in names for text in (f"--{name}", str(getattr(options, name)))]
    command = [sys.executable, __file__, "--child", part, *given, "--files", *options.files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
            else:
                print(line, end="", flush=True)
    if process.returncode:
        raise RuntimeError(f"the process for {part} ended with {process.returncode}")


@contextmanager
def opened(options: argparse.Namespace, home: Path) -> Iterator[Any]:
    """A session that reads documents whole and lets the model speak freely."""
    from localctx.session import Session
    from localctx.settings import load_settings

    how: dict[str, Any] = {"mode": "full", "max_tokens": ANSWER, "draft": 0, "embedder": "none", "careful": "off"}
    how |= {"repeats": "allow", "answers": "free", "adapter": "none", "offline": "on"}
    how |= {name: getattr(options, name) for name in ("model", "device", "dtype", "kv", "chunk")}
    with Session(load_settings(home=home, **how)) as session:
        yield session


def ask_each(options: argparse.Namespace) -> None:
    """In a process of its own: ask on every document and print what came of it, a line each."""
    with opened(options, options.home) as session:
        for file in options.files:
            print(json.dumps(asked(session, file)), flush=True)


def asked(session: Any, file: str) -> dict[str, Any]:
    """One question: the seconds to its first token without those of loading the model, and the report's figures."""
    from localctx.engine.events import Done, Note, Token

    start, first, ids, notes, done = time.perf_counter(), 0.0, list[int](), list[str](), None
    for event in session.stream(QUESTION, [file]):
        if isinstance(event, Token):
            first = first or time.perf_counter() - start
            ids.append(event.id)
        elif isinstance(event, Note):
            notes.append(event.text)
        elif isinstance(event, Done):
            done = event
    assert done, "every question ends"
    report, wall = done.report.to_json(), time.perf_counter() - start
    seconds, tokens, load = report["seconds"], report["tokens"], report["seconds"].get("load", 0.0)
    return {
        **{"first": first - load, "wall": wall - load, "load": load, "restore": seconds.get("restore", 0.0)},
        **{"prompt": tokens["prompt"], "reused": tokens["reused"], "codec": report["kv"]["codec"], "ids": ids},
        **{"text": report["answer"], "notes": notes, "failed": done.failed},
        "speed": (tokens["generated"] - 1) / seconds["decode"] if seconds.get("decode") else 0.0,
    }


# --- Exactness


def compare_logits(options: argparse.Namespace) -> None:
    """In a process of its own: print the largest difference of logits for every promise, a line each."""
    import promises
    from measure_promises import difference_text

    one, other = Path(options.files[1]), Path(options.files[-1])
    with tempfile.TemporaryDirectory() as home, opened(options, Path(home)) as session:
        ways: dict[str, Callable[[], tuple[Any, Any]]] = {
            "cold = restored": lambda: promises.restored(session, one, QUESTION),
            "alone = beside two on the same document": lambda: promises.alone(session, one, QUESTION, OTHERS),
            "alone = beside another document": lambda: beside(session, one, other),
        }
        for name, compute in ways.items():
            start = time.perf_counter()
            with tried(name):
                pair = compute()
                result = f"{difference_text(pair)}; {answers_text(pair)}, {time.perf_counter() - start:.1f} s"
                print(json.dumps({"name": name, "result": result}), flush=True)


def beside(session: Any, one: Path, other: Path) -> tuple[Any, Any]:
    """The logits of a question alone, and beside a question on another document."""
    import promises

    from localctx.engine.scheduler import Scheduler

    recorder = promises.Recorder(session)
    scheduler = Scheduler(recorder, max_prefill_tokens=session.settings.chunk)
    for file, question in ((one, QUESTION), (other, OTHERS[0])):
        scheduler.add(session.workflows.questions.ask([str(file)], question, False))
    list(scheduler.run())
    return promises.ask(session, one, QUESTION), next(iter(recorder.of.values()))


def answers_text(pair: tuple[Any, Any]) -> str:
    """Whether the likeliest tokens are the same after every position that both have."""
    one, other = pair
    both = sorted(one.keys() & other.keys())
    same = sum(bool(one[at].argmax() == other[at].argmax()) for at in both)
    largest = max(float(one[at].abs().max()) for at in both)
    return f"{same} of {len(both)} likeliest tokens are the same, the largest logit is {largest:.2g}"


CHILDREN = {"requests": ask_each, "exactness": compare_logits}

if __name__ == "__main__":
    main()
