"""Input changed at random: ``python measure_fuzz.py documents|letters|api [options]``.

``documents [--format pdf | --group office] [--inputs 1000] [--seed 1]``: blocks of inputs are parsed by a process under
the parsers' limits; ``--inputs`` counts those of a group, or of a format. An input that ends the process is parsed once
more as the application does it: it must end in a sentence. Prints how many inputs were read, refused in a sentence, and
ended their process; fails where the application would not have told a sentence.

``letters [--inputs 1000] [--seed 1]``: damages 1 to 20 bytes of text files in several encodings. Prints how often more
letters were lost than bytes damaged; exit code 1 if that was so at all.

``api [--requests 5000] [--seed 1]``: serves a tiny model on a free port of this machine, sends it requests made from
``/openapi.json`` by schemathesis, valid and invalid ones, and counts the statuses. Exit code 1: there was a 5xx, or an
answer that is no JSON object where one is promised.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import harness
from fuzz_documents import FORMATS, GROUPS, TEXTS, letters_lost

from localctx.errors import DocumentError
from localctx.library.parsers.sandbox import ReadOptions, parse

BLOCK = 250  # inputs of one process
OPERATIONS = 13  # of the API
SHORT = {"max_tokens": 4, "max_completion_tokens": 4, "max_output_tokens": 4}


# --- Documents


def run_block(names: str, inputs: int, number: int, folder: Path) -> dict[str, Counter[str]]:
    """Parses ``inputs`` changed documents of each format. Returns how they ended, by format: read, refused, or (once)
    with the process.
    """
    file = folder / "input"
    script = str(Path(__file__).resolve().parents[1] / "helpers" / "fuzz_documents.py")
    done = subprocess.run(
        [sys.executable, script, names, str(inputs), str(number), str(file)], capture_output=True, text=True
    )
    if done.returncode == 0:
        return {name: Counter(ends) for name, ends in json.loads(done.stdout.splitlines()[-1]).items()}
    if done.returncode > 0:
        raise AssertionError(f"{names}, seed {number}: {done.stderr[-2000:]}")
    name, _, data = file.read_bytes().partition(b"\n")
    end = f"ended by signal {-done.returncode}, then {outcome(name.decode(), data)}"
    return {name.decode(): Counter({end: 1})}


def outcome(name: str, data: bytes) -> str:
    """How the application ends with an input. Raises whatever is no sentence."""
    try:
        parse(FORMATS[name][0], data, ReadOptions(ocr="off"))
    except DocumentError as e:
        return "refused" if "\n" not in str(e) else "refused in several lines"
    return "read"


def chosen(form: str, group: str | None, inputs: int) -> dict[str, int]:
    """How many inputs each format has, by its name: those of a group share the ``inputs`` of the group."""
    if not group:
        return dict.fromkeys(FORMATS if form == "all" else [form], inputs)
    groups = GROUPS.values() if group == "all" else [GROUPS[group]]
    return {name: inputs // len(names) for names in groups for name in names}


def measure_documents(arguments: list[str]) -> None:
    """Parses the inputs of one format, or of all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--format", choices=(*FORMATS, "all"), default="all")
    parser.add_argument("--group", choices=(*GROUPS, "all"))
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    for name, inputs in chosen(given.format, given.group, given.inputs).items():
        ends, start = Counter[str](), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            for i in range(0, inputs, BLOCK):
                ends += run_block(name, min(BLOCK, inputs - i), given.seed * 1_000_003 + i, Path(folder))[name]
        print(f"{name}: {dict(ends)}, {time.monotonic() - start:.0f} s", flush=True)


def measure_letters(arguments: list[str]) -> int:
    """Damages each text, and counts the letters that are lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=1000, help="of each text")
    parser.add_argument("--seed", type=int, default=1)
    given, worse = parser.parse_args(arguments), 0
    for name in TEXTS:
        found = letters_lost(name, given.inputs, given.seed)
        more = [(damaged, lost) for damaged, lost in found if lost > damaged]
        told = f"; worst: {max(more, key=lambda one: one[1] - one[0])}" if more else ""
        damaged, lost = map(sum, zip(*found, strict=True))
        print(f"{name}: {len(found)} inputs, {damaged} bytes damaged, {lost} letters lost, {len(more)} lost more{told}")
        worse += len(more)
    return int(worse > 0)


# --- The API


def fuzz(url: str, key: str, count: int, number: int) -> tuple[Counter[int], list[str]]:
    """Send about ``count`` requests; returns how often each status came, and what was wrong."""
    import requests
    import schemathesis
    from schemathesis.generation.modes import GenerationMode

    root, statuses, wrong = url.removesuffix("/v1"), Counter[int](), list[str]()
    session = requests.Session()
    session.trust_env = False
    session.headers["authorization"] = f"Bearer {key}"
    described = session.get(f"{root}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(described)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == OPERATIONS, len(operations)
    for i, operation in enumerate(operations):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _send(operation, mode, root, session, max(1, count // 2 // OPERATIONS), number + i, statuses, wrong)
    return statuses, wrong


def _send(operation, mode, root, session, count, number, statuses, wrong) -> None:
    from hypothesis import HealthCheck, given, seed, settings

    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case) -> None:
        if isinstance(case.body, dict):  # an answer as long as a request may ask for takes minutes
            case.body.update({name: 4 for name in SHORT if isinstance(case.body.get(name), int)})
            case.body.update({"n": 2} if isinstance(case.body.get("n"), int) and case.body["n"] > 2 else {})
            for name in ("model", "document_ids"):  # which end a request early, unless they name what is there
                case.body.pop(name, None)
        key = {"authorization": str(session.headers["authorization"])}
        response = case.call(base_url=root, session=session, headers=key, timeout=120)
        statuses[response.status_code] += 1
        if response.status_code >= 500:
            wrong.append(f"{case.method} {case.path} {response.status_code} {case.body!r:.300} {response.text[:200]}")
        elif response.status_code >= 400 and "error" not in response.json():
            wrong.append(f"{case.method} {case.path}: no error is told")

    try:
        send()
    except Exception as e:
        if type(e).__name__ not in ("Unsatisfiable", "SkipTest"):  # a path without parameters cannot be wrong
            raise


def measure_api(arguments: list[str]) -> None:
    """Print how often each status came, and what was wrong."""
    from api_servers import api_server
    from tiny_models import save_sharp_model

    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        model, begun = save_sharp_model(Path(folder) / "model", 0), time.monotonic()
        with api_server(Path(folder) / "home", model, max_tokens=4) as (url, key, _):
            statuses, wrong = fuzz(url, key, given.requests, given.seed)
    told = {"requests": statuses.total(), "seed": given.seed, "seconds": round(time.monotonic() - begun)}
    print(json.dumps({**told, "statuses": dict(sorted(statuses.items())), "wrong": wrong[:20]}, indent=2), flush=True)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    harness.run(__doc__, documents=measure_documents, letters=measure_letters, api=measure_api)
