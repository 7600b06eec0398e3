"""Computes confidence: the probability that the text answers a question, by logistic regression over likelihoods.

The regression was fitted to questions that the text did or did not answer (Platt scaling).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from localctx.models.adapter import Adapter
from localctx.models.adapter_folders import READER, damaged

CONFIDENCE = "confidence"
"""Key of the calibrations among an adapter's measured values: one for each decoding."""


@dataclass(frozen=True)
class Evidence:
    """Log-likelihoods, in nats, that a model computed for one answer and its question. The confidence is computed from
    them.

    ``answer`` is the log-likelihood of the answer with its end token; ``tokens`` is the number of tokens of the answer.
    ``not_said`` is the log-likelihood of the reply that the text does not answer the question. ``gain`` says by how
    much the text raises the log-likelihood of the question. The question has ``question_tokens`` tokens.
    """

    answer: float
    tokens: int
    not_said: float
    gain: float
    question_tokens: int

    def of_answer(self, likelihood: float, tokens: int) -> "Evidence":
        """Returns a copy for another answer to the same question: ``answer`` becomes ``likelihood`` (a log-likelihood
        in nats), and ``tokens`` is replaced. The other fields stay.
        """
        return replace(self, answer=likelihood, tokens=tokens)

    @property
    def features(self) -> tuple[float, ...]:
        """The inputs of the regression. Each is clamped to a fixed range, so that no unusual text decides alone."""
        per_token = self.answer / max(1, self.tokens)
        gain_per_token = self.gain / max(1, self.question_tokens)
        bounded = (
            (self.answer - self.not_said, -30.0, 30.0),
            (self.answer, -40.0, 0.0),
            (per_token, -8.0, 0.0),
            (self.not_said, -40.0, 0.0),
            (self.gain, -10.0, 60.0),
            (gain_per_token, -1.0, 6.0),
        )
        return tuple(min(high, max(low, value)) for value, low, high in bounded)


@dataclass(frozen=True)
class Calibration:
    """A fitted logistic regression that gives the probability that the text answers the question: ``weights`` of the
    features and a ``bias``. An answer with a probability below ``threshold`` is withheld.

    ``reconsider`` applies if the model would reply that the text does not answer the question. If the regression gives
    a probability of ``reconsider`` or more, this reply is forbidden, and the model gives another one.
    """

    weights: tuple[float, ...]
    bias: float
    threshold: float
    reconsider: float = 1.0

    def confidence(self, evidence: Evidence) -> float:
        """Returns the probability that the text answers the question."""
        score = self.bias + sum(w * x for w, x in zip(self.weights, evidence.features, strict=True))
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, score))))

    def to_json(self) -> dict[str, Any]:
        """Returns the calibration as JSON, as it is stored with an adapter."""
        rounded = [round(weight, 5) for weight in self.weights]
        thresholds = {"threshold": round(self.threshold, 4), "reconsider": round(self.reconsider, 4)}
        return {"weights": rounded, "bias": round(self.bias, 5), **thresholds}


def calibrations(adapter: Adapter) -> dict[str, Calibration]:
    """Returns the calibrations stored with ``adapter``, by the kind of decoding (``free`` or ``quote``). A calibration
    that was fitted to another number of features is left out. Raises ModelError for a damaged one.
    """
    stored = adapter.measured.get(CONFIDENCE, {})
    try:
        read = {decoding: calibration_from_json(value) for decoding, value in stored.items()}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as e:
        raise damaged(adapter.name, f"{CONFIDENCE} in {READER} lacks weights, a bias or a threshold") from e
    return {decoding: calibration for decoding, calibration in read.items() if calibration}


def calibration_from_json(stored: Mapping[str, Any]) -> Calibration | None:
    """Returns the calibration that ``stored`` describes as JSON; None if it was fitted to another number of features.
    Raises KeyError, OverflowError, TypeError or ValueError if it is damaged.
    """
    weights, bias, threshold = [_number(weight) for weight in stored["weights"]], stored["bias"], stored["threshold"]
    reconsider = _number(stored.get("reconsider", 1.0))
    calibration = Calibration(tuple(weights), _number(bias), _number(threshold), reconsider)
    if not (0 <= calibration.threshold <= 1 and 0 <= calibration.reconsider <= 1):
        raise ValueError("a threshold is not a probability")
    return calibration if len(weights) == len(Evidence(0, 0, 0, 0, 0).features) else None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError("it is not a finite number")
    return float(value)
