"""Reads from the store how fast models ran on this machine."""

from localctx.models.choice.model_estimate import MeasuredSpeed
from localctx.store.caches import ANSWER_RATE
from localctx.store.store import Store


def measured_speeds(store: Store) -> dict[str, MeasuredSpeed]:
    """Returns the last measured speed, by model name, of each model whose pages are still stored."""
    reading, answering = store.caches.rates_of_models(), store.caches.rates_of_models(ANSWER_RATE)
    return {name: MeasuredSpeed(reading.get(name, 0), answering.get(name, 0)) for name in {**reading, **answering}}
