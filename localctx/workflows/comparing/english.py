"""The rules that recognize English questions that compare documents."""

from localctx.workflows.comparing.rules import Found, Order, Rules, either
from localctx.workflows.comparing.subjects import Subject, named_subject

_ONE = (
    r"(?:lease|contract|agreement|document|file|text|paper|offer|quote|quotation|bid|proposal|tender|report|letter|"
    r"invoice|bill|loan|plan|version|deal|tariff|subscription|statement|order|certificate|pdf|manual|article|"
    r"flat|apartment|landlord|bank|company|supplier|provider|insurer|employer|job)"
)
_DOC, _DOCS = rf"(?:[\w-]+ )?(?:{_ONE}|policy)", rf"(?:[\w-]+ )?(?:{_ONE}s|policies)"
_THE = r"(?:the|these|those|my|our|your)"


def _them(count: str) -> str:
    return (
        rf"(?:{_THE} (?P<{count}>two|three|four|five|six|[2-6]|both)(?: {_DOCS})?|(?:both |all )?{_THE} {_DOCS}|"
        rf"(?:both|all) {_DOCS}|both|them|these|those|each(?: {_DOC})?)"
    )


_THEM = _them("count")
_WHO = (
    rf"(?:(?:please )?(?:tell me|say) )?(?:which(?: one)?(?: of {_THEM}| {_DOC})?|"
    rf"(?:of|between|among) {_them('count_before')},? which(?: one)?)"
)
_HAS = (
    r"(?:has|have|had|asks for|demands|charges|offers|gives|sets|states|names|requires|provides(?: for)?|allows|"
    r"comes with|specifies|contains|includes|shows|mentions|quotes|wants)(?: the| an?)?"
)
_NOUN = r"(?P<noun>[^,.;:?!]{2,60}?)"
_NOUNS = r"(?P<nouns>[^.;:?!]{2,90}?)"
_IN = rf"(?: (?:of|in|between|for|across|from|under) (?P<docs>{_THEM}))?"
_OR = r"(?: (?:per|a|each) (?:month|year|week))?(?:[,:] [^?]{1,80} or [^?]{1,80})?"

_ORDERS: tuple[tuple[str, Order], ...] = (
    ("lower|lowest|smaller|smallest|cheaper|cheapest|less|least|fewer|fewest", "lower"),
    ("higher|highest|larger|largest|bigger|biggest|greater|greatest|more|most", "higher"),
    ("longer|longest", "longer"),
    ("shorter|shortest", "shorter"),
    ("earlier|earliest|first|sooner|soonest", "earlier"),
    ("later|latest|last", "later"),
)
_ADJECTIVES: tuple[tuple[str, Order, str], ...] = (
    ("cheaper|cheapest|less expensive|least expensive", "lower", "cost"),
    ("dearer|dearest|more expensive|most expensive|costlier", "higher", "cost"),
    ("longer|longest", "longer", "term"),
    ("shorter|shortest", "shorter", "term"),
    ("older|oldest|earlier|earliest", "earlier", "date"),
    ("newer|newest|more recent|most recent|later|latest", "later", "date"),
)
_VERBS = (
    ("starts?|begins?|commences?", "start"),
    ("ends?|expires?|finishes|runs? out|terminates?", "end"),
    ("(?:was|is) (?:signed|dated|concluded|made|written)", "date"),
    ("lasts?|runs?(?: for)?|is valid(?: for)?", "term"),
    ("costs?", "cost"),
    ("pays?", "salary"),
)
_MORE = rf"(?P<more>{either(_ORDERS)})"


def _ask(noun: str, found: Found, subject: Subject) -> str:
    if found.get("more") in ("more", "most", "less", "least", "fewer", "fewest") and not named_subject(noun):
        return f"How many {noun} are there?" if noun.endswith("s") else f"How much {noun} is there?"
    if "time" in noun.split() and named_subject(noun):  # which time that is, only the subject's own question says
        return subject.plain["en"]
    head = noun.partition(" of ")[0]
    several = head.endswith("s") and not head.endswith(("ss", "us", "is"))
    return f"What {'are' if several else 'is'} the {noun}?"


ENGLISH = Rules(
    language="en",
    by_noun=(
        rf"{_WHO} {_HAS} {_MORE} {_NOUN}{_OR}",
        rf"(?:in|under|for|with|by|at) {_WHO} (?:is|are|was) (?:the |my |our )?{_NOUN} (?:the )?{_MORE}{_OR}",
        rf"which {_DOC}['’]s {_NOUN} is (?:the )?{_MORE}{_OR}",  # noqa: RUF001
    ),
    by_known_noun=(
        rf"which {_NOUN} is (?:the )?{_MORE}{_OR}",
        rf"where is (?:the )?{_NOUN} (?:the )?{_MORE}{_OR}",
    ),
    by_adjective=(
        rf"which(?: one| {_DOC})? (?:is|was) the (?P<adjective>{either(_ADJECTIVES)})(?: one| {_DOC})? of {_THEM}",
        rf"{_WHO} (?:is|was|are|would be) (?:the )?(?P<adjective>{either(_ADJECTIVES)})(?: one| {_DOC})?{_OR}",
    ),
    by_verb=(rf"{_WHO} (?P<verb>{either(_VERBS)})(?: the| for)? {_MORE}{_OR}",),
    side_by_side=(
        rf"(?:what(?: is|'s|’s| are) )(?:the )?differences? (?:between|in) (?:(?:the|their) )?{_NOUN}{_IN}",  # noqa: RUF001
        rf"(?:what|how (?:high|long|much|large|big)) (?:is|are) the {_NOUN} (?:of|in|for|under) (?P<docs>{_THEM})",
        rf"how do(?:es)? (?:the )?{_NOUN}{_IN} differ",
        rf"how do(?:es)? (?P<docs>{_THEM}) differ in (?:the |their )?{_NOUN}",
        rf"by how much do(?:es)? (?:the )?{_NOUN}{_IN} differ",
        rf"(?:please )?compare (?:the |their |all )?{_NOUNS}{_IN}",
        rf"(?:please )?(?:make|create|show|give)(?: me| us)? a table (?:of|with|for) (?:the |their )?{_NOUNS}{_IN}",
        rf"(?:please )?compare (?P<docs>{_THEM}) (?:on|by|in|for|regarding|in terms of) (?:the |their )?{_NOUNS}",
    ),
    plain=(rf"(?:what|how (?:high|long|much|large|big)) (?:is|are) the {_NOUN}",),
    orders=_ORDERS,
    adjectives=_ADJECTIVES,
    verbs=_VERBS,
    counts={"two": 2, "both": 2, "three": 3, "four": 4, "five": 5, "six": 6},
    no_noun=(
        rf"(?:two |three |both )?(?:{_DOCS}|{_DOC})|it|this|that|(?:all|each|both)(?: of)?(?: (?:them|these|those))?|"
        r".*\b(?:and|or|than|if|when|who|whom|which|that|where|while|because)\b.*"
    ),
    ask=_ask,
)
