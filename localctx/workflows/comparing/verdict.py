"""Compares the values of documents, and puts the results into sentences. Gives a verdict only if all values can be
compared.
"""

from collections.abc import Sequence
from itertools import combinations

from localctx.library.wording.quantities import Quantity, compare
from localctx.workflows.comparing.document_value import DocumentValue
from localctx.workflows.comparing.rules import ComparingQuestion, Order
from localctx.workflows.comparing.wording import Wording

_OF_DURATIONS: dict[Order, Order] = {"lower": "shorter", "higher": "longer"}  # "more notice" is longer
_LEAST = ("lower", "shorter", "earlier")


def line_of(value: DocumentValue, wording: Wording) -> str:
    """Returns the sentence with the answer of one document."""
    form = {"said": wording.said, "missing": wording.missing, "unsure": wording.unsure}[value.state]
    return form.format(name=value.name, value=value.text)


def value_of(value: DocumentValue, wording: Wording) -> str:
    """Returns the answer of one document without its name."""
    return {"said": value.text, "missing": wording.not_said, "unsure": wording.not_sure}[value.state]


def compared_values(asked: ComparingQuestion, values: Sequence[DocumentValue]) -> Sequence[DocumentValue]:
    """Returns the values that a verdict compares. If the question names fewer documents than were asked ("which of the
    two"), and so many gave a value, these are compared; else all are.
    """
    given = [value for value in values if value.state != "missing"]
    return given if asked.named and len(given) == asked.named else values


def winners(order: Order, values: Sequence[DocumentValue]) -> list[DocumentValue]:
    """Returns the documents with the value that ``order`` asks for: all of them if their values are equal.

    The result is empty if a document gives no value or several, if two values cannot be compared, or if no order is
    asked for and the values are not equal.
    """
    quantities = _quantities(values)
    if len(quantities) < len(values) or any(value.several for value in values):
        return []
    if any(compare(a, b) is None for a, b in combinations(quantities, 2)):
        return []
    worse = -1 if order in _LEAST else 1
    best = [
        v for v, q in zip(values, quantities, strict=True) if all(compare(other, q) != worse for other in quantities)
    ]
    return [] if order == "none" and len(best) < len(values) else best


def verdict_line(order: Order, values: Sequence[DocumentValue], wording: Wording) -> str:
    """Returns the sentence with the verdict, or the reason why there is none. Returns "" if a document gives no value,
    or if no order was asked for and the values differ.
    """
    best = winners(order, values)
    if len(best) == len(values):
        return wording.equal if len(values) == 2 else wording.all_equal
    if best:
        is_duration = all(quantity.kind == "duration" for quantity in _quantities(values))
        word = wording.verdicts[_OF_DURATIONS.get(order, order) if is_duration else order][len(values) > 2]
        return wording.verdict.format(word=word, names=wording.joined.join(value.name for value in best))
    if order == "none" or len(_quantities(values)) < len(values):
        return ""
    return wording.several_values if any(value.several for value in values) else wording.other_units


def _quantities(values: Sequence[DocumentValue]) -> list[Quantity]:
    return [value.quantity for value in values if value.quantity]
