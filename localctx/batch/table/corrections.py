"""Stores values that a person set in place of answers. They stay with the document's text."""

from localctx.batch.table.columns import TableColumn
from localctx.store.batch_results import part_of
from localctx.store.store import Store

_RECIPE = "correction"


def correct(store: Store, document: str, column: TableColumn, value: str) -> None:
    """Set the value of a column for a stored document (an id). Raises StoreError."""
    with store.db.atomic():
        store.results.put(document, part_of(_RECIPE, column.name), {"shown": value})


def corrections_of(store: Store, document: str) -> dict[str, str]:
    """Returns the values set for a document, by the names of their columns."""
    return {name: result["shown"] for name, result in store.results.parts(document, _RECIPE).items()}
