"""Words of a question about a table that select no rows and name no column, in several languages.

A question is computed only if each of its words is used or is one of these, so a missing word costs an answer, and a
wrong one makes an answer wrong.
"""

import re

from localctx.library.wording.word_forms import FUNCTION_WORDS
from localctx.library.wording.word_forms import NEGATIONS as _NEGATIONS
from localctx.store.search_words import OTHER_WORDS


def _set(words: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", words))


NEGATIONS = _NEGATIONS | _set(
    "keinen keinem keiner keines nichts niemals pas ne ni sans jamais aucun aucune non nunca sin ningún ninguna não "
    "nao nem sem nessun nessuna senza mai niet geen zonder nooit nie bez не нет без ни inte ej ingen inga utan ikke "
    "uden ei değil yok"
)
"""Words that deny what follows them."""

OR = _set("or oder ou o u oppure lub или eller veya")
JOINING = OR | _set("and but und aber sondern et mais y e pero ma maar en i и но och men ve")
"""Words between two conditions: a negation before such a word does not reach beyond it."""

YET = _set(
    "yet already been fully noch schon bereits encore déjà été todavía aún ya ancora già ainda já nog al ещё уже"
)
"""Words between a negation and what it denies, as in "not yet paid"."""

YES_VALUES = _set(
    "yes y true t ja j wahr oui o vrai sí si s sì vero verdadero sim v да tak prawda ok x 是 有 对 已 真 はい 예 네"
)
YES_VALUES |= {"✓", "✔", "☑"}
NO_VALUES = _set(
    "no n false f nein falsch non faux falso não nao nee onwaar нет nie fałsz nej 否 无 未 假 不 いいえ 아니요 아니오"
)
NO_VALUES |= {"✗", "✘", "☐", "-", "–"}  # noqa: RUF001
"""The values of columns that say yes or no."""

_SELECTING = _set(
    "other another same only except but either neither nor still yet again once further first finally without if just "
    "own alone more fewer less than until till through be will would must should shall can could may might "
    "wird werden muss darf"
)
_OF_ANY_TABLE = _set(
    "please tell show give list find name calculate compute count determine exist exists existing get s t "
    "row rows column columns line lines record records entry entries item items table sheet spreadsheet file document "
    "data people person persons whole entire "
    "bitte nenne zeige berechne gibt existieren alle aller allen welchen sind waren zeile zeilen spalte spalten "
    "eintrag einträge tabelle datei person personen leute menschen man "
    "est sont été il a ont ces cette tous toutes ligne lignes colonne colonnes tableau personne personnes gens donne "
    "calcule existe "
    "hay existen son fue fueron todos todas los fila filas columna columnas tabla persona personas gente "
    "ci sono stati tutti tutte riga righe tabella persone esistono há linha linhas tabela pessoas existem todos foram "
    "er zijn alle rij rijen tabel mensen personen "
    "jest są wszystkich wierszy osób ludzi в во на с у из по и есть это все всех строк человек людей таблице "  # noqa: RUF001
    "finns är alla rader personer"
)
HARMLESS = (FUNCTION_WORDS | OTHER_WORDS | _OF_ANY_TABLE) - NEGATIONS - _SELECTING - OR
"""Words that are never a condition."""

DISTINCT = _set(
    "different distinct unique various verschiedene verschiedenen unterschiedliche unterschiedlichen différents "
    "différentes diferentes distintos distintas diversi diverse verschillende różnych разных olika"
)
"""Words that ask for the number of different values."""

LINKING = _set(
    "come comes came go goes went travel travels allow allows permit permits offer offers live lives lived work works "
    "worked pay pays paid earn earns earned cost costs weigh weighs measure sail sails sailed belong belongs located "
    "based amount value sum level size "
    "kommen kommt kamen arbeiten arbeitet verdienen verdient wohnen wohnt leben lebt kosten kostet zahlen zahlt fahren "
    "fährt liegen liegt gehören gehört stammen stammt wiegen wiegt beträgt betragen betrag höhe wert "
    "viennent vient travaillent travaille gagnent gagne coûtent coûte habitent habite paient paie montant valeur "
    "vienen trabajan trabaja ganan gana cuestan cuesta viven pagan importe valor "
    "vengono lavorano guadagnano costano vivono pagano importo valore vêm trabalham ganham custam pagam "
    "komen werken kosten wonen betalen bedrag работают работает получают стоят живут платят pracuje zarabia kosztuje "
    "mieszka płaci kommer arbetar tjänar kostar bor betalar"
)
"""Words that link rows with a condition or a column beside them, as in "came from the North", and say nothing alone."""

CURRENCIES = _set(
    "euro euros eur dollar dollars usd pound pounds gbp franc francs chf crowns kronor kroner yen yuan rmb"
)
CURRENCIES |= _set("percent prozent")

HOW = re.compile(
    r"\b(how|wie) (high|large|big|long|tall|old|great|hoch|groß|lang|viel|teuer|alt)\b|\bquel(le)?s?\b|\bà combien\b",
    re.IGNORECASE,
)
"""Words that ask for a value, as in "how high"."""

SIGNS_BETWEEN = re.compile(
    "多少|几|哪些|哪个|哪|谁|什么|请问|一共|总共|这些|那些|表格|表|中|里|的|了|吗|呢|有|是|在|个|张|份|条|名|位|和|与|及|还|尚|"
    "ありますか|いくつ|ですか|ました|ます|です|ある|いる|何|件|の|は|が|を|に|で|と|も|か|"
    "입니까|있습니까|있나요|인가요|에서|은|는|이|가|을|를|의|에|몇|개"
)
"""Words of scripts without spaces that are never a condition."""


def is_harmless(word: str) -> bool:
    """Returns True if a word in lower case is no condition and names no column. A letter may be a value."""
    return len(word) == 1 or word in HARMLESS or word in DISTINCT
