"""Provides the sentence that says that no answer was found, in the question's language."""

import re
from collections.abc import Iterable
from functools import cache

NO_ANSWER = {
    "en": "I found no clear answer.",
    "de": "Ich habe keine klare Antwort gefunden.",
    "es": "No he encontrado una respuesta clara.",
    "fr": "Je n'ai pas trouvé de réponse claire.",
    "it": "Non ho trovato una risposta chiara.",
    "nl": "Ik heb geen duidelijk antwoord gevonden.",
    "pt": "Não encontrei uma resposta clara.",
    "ja": "明確な答えは見つかりませんでした。",
    "ko": "명확한 답을 찾지 못했습니다.",
    "zh": "没有找到明确的答案。",
}
"""The sentence in each language, by the language's ISO 639-1 code. It does not claim that the document lacks an answer:
a small model often finds none where there is one.
"""

_REPLIES = {
    "en": "The document does not say.",
    "de": "Das Dokument sagt das nicht.",
    "es": "El documento no lo dice.",
    "fr": "Le document ne le dit pas.",
    "it": "Il documento non lo dice.",
    "nl": "Het document zegt dat niet.",
    "pt": "O documento não o diz.",
    "ja": "文書には書かれていません。",
    "ko": "문서에 나와 있지 않습니다.",
    "zh": "文档没有说明。",
}
"""The same as models say it, and as it was stored in earlier versions."""

_AROUND = ' ."。'  # stripped from an answer

_COMMON = {
    "en": "what who when where how which why whose is are was were did does do the of to may can must i my in for at",
    "de": "wie was wer wann wo welche welcher welches warum wem wen wessen ist sind war darf kann muss ich der "
    "die das den dem des ein eine einen im am zu von für mit wird werden gibt es hat mein meine nicht und "
    "viel lange",
    "es": "qué quién cuándo dónde cómo cuál cuánto cuántos cuánta cuántas por es son está el la los las de del "
    "un una se puedo en que para tiene hay mi",
    "fr": "que quoi qui quand où comment quel quelle quels quelles combien pourquoi est sont le la les l d du "
    "des un une se puis je peut faut il y a au aux en pour ce mon qu",
    "it": "che chi quando dove come quale quali quanto quanti perché è sono il lo la gli le di del della un una "
    "posso in si per mio",
    "nl": "wat wie wanneer waar hoe welke welk waarom is zijn de het een van mag kan ik moet er in voor mijn op worden",
    "pt": "que quem quando onde como qual quais quanto quantos porquê é são o os as de do da um uma posso em se "
    "para meu há",
}
_WORDS = {language: frozenset(words.split()) for language, words in _COMMON.items()}
_SCRIPTS = (("ja", "\u3040-\u30ff"), ("ko", "\uac00-\ud7af"), ("zh", "\u3400-\u9fff"))


def is_no_answer(answer: str, own: str = "", languages: Iterable[str] = NO_ANSWER) -> bool:
    """Returns True if ``answer`` only says that the text does not answer the question, in one of ``languages``, even if
    the model wrote "No," before it; also if it is ``own``, the sentence of an adapter. Returns False if ``answer`` is
    empty.
    """
    text = answer.strip(_AROUND)
    return bool(text) and (text == own.strip(_AROUND) or bool(_pattern(tuple(languages)).fullmatch(text)))


@cache
def _pattern(languages: tuple[str, ...]) -> re.Pattern[str]:
    known = (sentences[language] for sentences in (NO_ANSWER, _REPLIES) for language in languages)
    said = "|".join(re.escape(sentence.strip(_AROUND)) for sentence in known)
    return re.compile(rf"(?:\w+, )?(?:{said}|not stated)", re.IGNORECASE)


def no_answer(question: str) -> str:
    """Returns the sentence that says that no answer was found, in the language of ``question``, or in English if the
    language is unknown.
    """
    return NO_ANSWER[_language_of_question(question)]


def _language_of_question(question: str) -> str:
    """Returns the language of a question. It is found by the script or by common words, because a question is too short
    for letter statistics.
    """
    for language, characters in _SCRIPTS:
        if re.search(f"[{characters}]", question):
            return language
    words = re.findall(r"[^\W\d_]+", question.lower())
    return max(_WORDS, key=lambda language: sum(word in _WORDS[language] for word in words))
