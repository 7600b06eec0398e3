"""full: evicts nothing, so attention sees everything."""

from dataclasses import dataclass

from localctx.kv.keepers.keeper import Keeper


@dataclass(frozen=True, kw_only=True)
class Full(Keeper):
    """Evicts nothing. Every query sees every page."""

    name: str = "full"


KEEPER = Full
