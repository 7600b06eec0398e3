"""Counts requests and tokens of an API server, and writes the counts in Prometheus' text format."""

from collections import Counter

from localctx.engine.events import Planned
from localctx.serving.worker import EngineWorker

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP = {
    "requests_total": ("counter", "Requests by path and status."),
    "prompt_tokens_read_total": ("counter", "Tokens of prompts that were prefilled."),
    "prompt_tokens_reused_total": ("counter", "Tokens of prompts whose KV pages were there."),
    "tokens_generated_total": ("counter", "Tokens generated."),
    "jobs_queued": ("gauge", "Jobs that wait."),
    "jobs_running": ("gauge", "Jobs that run."),
    "kv_pages": ("gauge", "KV pages by tier."),
    "kv_bytes": ("gauge", "Bytes of KV by tier; kept: mapped pages of the store."),
    "retained_pages": ("gauge", "KV pages of earlier prompts that are retained in memory."),
    "retained_bytes": ("gauge", "Their bytes."),
}


class ApiMetrics:
    """Counts the requests and tokens of a server. The numbers of running and waiting jobs are read from ``worker`` when
    the counts are written.
    """

    def __init__(self, worker: EngineWorker) -> None:
        self._worker, self._counts = worker, Counter[str]()

    def request(self, path: str, status: int) -> None:
        """Count a request to ``path`` that ended with the HTTP ``status``."""
        self._counts[f'requests_total{{path="{path}",status="{status}"}}'] += 1

    def answered(self, plan: Planned | None, generated: int) -> None:
        """Count the tokens of a request: the prompt tokens of its ``plan``, and ``generated`` new tokens. Count nothing
        if the request ended before it was planned (``plan`` None).
        """
        if plan:
            self._counts["prompt_tokens_read_total"] += plan.tokens - plan.reused
            self._counts["prompt_tokens_reused_total"] += plan.reused
            self._counts["tokens_generated_total"] += generated

    def text(self) -> str:
        """Returns all counts in Prometheus' text format."""
        values: dict[str, float] = {
            name: 0 for name, (kind, _) in _HELP.items() if kind == "counter" and name[0] != "r"
        }
        values |= self._counts
        values["jobs_queued"], values["jobs_running"] = self._worker.load
        pools = self._worker.pools
        if pools:
            values["retained_pages"], values["retained_bytes"] = len(pools.retained), pools.retained.nbytes
            values |= {f'kv_pages{{tier="{tier}"}}': count for tier, count in pools.page_counts.items()}
            values |= {f'kv_bytes{{tier="{tier}"}}': n for tier, n in self._worker.in_use.kv.items()}
        lines = []
        for name, (kind, about) in _HELP.items():
            own = sorted((key, n) for key, n in values.items() if key.partition("{")[0] == name)
            if own:
                lines += [f"# HELP localctx_{name} {about}", f"# TYPE localctx_{name} {kind}"]
                lines += [f"localctx_{key} {n}" for key, n in own]
        return "\n".join(lines) + "\n"
