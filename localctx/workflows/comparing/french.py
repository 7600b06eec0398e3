"""The rules that recognize French questions that compare documents."""

import re

from localctx.workflows.comparing.rules import Found, Order, Rules, either
from localctx.workflows.comparing.subjects import Subject

_ONE = (
    r"(?:contrat|bail|document|fichier|texte|devis|offre|rapport|lettre|facture|police|accord|convention|prêt|tarif|"
    r"version)"
)
_DOC = rf"{_ONE}(?: (?:de|d['’])\s?\w+)?"  # noqa: RUF001
_DOCS = rf"(?:{_ONE}s|baux|devis)(?: (?:de|d['’])\s?\w+)?"  # noqa: RUF001
_COUNT = r"(?P<count>deux|trois|quatre|cinq|six|[2-6])"
_THEM = rf"(?:(?:des|les|ces|mes|nos) (?:{_COUNT}(?: {_DOCS})?|{_DOCS})|chaque {_DOC}|eux)"
_WHO = rf"(?:(?:lequel|laquelle|lesquels)(?: (?:de |d['’]|entre |parmi )?{_THEM})?|quel(?:le)? {_DOC})"  # noqa: RUF001
_HAS = r"(?:a|prévoit|demande|fixe|propose|indique|comporte|offre|exige|contient)"
_ARTICLE = r"(?P<article>le |la |les |l['’]|une? )"  # noqa: RUF001
_NOUN = r"(?P<noun>[^,.;:?!]{2,60}?)"
_NOUNS = r"(?P<nouns>[^.;:?!]{2,90}?)"
_IN = rf"(?: (?:de |dans |entre |d['’])?(?P<docs>{_THEM}))?"  # noqa: RUF001
_OR = r"(?: ?[,:] [^?]{1,80} ou [^?]{1,80})?"

_ORDERS: tuple[tuple[str, Order], ...] = (
    (r"plus (?:bas|basse|faible|petite?|modeste|réduite?)|moins (?:élevée?|cher|chère|haute?|grande?|importante?)|"
     r"moins(?! \w)|moindre", "lower"),
    (r"plus (?:élevée?|haute?|grande?|importante?|forte?|chère?)|plus(?! \w)|moins (?:bas|basse|faible)", "higher"),
    (r"plus (?:long(?:ue)?|longtemps)", "longer"),
    (r"plus (?:courte?|brève|bref)|moins long(?:ue)?|moins longtemps", "shorter"),
    (r"plus (?:tôt|ancienne?|précoce|proche)|en premier|avant", "earlier"),
    (r"plus (?:tard|tardive?|récente?|tardif)|en dernier|après", "later"),
)  # fmt: skip
_ADJECTIVES: tuple[tuple[str, Order, str], ...] = (
    ("moins ch(?:er|ère)", "lower", "cost"),
    ("plus ch(?:er|ère)", "higher", "cost"),
    ("plus long(?:ue)?", "longer", "term"),
    ("plus courte?", "shorter", "term"),
    ("plus ancienne?", "earlier", "date"),
    ("plus récente?", "later", "date"),
)
_VERBS = (
    ("commence|débute", "start"),
    ("finit|se termine|expire|prend fin", "end"),
    ("dure", "term"),
    ("coûte", "cost"),
)
_MORE = rf"(?P<more>{either(_ORDERS)})"


def _ask(noun: str, found: Found, subject: Subject) -> str:
    article = found.get("article", "").lower()
    if "more" not in found and (article in ("les", "des") or re.match(r"\w+s\b", noun)):
        return f"Quels sont les {noun} ?"
    if article in ("la", "une"):
        return f"Quelle est la {noun} ?"
    return f"Quel est l'{noun} ?" if article.startswith("l'") else f"Quel est le {noun} ?"


FRENCH = Rules(
    language="fr",
    by_noun=(
        rf"{_WHO} {_HAS} {_ARTICLE}{_NOUN} (?:le |la )?{_MORE}{_OR}",
        rf"{_WHO} {_HAS} (?P<article>le |la |un |une ){_MORE} {_NOUN}{_OR}",
        rf"dans {_WHO} (?:est-ce que )?{_ARTICLE}{_NOUN} est(?:-(?:il|elle))? (?:le |la )?{_MORE}{_OR}",
    ),
    by_known_noun=(
        rf"quel(?:le)? {_NOUN} est (?:le |la )?{_MORE}{_OR}",
        rf"où {_ARTICLE}{_NOUN} est(?:-(?:il|elle))? (?:le |la )?{_MORE}{_OR}",
    ),
    by_adjective=(
        rf"{_WHO} est (?:le |la )?(?P<adjective>{either(_ADJECTIVES)}){_OR}",
        rf"quel(?:le)? est (?:le |la |l['’]){_DOC} (?:le |la )?(?P<adjective>{either(_ADJECTIVES)}){_OR}",  # noqa: RUF001
    ),
    by_verb=(rf"{_WHO} (?P<verb>{either(_VERBS)}) (?:le )?{_MORE}{_OR}",),
    side_by_side=(
        rf"quelles? (?:est|sont) (?:la|les) différences? (?:entre|de|dans) (?:{_ARTICLE})?{_NOUN}{_IN}",
        rf"quel(?:le)?s? (?:est|sont) {_ARTICLE}{_NOUN} (?:de |dans |d['’])?(?P<docs>{_THEM})",  # noqa: RUF001
        rf"(?:en quoi|comment) {_ARTICLE}{_NOUN}{_IN} diff[èé]rent(?:-(?:ils|elles))?",
        rf"compare[rz]? {_ARTICLE}{_NOUNS}{_IN}",
    ),
    plain=(rf"quel(?:le)?s? (?:est|sont) {_ARTICLE}{_NOUN}",),
    orders=_ORDERS,
    adjectives=_ADJECTIVES,
    verbs=_VERBS,
    counts={"deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "six": 6},
    no_noun=rf"(?:deux )?(?:{_DOCS}|{_DOC})|.*\b(?:et|ou|que|qui|si|quand|dont)\b.*",
    ask=_ask,
)
