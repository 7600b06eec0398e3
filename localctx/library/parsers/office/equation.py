"""Writes equations of Office (OMML) as a line of text: (a+b)/2, x^2, √(x), ∑_(i=1)^n.

Mammoth and python-docx drop equations. The notation is Unicode's linear format for mathematics, which Word itself shows
and accepts.
"""

from collections.abc import Callable

from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, is_on, local

_SKIPPED = {"rPr", "ctrlPr", "del", "moveFrom"}
_OPEN = {"f", "sSup", "sSub", "sSubSup"}
_SIMPLE = 1  # longest argument that is written without parentheses beside letters and digits


def linear(element: Element) -> str:
    """Returns an equation, or a part of one, as a line of text."""
    name = local(element)
    if name in _SKIPPED or name.endswith("Pr"):
        return ""
    if name == "t":
        return element.text or ""
    if name in ("br", "cr"):
        return " "
    return _FORMS.get(name, _all)(element)


def _all(element: Element) -> str:
    """Returns the parts one after another. A space ends an exponent, index or denominator before a letter or digit."""
    text, is_open = "", False
    for one in element:
        part = linear(one)
        text += f" {part}" if is_open and part[:1].isalnum() else part
        is_open = local(one) in _OPEN if part else is_open
    return text


def _part(element: Element, name: str) -> str:
    part = child(element, name)
    return "" if part is None else _all(part).strip()


def _grouped(text: str) -> str:
    """Returns text in parentheses, unless it is one word or already in parentheses."""
    return text if len(text) <= _SIMPLE or text.isalnum() or _is_enclosed(text) else f"({text})"


def _is_enclosed(text: str) -> bool:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return letter == ")" and i == len(text) - 1
    return False


def _property(element: Element, name: str, default: str) -> str:
    found = child(element, f"{local(element)}Pr", name)
    return default if found is None else attribute(found, "val")


def _fraction(element: Element) -> str:
    sign = {"lin": "/", "skw": "/", "noBar": "¦"}.get(_property(element, "type", "bar"), "/")
    return f"{_grouped(_part(element, 'num'))}{sign}{_grouped(_part(element, 'den'))}"


def _scripts(below: str, above: str) -> str:
    return (f"_{_grouped(below)}" if below else "") + (f"^{_grouped(above)}" if above else "")


def _scripted(element: Element) -> str:
    return _grouped(_part(element, "e")) + _scripts(_part(element, "sub"), _part(element, "sup"))


def _scripted_before(element: Element) -> str:
    return _scripts(_part(element, "sub"), _part(element, "sup")) + _grouped(_part(element, "e"))


def _root(element: Element) -> str:
    degree = _part(element, "deg")
    sign = {"": "√", "2": "√", "3": "∛", "4": "∜"}.get(degree)
    return f"{sign}({_part(element, 'e')})" if sign else f"√({degree}&{_part(element, 'e')})"


def _operator(element: Element) -> str:
    sign = _property(element, "chr", "∫")
    return f"{sign}{_scripts(_part(element, 'sub'), _part(element, 'sup'))} {_part(element, 'e')}"


def _delimited(element: Element) -> str:
    inner = _property(element, "sepChr", "|").join(_all(part).strip() for part in children(element, "e"))
    return _property(element, "begChr", "(") + inner + _property(element, "endChr", ")")


def _function(element: Element) -> str:
    argument = _part(element, "e")
    return f"{_part(element, 'fName')}{argument if _is_enclosed(argument) else ' ' + argument}"


def _limit(sign: str) -> Callable[[Element], str]:
    return lambda element: f"{_part(element, 'e')}{sign}{_grouped(_part(element, 'lim'))}"


def _matrix(element: Element) -> str:
    rows = (", ".join(_all(cell).strip() for cell in children(row, "e")) for row in children(element, "mr"))
    return f"[{'; '.join(rows)}]"


def _lines(element: Element) -> str:
    return "; ".join(_all(line).strip() for line in children(element, "e"))


def _accented(element: Element) -> str:
    base, accent = _part(element, "e"), _property(element, "chr", "\u0302")
    return base + accent if len(base) == 1 else _grouped(base) + accent


def _overlined(element: Element) -> str:
    base = _part(element, "e")
    return f"{_grouped(base)}\u0305" if _property(element, "pos", "bot") == "top" else f"▁({base})"


def _phantom(element: Element) -> str:
    shown = child(element, "phantPr", "show")
    return _part(element, "e") if shown is None or is_on(shown) else ""


_FORMS: dict[str, Callable[[Element], str]] = {
    "f": _fraction,
    "sSup": _scripted,
    "sSub": _scripted,
    "sSubSup": _scripted,
    "sPre": _scripted_before,
    "rad": _root,
    "nary": _operator,
    "d": _delimited,
    "func": _function,
    "limLow": _limit("_"),
    "limUpp": _limit("^"),
    "m": _matrix,
    "eqArr": _lines,
    "acc": _accented,
    "bar": _overlined,
    "phant": _phantom,
}
