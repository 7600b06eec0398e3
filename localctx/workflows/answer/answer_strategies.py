"""Answer strategies: how the answer to an opened request is made, and in which stages.

``STRATEGIES`` is read from top to bottom: the first row whose conditions all hold applies. Each of its stages runs if
the stage's conditions hold too. The first stage is outermost, so it sees only the events that the later ones pass on.
"""

from collections.abc import Callable
from dataclasses import dataclass

from localctx.engine.coroutine import EngineCoroutine
from localctx.workflows.answer.abstention import give_if_confident, give_if_likelier
from localctx.workflows.answer.answer_case import AnswerCase as Case
from localctx.workflows.answer.answer_case import Condition
from localctx.workflows.answer.checked_answer import check_sentences
from localctx.workflows.answer.everywhere import ask_every_passage
from localctx.workflows.answer.focus import focus_on_passages
from localctx.workflows.answer.nearest_passage import offer_nearest
from localctx.workflows.answer.prompt_answer import answer_from_prompt, continue_answer, quote_first
from localctx.workflows.answer.quoted_answer import answer_in_quotes

Answering = EngineCoroutine[None]


@dataclass(frozen=True)
class Stage:
    """Changes the events of an answer as it is made, where all ``conditions`` hold."""

    run: Callable[[Case, Answering], Answering]
    conditions: tuple[Condition, ...]


FOCUS = Stage(focus_on_passages, (Case.focuses,))  # shows the question only its passages' pages
CHECK = Stage(check_sentences, (Case.reads_documents,))  # reports each sentence with its supporting passage
NEAREST = Stage(offer_nearest, (Case.reads_documents,))  # after an answer that says that nothing answers
LIKELIER = Stage(give_if_likelier, (Case.compares_likelihoods,))  # generates only if the question is likelier
CONFIDENT = Stage(give_if_confident, (Case.wants_confidence,))  # emits only a confident answer
QUOTE = Stage(quote_first, (Case.reads_passages,))  # puts the supporting quotation first


@dataclass(frozen=True)
class Strategy:
    """A way to make an answer if all ``conditions`` hold: ``run`` generates it and sets its citations."""

    name: str
    conditions: tuple[Condition, ...]
    run: Callable[[Case], Answering]
    stages: tuple[Stage, ...]


STRATEGIES = (
    Strategy("everywhere", (Case.asks_every_passage,), lambda case: ask_every_passage(case, answer_passage), ()),
    Strategy("continued", (Case.continues_answer,), continue_answer, (FOCUS, CHECK)),
    Strategy(
        "quoted",
        (Case.reads_documents, Case.is_greedy, Case.may_be_quoted, Case.quotes),
        answer_in_quotes,
        (FOCUS, CHECK, NEAREST, LIKELIER, CONFIDENT),
    ),
    Strategy("free", (), answer_from_prompt, (FOCUS, CHECK, NEAREST, LIKELIER, CONFIDENT, QUOTE)),
)


def choose_strategy(case: Case) -> Strategy:
    """Returns the first strategy whose conditions all hold."""
    return next(strategy for strategy in STRATEGIES if all(holds(case) for holds in strategy.conditions))


def make_answer(case: Case) -> Answering:
    """Returns the coroutine that prefills the rest of the prompt and answers. It sets the request's citations, and the
    sources of its sentences. Raises Cancelled, OutOfKVMemory; tokens generated before remain.
    """
    strategy = choose_strategy(case)
    answering = strategy.run(case)
    for stage in reversed(strategy.stages):
        if all(holds(case) for holds in stage.conditions):
            answering = stage.run(case, answering)
    return answering


def answer_passage(case: Case) -> Answering:
    """Returns the coroutine that answers from one of many passages, without stages: the caller does their work."""
    return choose_strategy(case).run(case)
