"""Measures whether any request that fits the API's description, or nearly, ends in a server error (schemathesis).

``python measure_api_fuzz.py [--requests 5000] [--seed 1]`` serves a tiny model on a free port of this machine,
sends it requests made from ``/openapi.json``, valid and invalid ones, and counts the statuses. Exit code 1: there was a
5xx, or an answer that is no JSON object where one is promised.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import requests
import schemathesis
import with_helpers  # noqa: F401
from api_servers import api_server
from hypothesis import HealthCheck, given, seed, settings
from schemathesis.generation.modes import GenerationMode
from tiny_models import save_sharp_model

OPERATIONS = 13
SHORT = {"max_tokens": 4, "max_completion_tokens": 4, "max_output_tokens": 4}


def fuzz(url: str, key: str, count: int, number: int) -> tuple[Counter[int], list[str]]:
    """Send about ``count`` requests; returns how often each status came, and what was wrong."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    given_arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, begun = save_sharp_model(Path(folder) / "model", 0), time.monotonic()
        with api_server(Path(folder) / "home", model, max_tokens=4) as (url, key, _):
            statuses, wrong = fuzz(url, key, given_arguments.requests, given_arguments.seed)
    told = {"requests": statuses.total(), "seed": given_arguments.seed, "seconds": round(time.monotonic() - begun)}
    print(json.dumps({**told, "statuses": dict(sorted(statuses.items())), "wrong": wrong[:20]}, indent=2), flush=True)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    sys.exit(main())
