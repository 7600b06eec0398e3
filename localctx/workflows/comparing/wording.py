"""The words of a comparing answer in each language."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """The words of an answer in one language; ``{name}``, ``{value}``, ``{done}`` and ``{total}`` are filled in.

    ``verdicts`` has two words for each order: for two documents ("Lower") and for more ("Lowest"). ``periods`` are the
    words for a period after an amount, such as " a month".
    """

    said: str
    missing: str
    unsure: str
    not_said: str
    not_sure: str
    equal: str
    all_equal: str
    several_values: str
    other_units: str
    stopped: str
    verdict: str
    joined: str
    verdicts: Mapping[str, tuple[str, str]]
    periods: Mapping[str, str]


WORDINGS = {
    "en": Wording(
        said="{name}: {value}.",
        missing="Not found in {name}.",
        unsure="{name}: no sure answer.",
        not_said="not stated",
        not_sure="not sure",
        equal="The two are equal.",
        all_equal="All are equal.",
        several_values="Not compared: a document gives more than one value.",
        other_units="Not compared: the values are not in the same unit.",
        stopped="Stopped after {done} of {total} answers.",
        verdict="{word}: {names}.",
        joined=" and ",
        verdicts={
            **{"lower": ("Lower", "Lowest"), "higher": ("Higher", "Highest"), "longer": ("Longer", "Longest")},
            **{"shorter": ("Shorter", "Shortest"), "earlier": ("Earlier", "Earliest"), "later": ("Later", "Latest")},
        },
        periods={
            **{"hour": " an hour", "day": " a day", "week": " a week", "month": " a month", "quarter": " a quarter"},
            "year": " a year",
        },
    ),
    "de": Wording(
        said="{name}: {value}.",
        missing="In {name} nicht gefunden.",
        unsure="{name}: keine sichere Antwort.",
        not_said="nicht genannt",
        not_sure="nicht sicher",
        equal="Beide sind gleich.",
        all_equal="Alle sind gleich.",
        several_values="Nicht verglichen: ein Dokument nennt mehrere Werte.",
        other_units="Nicht verglichen: die Werte haben nicht dieselbe Einheit.",
        stopped="Nach {done} von {total} Antworten angehalten.",
        verdict="{word}: {names}.",
        joined=" und ",
        verdicts={
            "lower": ("Niedriger", "Am niedrigsten"),
            "higher": ("Höher", "Am höchsten"),
            "longer": ("Länger", "Am längsten"),
            "shorter": ("Kürzer", "Am kürzesten"),
            "earlier": ("Früher", "Am frühesten"),
            "later": ("Später", "Am spätesten"),
        },
        periods={
            **{"hour": " pro Stunde", "day": " pro Tag", "week": " pro Woche", "month": " im Monat"},
            **{"quarter": " im Quartal", "year": " im Jahr"},
        },
    ),
    "fr": Wording(
        said="{name} : {value}.",
        missing="Pas trouvé dans {name}.",
        unsure="{name} : pas de réponse sûre.",
        not_said="non indiqué",
        not_sure="pas sûr",
        equal="Les deux sont égaux.",
        all_equal="Tous sont égaux.",
        several_values="Non comparé : un document donne plusieurs valeurs.",
        other_units="Non comparé : les valeurs n'ont pas la même unité.",
        stopped="Arrêté après {done} réponses sur {total}.",
        verdict="{word} : {names}.",
        joined=" et ",
        verdicts={
            "lower": ("Plus bas", "Le plus bas"),
            "higher": ("Plus élevé", "Le plus élevé"),
            "longer": ("Plus long", "Le plus long"),
            "shorter": ("Plus court", "Le plus court"),
            "earlier": ("Plus tôt", "Le plus tôt"),
            "later": ("Plus tard", "Le plus tard"),
        },
        periods={
            **{"hour": " par heure", "day": " par jour", "week": " par semaine", "month": " par mois"},
            **{"quarter": " par trimestre", "year": " par an"},
        },
    ),
    "es": Wording(
        said="{name}: {value}.",
        missing="No se encuentra en {name}.",
        unsure="{name}: no hay respuesta segura.",
        not_said="no se indica",
        not_sure="no es seguro",
        equal="Los dos son iguales.",
        all_equal="Todos son iguales.",
        several_values="Sin comparar: un documento da varios valores.",
        other_units="Sin comparar: los valores no tienen la misma unidad.",
        stopped="Detenido tras {done} de {total} respuestas.",
        verdict="{word}: {names}.",
        joined=" y ",
        verdicts={
            "lower": ("Más bajo", "El más bajo"),
            "higher": ("Más alto", "El más alto"),
            "longer": ("Más largo", "El más largo"),
            "shorter": ("Más corto", "El más corto"),
            "earlier": ("Antes", "El primero"),
            "later": ("Después", "El último"),
        },
        periods={
            **{"hour": " por hora", "day": " al día", "week": " a la semana", "month": " al mes"},
            **{"quarter": " al trimestre", "year": " al año"},
        },
    ),
    "zh": Wording(
        said="{name}：{value}。",  # noqa: RUF001
        missing="在{name}中没有找到。",
        unsure="{name}：没有可靠的答案。",  # noqa: RUF001
        not_said="未说明",
        not_sure="不确定",
        equal="两者相同。",
        all_equal="全部相同。",
        several_values="未比较：有文档给出多个值。",  # noqa: RUF001
        other_units="未比较：各值的单位不同。",  # noqa: RUF001
        stopped="已停止：{total}个回答中得到了{done}个。",  # noqa: RUF001
        verdict="{word}：{names}。",  # noqa: RUF001
        joined="和",
        verdicts={
            **{"lower": ("更低", "最低"), "higher": ("更高", "最高"), "longer": ("更长", "最长")},
            **{"shorter": ("更短", "最短"), "earlier": ("更早", "最早"), "later": ("更晚", "最晚")},
        },
        periods={"hour": "/小时", "day": "/天", "week": "/周", "month": "/月", "quarter": "/季度", "year": "/年"},
    ),
}
"""The words by the code of the question's language."""
