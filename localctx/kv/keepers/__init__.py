"""Keepers, the eviction policies. Each keeper is one module with the constant ``KEEPER``, by which it is found. Keepers
do not import the cache.

The setting ``keep`` names a keeper as ``NAME[:BUDGET]``. See docs/add-a-keeper.md.
"""

from importlib import import_module
from pkgutil import iter_modules

from localctx.errors import UsageError
from localctx.kv.keepers.keeper import Keeper, parse_budget


def _find_keepers() -> dict[str, type[Keeper]]:
    """Returns the keeper classes by their names, ``full`` first: the constant KEEPER of each module of this package."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    keepers = [module.KEEPER for module in modules if hasattr(module, "KEEPER")]
    return {keeper().name: keeper for keeper in sorted(keepers, key=lambda keeper: keeper().name != "full")}


KEEPERS = _find_keepers()


def make_keeper(spec: str, tokens: int) -> Keeper:
    """Returns the keeper (eviction policy) that ``spec``, ``NAME[:BUDGET]``, names for a prompt of ``tokens`` tokens.
    BUDGET is a number of tokens (2048) or a share of the prompt (1/4). Raises UsageError.
    """
    name, _, budget = spec.partition(":")
    if name not in KEEPERS:
        raise UsageError(f"there is no keeper {name!r}", f"use one of: {', '.join(KEEPERS)}")
    try:
        return KEEPERS[name].from_budget(parse_budget(spec, budget) if budget else None, tokens)
    except ValueError as e:
        raise UsageError(f"{spec!r}: {e}", f"use --keep {name}") from e
