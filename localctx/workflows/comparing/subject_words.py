"""The words of known subjects in five languages, and the plain question about each of them."""

# ruff: noqa: RUF001

from collections.abc import Mapping
from dataclasses import dataclass

from localctx.library.wording.quantities import QuantityKind


@dataclass(frozen=True)
class SubjectWords:
    """The words for a known subject, as patterns: ``nouns`` are its names in questions, and ``further`` words also
    occur in documents about it.

    ``kind`` is the kind of the subject's values, such as money. ``plain`` is the question that asks one document about
    the subject, by language.
    """

    kind: QuantityKind
    nouns: str
    further: str
    plain: Mapping[str, str]


def _plain(en: str, de: str, fr: str, es: str, zh: str) -> dict[str, str]:
    return {"en": en, "de": de, "fr": fr, "es": es, "zh": zh}


_RENT = (
    r"rents?|rental|\w*miet(?:e|en|zins|preis)|loyers?|alquiler(?:es)?|arriendos?|rentas?|租金|房租|月租"
)  # fmt: skip
_FEE = (
    r"fees?|remunerations?|charges?|Gebühr(?:en)?|Honorare?|Vergütung(?:en)?|Entgelte?|frais|honoraires?|"
    r"rémunérations?|honorarios|tarifas?|retribución|报酬|费用|服务费"
)
_COST = (
    r"prices?|costs?|charges?|amounts?|premiums?|totals?|\w*preise?n?|Kosten|Betrag|Beitrag|Prämien?|prix|coûts?|"
    r"coûte|montants?|tarifs?|primes?|precios?|costes?|costos?|cuesta|importes?|tarifas?|primas?|cuotas?|"
    r"价格|价款|金额|总价|保费|费用"
)

