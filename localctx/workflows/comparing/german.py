"""The rules that recognize German questions that compare documents."""

from localctx.workflows.comparing.rules import Found, Order, Rules, either
from localctx.workflows.comparing.subjects import Subject

_DOC = (
    r"\w*(?:vertrag|vertrags|angebot|dokument|datei|text|bericht|brief|rechnung|police|vereinbarung|kostenvoranschlag|"
    r"darlehen|tarif|plan|fassung|version|unterlage|bescheid)"
)
_DOCS = (
    r"\w*(?:verträgen?|angeboten?|dokumenten?|dateien|texten?|berichten?|briefen?|rechnungen|policen|vereinbarungen|"
    r"kostenvoranschlägen?|darlehen|tarifen?|plänen?|fassungen|versionen|unterlagen|bescheiden?)"
)
_COUNT = r"(?P<count>beiden?|zwei|zweien|drei|vier|fünf|sechs|[2-6])"
_THEM = (
    rf"(?:(?:der|den|die|dieser|diesen|meiner|meinen) (?:{_COUNT}(?: {_DOCS})?|{_DOCS})|beide[rn]?(?: {_DOCS})?|"
    rf"ihnen|allen {_DOCS})"
)
_WHO = rf"welche[rsmn]?(?: (?:von |unter )?{_THEM}| {_DOC})?"
_HAS = r"(?:hat|haben|verlangt|fordert|nennt|enthält|bietet|setzt|sieht|gewährt|weist)"
_END = r"(?:e|en|er|es|em)?"
_NOUN = r"(?P<noun>[^,.;:?!]{2,60}?)"
_NOUNS = r"(?P<nouns>[^.;:?!]{2,90}?)"
_IN = rf"(?: (?:(?:in|von|bei|zwischen|aus) )?(?P<docs>{_THEM}))?"
_OR = r"(?:[,:] [^?]{1,80} oder [^?]{1,80})?"

_ORDERS: tuple[tuple[str, Order], ...] = (
    ("(?:niedriger|niedrigst|geringer|geringst|kleiner|kleinst|tiefer|tiefst|günstiger|günstigst|billiger|billigst|weniger|"
     "wenigst)", "lower"),
    ("(?:höher|höchst|größer|größt|teurer|teuerst|mehr|meist)", "higher"),
    ("(?:länger|längst)", "longer"),
    ("(?:kürzer|kürzest)", "shorter"),
    ("(?:früher|frühest|eher|zuerst)", "earlier"),
    ("(?:später|spätest|zuletzt)", "later"),
)  # fmt: skip
_ADJECTIVES: tuple[tuple[str, Order, str], ...] = (
    ("günstiger|billiger|preiswerter|am (?:günstigsten|billigsten)", "lower", "cost"),
    ("teurer|am teuersten", "higher", "cost"),
    ("länger|am längsten", "longer", "term"),
    ("kürzer|am kürzesten", "shorter", "term"),
    ("älter|früher|am ältesten", "earlier", "date"),
    ("neuer|jünger|später|am neuesten|am jüngsten", "later", "date"),
)
_VERBS = (
    ("beginnt|fängt|startet", "start"),
    ("endet", "end"),
    ("wurde", "date"),
    ("läuft|gilt|dauert", "term"),
    ("kostet", "cost"),
    ("zahlt", "salary"),
)
_WHAT = "(?:was|wie hoch|wie lang|wie)"
_AFTER = " an| aus| ab| unterzeichnet| unterschrieben"
_MORE = rf"(?P<more>{either(_ORDERS)})"
_ARTICLES = {"den": "der", "einen": "der", "eine": "die", "ein": "das", "der": "die", "dem": "der"}
_WAYS = {"money": "Wie hoch", "duration": "Wie lang", "number": "Wie hoch"}


def _ask(noun: str, found: Found, subject: Subject) -> str:
    """Returns the plain question about a noun. The article is in the nominative; noun and verb are in the plural if no
    order is asked for.
    """
    written = found.get("article", "").lower()
    article = _ARTICLES.get(written, written) if "more" in found else "die"
    way = _WAYS.get(subject.kind or "", "Was")
    if "more" in found and not article:
        return f"Wie viele {noun} gibt es?"
    return f"{way} {'ist' if 'more' in found else 'sind'} {article} {noun}?"


GERMAN = Rules(
    language="de",
    by_noun=(
        rf"{_WHO} {_HAS} (?:(?P<article>die|den|das|eine|einen|ein) )?{_MORE}{_END} {_NOUN}(?: vor| fest| auf)?{_OR}",
        rf"(?:in|bei|nach|laut|gemäß) {_WHO} (?:ist|sind) (?P<article>die|der|das) {_NOUN} (?:am )?{_MORE}(?:en)?{_OR}",
    ),
    by_known_noun=(
        rf"welche[rsn]? {_NOUN} ist (?:am )?{_MORE}(?:en)?{_OR}",
        rf"wo ist (?:die|der|das) {_NOUN} (?:am )?{_MORE}(?:en)?{_OR}",
    ),
    by_adjective=(rf"{_WHO} (?:ist|war) (?:der |die |das )?(?P<adjective>{either(_ADJECTIVES)})(?:e|{_DOC})?{_OR}",),
    by_verb=(rf"{_WHO} (?P<verb>{either(_VERBS)}) (?:am )?{_MORE}(?:en)?(?:{_AFTER})?{_OR}",),
    side_by_side=(
        rf"(?:was|worin|wo|wie (?:groß|hoch)) (?:ist|liegt) der unterschied (?:zwischen|bei|in) (?:den|der) "
        rf"{_NOUN}{_IN}",
        rf"{_WHAT} (?:sind|ist|lauten) (?:die|der|das) {_NOUN} (?:in|von|bei) (?P<docs>{_THEM})",
        rf"{_WHAT} (?:sind|lauten) die {_NOUN} (?P<docs>{_THEM})",
        rf"(?:wie|worin|um wie ?viel) unterscheide[nt] sich (?:die|das|der) {_NOUN}{_IN}",
        rf"(?:bitte )?vergleiche?(?:n sie)?(?: bitte)? (?:die|den|das|alle) {_NOUNS}{_IN}",
    ),
    plain=(rf"{_WHAT} (?:ist|sind|lautet|lauten) (?:die|der|das) {_NOUN}",),
    orders=_ORDERS,
    adjectives=_ADJECTIVES,
    verbs=_VERBS,
    counts={"beide": 2, "beiden": 2, "zwei": 2, "zweien": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6},
    no_noun=(
        rf"(?:beiden? |zwei )?(?:{_DOCS}|{_DOC})|"
        r".*\b(?:und|oder|als|wenn|wer|die|der|das|den)\b.*"
    ),
    ask=_ask,
)  # fmt: skip
