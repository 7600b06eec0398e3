"""Quality results: stores which codecs passed the quality gate (``localctx quality``) on which model."""

import json
import time
from typing import Any

from sqlite_utils import Database


class QualityResults:
    """The quality results in a store, by fingerprint of model and codec. A new measurement replaces the old one."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def note(self, fingerprint: bytes, model: str, codec: str, passed: bool, report: dict[str, Any]) -> None:
        """Store whether ``codec`` passed the quality gate on ``model``, and the ``report`` of the measurement."""
        row = {"fingerprint": fingerprint, "model": model, "codec": codec, "passed": passed}
        more = {"report": json.dumps(report), "measured": time.time()}
        self._db.table("verdicts").upsert({**row, **more}, pk="fingerprint")

    def passed(self, fingerprint: bytes) -> bool | None:
        """Returns whether the codec passed, or None if it was never measured."""
        row = self._row(fingerprint)
        return bool(row["passed"]) if row else None

    def report(self, fingerprint: bytes) -> dict[str, Any] | None:
        """Returns the report stored by ``note``, or None."""
        row = self._row(fingerprint)
        return json.loads(row["report"]) if row else None

    def of_model(self, model: str) -> dict[str, dict[str, Any]]:
        """Returns the latest report of each codec on the model of this name. The key is a codec, or a codec and keeper
        such as ``int8 select:1/4``.

        Each report also has ``passed``, and ``measured``, the time of the measurement.
        """
        rows = self._db.query("SELECT * FROM verdicts WHERE model = ? ORDER BY measured", [model])
        more = ("passed", "measured")
        return {row["codec"]: {**json.loads(row["report"]), **{field: row[field] for field in more}} for row in rows}

    def _row(self, fingerprint: bytes) -> dict[str, Any] | None:
        return next(iter(self._db.query("SELECT * FROM verdicts WHERE fingerprint = ?", [fingerprint])), None)
