"""The rules that recognize Spanish questions that compare documents."""

from localctx.workflows.comparing.rules import Found, Order, Rules, either
from localctx.workflows.comparing.subjects import Subject

_ONE = (
    r"(?:contrato|documento|archivo|texto|presupuesto|oferta|informe|carta|factura|póliza|acuerdo|préstamo|tarifa|"
    r"versión|versione)"
)
_DOC, _DOCS = rf"{_ONE}(?: de \w+)?", rf"{_ONE}s(?: de \w+)?"
_COUNT = r"(?P<count>dos|tres|cuatro|cinco|seis|[2-6])"
_THEM = (
    rf"(?:(?:los|las|estos|estas|mis|ambos|ambas) (?:{_COUNT}(?: {_DOCS})?|{_DOCS})|ellos|ellas|ambos|ambas|"
    rf"cada {_DOC})"
)
_WHO = rf"(?:cu[áa]l(?:es)?(?: de {_THEM}| {_DOC})?|qu[ée] {_DOC})"
_HAS = r"(?:tiene|prevé|fija|exige|establece|ofrece|pide|indica|contiene)"
_ARTICLE = r"(?P<article>el|la|los|las|una?) "
_NOUN = r"(?P<noun>[^,.;:?!]{2,60}?)"
_NOUNS = r"(?P<nouns>[^.;:?!]{2,90}?)"
_IN = rf"(?: (?:de|en|entre) (?P<docs>{_THEM}))?"
_OR = r"(?:[,:] [^?]{1,80} o [^?]{1,80})?"

_ORDERS: tuple[tuple[str, Order], ...] = (
    (
        r"más (?:baj[oa]|pequeñ[oa]|barat[oa]|reducid[oa])|menos (?:elevad[oa]|alt[oa]|car[oa])|menor|menos(?! \w)",
        "lower",
    ),
    (r"más (?:alt[oa]|elevad[oa]|grande|car[oa])|mayor|más(?! \w)", "higher"),
    (r"más (?:larg[oa]|tiempo)", "longer"),
    (r"más (?:cort[oa]|breve)|menos tiempo", "shorter"),
    (r"más (?:tempran[oa]|temprano|pronto|antigu[oa])|antes|primero", "earlier"),
    (r"más (?:tardí[oa]|tarde|reciente)|después|último", "later"),
)
_ADJECTIVES: tuple[tuple[str, Order, str], ...] = (
    ("más (?:barat|económic)[oa]|menos car[oa]", "lower", "cost"),
    ("más car[oa]", "higher", "cost"),
    ("más larg[oa]", "longer", "term"),
    ("más cort[oa]", "shorter", "term"),
    ("más antigu[oa]", "earlier", "date"),
    ("más (?:reciente|nuev[oa])", "later", "date"),
)
_VERBS = (
    ("empieza|comienza", "start"),
    ("termina|acaba|vence|finaliza|expira", "end"),
    ("dura", "term"),
    ("cuesta", "cost"),
)
_MORE = rf"(?P<more>{either(_ORDERS)})"


def _ask(noun: str, found: Found, subject: Subject) -> str:
    article = found.get("article", "").lower()
    if article in ("los", "las"):
        return f"¿Cuáles son {article} {noun}?"
    return f"¿Cuál es {'la' if article in ('la', 'una') else 'el'} {noun}?"


SPANISH = Rules(
    language="es",
    by_noun=(
        rf"{_WHO} {_HAS} {_ARTICLE}{_NOUN} {_MORE}{_OR}",
        rf"{_WHO} {_HAS} {_ARTICLE}{_MORE} {_NOUN}{_OR}",
        rf"en {_WHO} (?:es|está) {_MORE} {_ARTICLE}{_NOUN}{_OR}",
        rf"en {_WHO} {_ARTICLE}{_NOUN} es {_MORE}{_OR}",
    ),
    by_known_noun=(
        rf"qué {_NOUN} es (?:el |la )?{_MORE}{_OR}",
        rf"dónde es {_MORE} {_ARTICLE}{_NOUN}{_OR}",
    ),
    by_adjective=(
        rf"{_WHO} es (?:el |la )?(?P<adjective>{either(_ADJECTIVES)}){_OR}",
        rf"cuál es (?:el |la ){_DOC} (?P<adjective>{either(_ADJECTIVES)}){_OR}",
    ),
    by_verb=(rf"{_WHO} (?P<verb>{either(_VERBS)}) {_MORE}{_OR}",),
    side_by_side=(
        rf"cuál(?:es)? (?:es|son) (?:la|las) diferencias? (?:entre|de|en) {_ARTICLE}{_NOUN}{_IN}",
        rf"cuál(?:es)? (?:es|son) {_ARTICLE}{_NOUN} (?:de|en) (?P<docs>{_THEM})",
        rf"en qué se diferencian? {_ARTICLE}{_NOUN}{_IN}",
        rf"(?:compara|compare|comparar) {_ARTICLE}{_NOUNS}{_IN}",
    ),
    plain=(rf"cuál(?:es)? (?:es|son) {_ARTICLE}{_NOUN}",),
    orders=_ORDERS,
    adjectives=_ADJECTIVES,
    verbs=_VERBS,
    counts={"dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6},
    no_noun=rf"(?:dos )?(?:{_DOCS}|{_DOC})|.*\b(?:y|o|que|quien|si|cuando)\b.*",
    ask=_ask,
)
