"""Fits an adapter's confidence: ``python packaging/fit_confidence.py DATA ADAPTER [--decoding free quote]``.

DATA is a folder with squad-train.json and fairytale-train.json. Each question held out of training is asked twice:
about its own paragraph, and about the other paragraph of the same kind that is most similar to the question. As many
questions are about made documents with near misses, and each goes with one like it that has no answer. The script then
writes three things into the adapter's reader.json: the coefficients that separate the two cases, the threshold
that refuses a wanted share of the answerable questions, and the better way to decode.
"""

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from near_misses import Topic, make_sheet
from reader_examples import Paragraph, ReaderData

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.confidence import Calibration, Evidence
from localctx.engine.request import Request
from localctx.engine.run_request import run_request
from localctx.engine.scheduler import Scheduler
from localctx.engine.sequence import Sequence as EngineSequence
from localctx.session import Session
from localctx.settings import load_settings
from localctx.workflows.read_sources import read_sources

PARALLEL = 12  # questions computed at the same time
MADE = 120  # questions about made documents, if all others are asked
OF_A_SHEET = 4  # questions about one of them
GOOD = 0.5  # token F1 from which an answer counts as right


@dataclass(frozen=True)
class Rated:
    """The outcome of one question: the ``evidence`` for its answer, the token F1 of the answer (0 if the text has no
    answer), and whether the text has an answer.
    """

    evidence: Evidence
    f1: float
    answerable: bool


