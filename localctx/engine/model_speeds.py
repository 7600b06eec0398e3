"""The speeds at which models have run on this machine, as the store has them."""

from localctx.models.choice.model_estimate import MeasuredSpeed
from localctx.store.caches import ANSWER_RATE
from localctx.store.store import Store


def measured_speeds(store: Store) -> dict[str, MeasuredSpeed]:
    """Returns the speed, as last measured, of each model that has read documents which are still kept, by its name."""
    reading, answering = store.caches.rates_of_models(), store.caches.rates_of_models(ANSWER_RATE)
    return {name: MeasuredSpeed(reading.get(name, 0), answering.get(name, 0)) for name in {**reading, **answering}}
