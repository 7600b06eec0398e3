"""Plans the memory of a model for the engine that runs it."""

from collections.abc import Callable
from pathlib import Path

from localctx.engine.planning.capacity import Capacity, capacity
from localctx.engine.planning.llama_capacity import llama_capacity
from localctx.models.choice.default_model import choose_model
from localctx.models.choice.engine_choice import choose_engine
from localctx.settings import Settings


def plan_memory(
    settings: Settings,
    config: Path | None = None,
    context: int | None = None,
    device_memory: int | None = None,
    passed: Callable[[str], bool | None] = lambda codec: None,
) -> Capacity:
    """Call ``llama_capacity`` for a GGUF that llama.cpp runs, else ``capacity``. Raises UserError."""
    settings = settings if config else choose_model(settings)
    if config is None and choose_engine(settings.model, settings.engine) == "llama.cpp":
        return llama_capacity(settings, context, device_memory)
    return capacity(settings, config, context, device_memory, passed)