def main() -> None:
    """Ask the questions, fit the confidence, and write it to the adapter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("adapter", type=Path)
    parser.add_argument("--decoding", nargs="+", choices=("free", "quote"), default=["free", "quote"])
    parser.add_argument("--questions", type=int, default=0, help="at most so many of each kind (0: all)")
    parser.add_argument("--refused", type=float, default=0.08, help="share of answerable questions (0.08)")
    parser.add_argument("--reconsider", type=float, default=1.0, help="see Calibration (1.0: never)")
    given = parser.parse_args()
    reader = given.adapter / "reader.json"
    stored = json.loads(reader.read_text(encoding="utf-8")) if reader.exists() else {}
    asked = questions(ReaderData(given.data, held_out=True), given.questions)
    scores = dict[str, float]()
    for decoding in given.decoding:
        settings = load_settings(
            adapter=str(given.adapter), answers=decoding, mode="full", max_tokens=64, embedder="none"
        )
        with Session(settings) as session:
            rated = rate(session, asked)
        calibration, figures = calibrate(rated, given.refused)
        calibration = replace(calibration, reconsider=given.reconsider)
        stored.setdefault("confidence", {})[decoding] = calibration.to_json()
        scores[decoding] = float(np.mean([one.f1 for one in rated if one.answerable]))
        print(json.dumps({"decoding": decoding, "F1": round(scores[decoding], 4), **figures}), flush=True)
    if len(scores) > 1:
        stored["answers"] = max(scores, key=lambda decoding: scores[decoding])
    reader.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def questions(data: ReaderData, limit: int) -> list[tuple[str, str, str]]:
    """Returns triples (text, question, answer), two for each question. One has the question's own paragraph.
    The other has the paragraph that shares the most words with the question but lacks the answer; its answer is empty.
    """
    chance, found = random.Random(0), list[tuple[str, str, str]]()
    for paragraphs in (data.articles, data.stories):
        asked = [(p, question, answer) for p in paragraphs for question, answer in p.questions]
        chance.shuffle(asked)
        for paragraph, question, answer in asked[: limit or None]:
            if other := _nearest(question, answer, [p for p in paragraphs if p is not paragraph]):
                found += [(paragraph.text, question, answer), (other.text, question, "")]
    return found + _near_misses(data.topics, limit or MADE)


def _near_misses(topics: Sequence[Topic], number: int) -> list[tuple[str, str, str]]:
    """Returns ``number`` questions about made documents, each followed by one like it that has no answer."""
    chance, found = random.Random(0), list[tuple[str, str, str]]()
    for i in range(-(-number // OF_A_SHEET)):
        sheet = make_sheet(topics[i % len(topics)], chance)
        chosen = chance.sample(sheet.answered, min(OF_A_SHEET, len(sheet.answered)))
        for question, answer in chosen:
            found += [(sheet.text, question, answer), (sheet.text, chance.choice(sheet.unanswered)[0], "")]
    return found[: 2 * number]


def _nearest(question: str, answer: str, paragraphs: Sequence[Paragraph]) -> Paragraph | None:
    words = set(_words(question))
    without = [p for p in paragraphs if " ".join(_words(answer)) not in " ".join(_words(p.text))]
    return max(without, key=lambda p: len(words & set(_words(p.text))), default=None)


def rate(session: Session, asked: Sequence[tuple[str, str, str]]) -> list[Rated]:
    """Ask all questions, PARALLEL at a time, and return the outcomes in the order of the questions."""
    scheduler, waiting = Scheduler(session.forward_each), list(range(len(asked)))
    running, rated = dict[EngineSequence[Request], int](), dict[int, Rated]()
    with TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < PARALLEL:
                number = waiting.pop()
                file = Path(folder) / f"{number}.txt"
                file.write_text(asked[number][0], encoding="utf-8")
                running[scheduler.add(_ask(session, file, asked[number][1]))] = number
            for _ in scheduler.step():
                pass
            for sequence in [one for one in running if one.ended]:
                number = running.pop(sequence)
                if sequence.error:
                    raise sequence.error
                rated[number] = _rated(sequence.result, asked[number][2])
    return [rated[number] for number in range(len(asked))]


def _rated(request: Request, answer: str) -> Rated:
    result = request.result
    given = result.stopped != "unanswered" or result.withheld
    assert result.evidence, "an adapter rates its answers"
    return Rated(result.evidence, token_f1(result.withheld or request.text, answer) if given else 0.0, bool(answer))


def _ask(session: Session, file: Path, question: str) -> EngineCoroutine[Request]:
    workflow = session.workflows.questions
    documents = read_sources(session.runtime, [str(file)], False)
    request = yield from workflow.open(documents, question, False)
    yield from run_request(request, workflow.answer(request, question, session.settings))
    return request


def calibrate(rated: Sequence[Rated], refused: float) -> tuple[Calibration, dict[str, float]]:
    """Returns the regression fitted to all of ``rated``, and figures by name. The threshold and the figures come from
    cross-validation: each half is judged by a regression fitted to the other half. ``refused`` is the share of
    answerable questions below the threshold.
    """
    answered = [one.answerable for one in rated]
    confidences = np.zeros(len(rated))
    for half in (0, 1):
        others = [i for i in range(len(rated)) if i // 2 % 2 != half]  # both questions of a pair are in one half
        fitted = fit([rated[i].evidence for i in others], [answered[i] for i in others])
        for i in range(len(rated)):
            if i // 2 % 2 == half:
                confidences[i] = fitted.confidence(rated[i].evidence)
    answerable = np.array(answered)
    threshold = float(np.quantile(confidences[answerable], refused))
    whole = fit([one.evidence for one in rated], answered)
    figures = {
        "questions": len(rated),
        "told so": round(float((confidences[~answerable] < threshold).mean()), 4),
        "refused": round(float((confidences[answerable] < threshold).mean()), 4),
        "ranked right": round(_ranked_right(confidences, answerable), 4),
        "right answers ranked right": round(_ranked_right(confidences, np.array([o.f1 >= GOOD for o in rated])), 4),
        "threshold": round(threshold, 4),
    }
    return Calibration(whole.weights, whole.bias, threshold), figures


def _ranked_right(confidences: np.ndarray, right: np.ndarray) -> float:
    """Returns the area under the ROC curve: the share of pairs of a right and a wrong case in which the ``right`` one
    has the higher confidence.
    """
    return float((confidences[right][:, None] > confidences[~right][None]).mean())


def fit(evidence: Sequence[Evidence], answerable: Sequence[bool], ridge: float = 10.0) -> Calibration:
    """Returns the maximum-likelihood logistic regression for ``answerable``, found by Newton's method. ``ridge`` is the
    strength of the L2 penalty on the weights of the standardized features.
    """
    x, y = np.array([one.features for one in evidence]), np.array(answerable, float)
    mean, scale = x.mean(0), x.std(0) + 1e-9
    z = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    penalty = ridge * np.diag([1.0] * x.shape[1] + [0.0])
    w = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-z @ w))
        curvature = (z * (p * (1 - p))[:, None]).T @ z + penalty + 1e-9 * np.eye(len(w))
        step = np.linalg.solve(curvature, z.T @ (p - y) + penalty @ w)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    weights = w[:-1] / scale
    return Calibration(tuple(map(float, weights)), float(w[-1] - weights @ mean), 0.5)


def token_f1(answer: str, right: str) -> float:
    """Returns the F1 score of the words of an answer, compared with the words of the ``right`` answer."""
    found, wanted = _words(answer), _words(right)
    same = sum((Counter(found) & Counter(wanted)).values())
    return 2 * same / (len(found) + len(wanted)) if same else 0.0


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word not in ("a", "an", "the")]


if __name__ == "__main__":
    main()
