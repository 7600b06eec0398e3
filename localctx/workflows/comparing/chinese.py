"""The rules that recognize Chinese questions that compare documents."""

# ruff: noqa: RUF001

from localctx.workflows.comparing.rules import Found, Order, Rules, either
from localctx.workflows.comparing.subjects import Subject

_DOC = r"(?:租约|租赁合同|租房合同|合同|协议|文件|文档|文本|报价单?|报告|信|发票|保单|方案|版本|贷款)"
_PIECE = r"[份个張张种種封家]"
_COUNT = r"(?P<count>两|兩|二|三|四|五|六|[2-6])"
_THEM = rf"(?P<docs>(?:这|這|那)?{_COUNT}{_PIECE}{_DOC}?|(?:这|那)些{_DOC}|它们|各{_PIECE}?{_DOC})"
_AMONG = rf"(?:在?{_THEM}(?:当中|之中|里面|之间|中|里)?的?[，,]? ?)?"
_WHICH = rf"{_AMONG}哪(?:一)?(?:{_PIECE}{_DOC}|[份张封])"
_NOUN = r"(?P<noun>[^，。？！,.?!的]{2,12}?)"
_NOUNS = r"(?P<nouns>[^，。？！,.?!的]{2,30}?)"
_VERY = r"(?:更|比较|比較|较|較|最|要)?"

_ORDERS: tuple[tuple[str, Order], ...] = (
    ("低|便宜|少|小", "lower"),
    ("高|贵|貴|多|大", "higher"),
    ("长|長|久", "longer"),
    ("短", "shorter"),
    ("早|先", "earlier"),
    ("晚|迟|遲|后|後", "later"),
)
_ADJECTIVES: tuple[tuple[str, Order, str], ...] = (
    ("便宜", "lower", "cost"),
    ("贵|貴", "higher", "cost"),
    ("旧|舊|早", "earlier", "date"),
    ("新|晚", "later", "date"),
)
_VERBS = (
    ("开始|生效|起租", "start"),
    ("到期|结束|終止|终止", "end"),
    ("签署|签订", "date"),
)
_MORE = rf"(?P<more>{either(_ORDERS)})"
_WAYS = {"date": "是什么时候", "duration": "是多长", "money": "是多少", "number": "是多少"}


def _ask(noun: str, found: Found, subject: Subject) -> str:
    return f"{noun}{_WAYS.get(subject.kind or '', '是什么')}？"


CHINESE = Rules(
    language="zh",
    by_noun=(rf"{_WHICH}的?{_NOUN}{_VERY}{_MORE}(?:一些|一点)?呢?", rf"{_WHICH}(?:有|的)?{_VERY}{_MORE}的{_NOUN}"),
    by_known_noun=(rf"{_AMONG}(?:哪个|哪份|谁的){_NOUN}{_VERY}{_MORE}",),
    by_adjective=(rf"{_WHICH}{_VERY}(?P<adjective>{either(_ADJECTIVES)})(?:一些|一点)?呢?",),
    by_verb=(
        rf"{_WHICH}{_VERY}{_MORE}(?P<verb>{either(_VERBS)})",
        rf"{_WHICH}(?P<verb>{either(_VERBS)})得?{_VERY}{_MORE}",
    ),
    side_by_side=(
        rf"{_THEM}的?{_NOUN}(?:之间)?(?:有什么|有何|有哪些)(?:区别|不同|差别|差异)",
        rf"{_THEM}的?{_NOUN}(?:相差|差|各是|分别是|各为|分别为)多少",
        rf"(?:请)?(?:比较|对比)(?:一下)?(?:{_THEM}的?)?{_NOUNS}",
    ),
    plain=(rf"{_NOUN}(?:是|有|为)?(?:多少|多长|多久|什么时候)",),
    orders=_ORDERS,
    adjectives=_ADJECTIVES,
    verbs=_VERBS,
    counts={"两": 2, "兩": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6},
    no_noun=rf".*{_DOC}|.*[和与或跟].*|.*(?:更|最|较)",
    ask=_ask,
)