SUBJECT_WORDS = {
    "rent": SubjectWords(
        "money",
        _RENT,
        "",
        _plain(
            "What is the rent?", "Wie hoch ist die Miete?", "Quel est le loyer ?", "¿Cuál es la renta?", "租金是多少？"
        ),
    ),
    "fee": SubjectWords(
        "money",
        _FEE,
        "",
        _plain(
            "What is the fee?",
            "Wie hoch ist die Vergütung?",
            "Quelle est la rémunération ?",
            "¿Cuáles son los honorarios?",
            "费用是多少？",
        ),
    ),
    "price": SubjectWords(
        "money",
        _COST,
        _FEE,
        _plain(
            "What is the price?",
            "Wie hoch ist der Preis?",
            "Quel est le prix ?",
            "¿Cuál es el precio?",
            "价格是多少？",
        ),
    ),
    "cost": SubjectWords(
        "money",
        r"(?:total )?costs?|Gesamtkosten",
        f"{_COST}|{_RENT}|{_FEE}",
        _plain(
            "How much does it cost?",
            "Wie viel kostet es?",
            "Combien cela coûte-t-il ?",
            "¿Cuánto cuesta?",
            "费用是多少？",
        ),
    ),
    "deposit": SubjectWords(
        "money",
        r"(?:security |rental )?deposits?|\w*kaution(?:en)?|dépôts?(?: de garantie)?|cautions?|fianzas?|depósitos?|"
        r"押金|保证金",
        "",
        _plain(
            "What is the deposit?",
            "Wie hoch ist die Kaution?",
            "Quel est le dépôt de garantie ?",
            "¿Cuál es la fianza?",
            "押金是多少？",
        ),
    ),
    "salary": SubjectWords(
        "money",
        r"salar(?:y|ies)|wages?|pay|\w*gehalt|\w*gehälter|\w*löhne?|\w*lohn|salaires?|salarios?|sueldos?|工资|薪资|薪水|月薪",
        "pays?|paid",
        _plain(
            "What is the salary?",
            "Wie hoch ist das Gehalt?",
            "Quel est le salaire ?",
            "¿Cuál es el salario?",
            "工资是多少？",
        ),
    ),
    "interest": SubjectWords(
        "number",
        r"interest(?: rates?)?|Zins(?:satz|sätze|en)?|(?:taux d['’])?intérêts?|(?:tipos? de )?inter[eé]s(?:es)?|"
        r"利率|利息",
        "",
        _plain(
            "What is the interest rate?",
            "Wie hoch ist der Zinssatz?",
            "Quel est le taux d'intérêt ?",
            "¿Cuál es el tipo de interés?",
            "利率是多少？",
        ),
    ),
    "notice": SubjectWords(
        "duration",
        r"notice(?: periods?| times?)?|(?:periods?|terms?|time) (?:of|for|to give) notice|"
        r"Kündigungsfrist(?:en)?|(?:délais? d[eu] )?préavis|"
        r"(?:plazos? de )?preavisos?|通知期限?|提前通知期?|通知",
        r"kündig\w+",
        _plain(
            "What is the notice period?",
            "Wie lang ist die Kündigungsfrist?",
            "Quel est le délai de préavis ?",
            "¿Cuál es el plazo de preaviso?",
            "通知期是多长？",
        ),
    ),
    "term": SubjectWords(
        "duration",
        r"(?:contract |lease |minimum )?(?:terms?|durations?|lengths?)|contract periods?|\w*laufzeit(?:en)?|\w*dauer|"
        r"durées?(?: du (?:contrat|bail))?|duración|duraciones|vigencia|plazos?|租期|期限|合同期限?|有效期|租赁期限?",
        r"lasts?|runs for|valid for|fixed for|for a period|läuft|gilt für|dure|dura",
        _plain(
            "How long does it last?",
            "Wie lang ist die Laufzeit?",
            "Quelle est la durée ?",
            "¿Cuál es la duración?",
            "期限是多长？",
        ),
    ),
    "start": SubjectWords(
        "date",
        r"(?:start|starting|beginning|commencement)(?: dates?)?|\w*beginn|dates? de début|débuts?|fechas? de inicio|"
        r"inicio|comienzo|开始日期?|起始日期?|起租日期?|生效日期?",
        r"starts?|begins?|commences?|beginnt|commence|prend effet|empieza|comienza|开始|起",
        _plain(
            "When does it start?",
            "Wann beginnt der Vertrag?",
            "Quelle est la date de début ?",
            "¿Cuándo empieza?",
            "开始日期是什么时候？",
        ),
    ),
    "end": SubjectWords(
        "date",
        r"(?:end|ending|expiry|expiration|termination) dates?|expiry|expiration|end|(?:vertrags|miet)?ende|ablauf|"
        r"dates? de fin|échéances?|fin|fechas? de (?:fin|vencimiento)|vencimiento|到期日?期?|结束日期?|终止日期?",
        r"ends?|expires?|until|endet|bis zum|(?:se )?termine|expire|jusqu['’]\w+|finaliza|termina|vence|hasta|"
        r"至|到期|结束",
        _plain(
            "When does it end?",
            "Wann endet der Vertrag?",
            "Quelle est la date de fin ?",
            "¿Cuándo termina?",
            "到期日是什么时候？",
        ),
    ),
    "date": SubjectWords(
        "date",
        r"dates?(?: of (?:signature|signing|the (?:document|contract)))?|(?:signing|signature) dates?|\w*datum|"
        r"dates? de signature|fechas?(?: de (?:la )?firma)?|签署日期?|签订日期?|日期",
        r"signed|dated|unterzeichnet|unterschrieben|signée?|fait à|firmad[oa]|签",
        _plain(
            "When was it signed?",
            "Wann wurde es unterzeichnet?",
            "Quelle est la date de signature ?",
            "¿Cuál es la fecha de la firma?",
            "签署日期是什么时候？",
        ),
    ),
    "area": SubjectWords(
        "number",
        r"areas?|sizes?|(?:living|floor) (?:area|space)|\w*fläche|größe|surfaces?|superficies?|tamaño|面积",
        r"square|m²|m2|sqm|quadratmetern?|carrés|cuadrados|平方米",
        _plain(
            "What is the area?",
            "Wie groß ist die Fläche?",
            "Quelle est la surface ?",
            "¿Cuál es la superficie?",
            "面积是多少？",
        ),
    ),
}
"""The subjects by name."""

KINDS: tuple[tuple[str, QuantityKind], ...] = (
    (
        r"(?:.*\b)?(?:periods?|terms?|times?|delays?|durations?)|.*(?:frist|fristen|dauer|zeitraum)|"
        r"(?:délai|durée)s?\b.*|(?:plazo|período)s?\b.*|.*(?:期限?|时间)",
        "duration",
    ),
    (
        r"(?:.*\b)?(?:dates?|deadlines?)|.*(?:datum|termin|stichtag)|(?:date|échéance)s?\b.*|fechas?\b.*|.*日期?",
        "date",
    ),
    (
        r"(?:.*\b)?(?:fees?|prices?|costs?|charges?|amounts?|payments?|fines?|penalt(?:y|ies)|premiums?|budgets?|sums?)|"
        r".*(?:gebühr|gebühren|kosten|betrag|preis|strafe|summe|zahlung|prämie)|(?:frais|coût|prix|montant)s?\b.*|"
        r"(?:coste|precio|importe|multa|cuota)s?\b.*|.*(?:费|金额|价|款)",
        "money",
    ),
)
"""The kind of value by the words of a noun phrase that names no known subject."""

GENERIC = (
    "period periods term time duration date deadline fee price cost charge amount payment rate number level total "
    "monthly annual yearly weekly agreed maximum minimum frist datum betrag kosten höhe anzahl délai délais durée date "
    "frais montant taux le la les de du des plazo fecha coste importe número el los las"
)
"""Words of noun phrases that do not tell one subject from another."""
