"""Lists the strategies, which are the ways to make an answer, and the stages, which change the answer's events.

``STRATEGIES`` is searched from top to bottom: the first strategy whose conditions all hold is used. A stage of the
strategy changes the events between the model's decoding and the user; it runs if its own conditions hold, too.
``STAGES`` lists all stages in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.run_request import record_tokens
from localctx.workflows.answer.abstention import give_if_confident, give_if_likelier, offer_nearest
from localctx.workflows.answer.answer_case import AnswerCase as Case
from localctx.workflows.answer.answer_case import Condition
from localctx.workflows.answer.checked_answer import check_sentences
from localctx.workflows.answer.compared import compare_documents
from localctx.workflows.answer.computed_answer import answer_from_table
from localctx.workflows.answer.everywhere import ask_every_passage
from localctx.workflows.answer.find_passages import focus_on_passages
from localctx.workflows.answer.prompt_answer import answer_from_prompt, continue_answer, quote_first
from localctx.workflows.answer.quoted_answer import answer_in_quotes
from localctx.workflows.answer.second_look import look_again

Answering = EngineCoroutine[None]


@dataclass(frozen=True)
class Stage:
    """A step that changes the events of an answer on their way to the user. It runs if all ``conditions`` hold."""

    name: str
    run: Callable[[Case, Answering], Answering]
    conditions: tuple[Condition, ...] = ()


RECORD = Stage("record", lambda case, answering: record_tokens(case.request, answering))
QUOTE = Stage("quote", quote_first, (Case.reads_passages,))
CONFIDENT = Stage("confident", give_if_confident, (Case.wants_confidence,))
LIKELIER = Stage("likelier", give_if_likelier, (Case.compares_likelihoods,))
AGAIN = Stage(
    "again",
    lambda case, answering: look_again(case, answering, make_answer),
    (Case.reads_documents, Case.may_look_again),
)
NEAREST = Stage("nearest", offer_nearest, (Case.reads_documents,))
CHECK = Stage("check", check_sentences, (Case.reads_documents,))
FOCUS = Stage("focus", focus_on_passages, (Case.focuses,))

STAGES = (
    RECORD,  # adds each generated token to the request's answer
    QUOTE,  # puts the supporting quotation first
    CONFIDENT,  # holds the answer back until its confidence is known, and emits it only if that is high enough
    LIKELIER,  # before the first token: generates only if the question is likelier after the passages
    AGAIN,  # holds the answer back until it was compared with one from sentences with more words of the question
    NEAREST,  # after the reply that nothing answers: names the nearest passage
    CHECK,  # after each sentence: names the passage that supports it
    FOCUS,  # before the first token: lets the question attend only to the pages with its passages
)
"""All stages in the order in which an event passes them. A stage sees only the events that those before it pass on."""


@dataclass(frozen=True)
class Strategy:
    """A way to make an answer. It may be used if all ``conditions`` hold.

    ``run`` generates the answer and sets its citations. The events of the answer pass ``stages``, which are in the
    order of STAGES.
    """

    name: str
    conditions: tuple[Condition, ...]
    run: Callable[[Case], Answering]
    stages: tuple[Stage, ...]


STRATEGIES = (
    Strategy("everywhere", (Case.asks_every_passage,), lambda case: ask_every_passage(case, answer_passage), ()),
    Strategy("compared", (Case.compares_documents,), lambda case: compare_documents(case, make_answer), ()),
    Strategy("table", (Case.computes_over_table,), answer_from_table, ()),
    Strategy("formatted", (Case.has_format,), answer_from_prompt, (RECORD, CHECK, FOCUS)),
    Strategy("continued", (Case.continues_answer,), continue_answer, (RECORD, CHECK, FOCUS)),
    Strategy(
        "quoted",
        (Case.reads_documents, Case.is_greedy, Case.may_be_quoted, Case.quotes),
        answer_in_quotes,
        (CONFIDENT, LIKELIER, NEAREST, CHECK, FOCUS),
    ),
    Strategy("free", (), answer_from_prompt, STAGES),
)


def choose_strategy(case: Case) -> Strategy:
    """Returns the first strategy whose conditions all hold."""
    return next(strategy for strategy in STRATEGIES if all(holds(case) for holds in strategy.conditions))


def make_answer(case: Case) -> Answering:
    """Returns the coroutine that prefills the rest of the prompt and answers.

    The coroutine also sets the request's citations and the sources of the answer's sentences. It raises Cancelled and
    OutOfKVMemory; tokens generated before then remain in the request.
    """
    strategy = choose_strategy(case)
    return through_stages(case, strategy.run(case), strategy.stages)


def answer_passage(case: Case) -> Answering:
    """Returns the coroutine that answers from one passage, when every passage is asked.

    The only stage is RECORD, because the caller does the work of all other stages.
    """
    strategy = choose_strategy(case)
    return through_stages(case, strategy.run(case), [stage for stage in strategy.stages if stage is RECORD])


def through_stages(case: Case, answering: Answering, stages: Sequence[Stage]) -> Answering:
    """Returns a coroutine that runs ``answering`` and passes its events, in order, through the ``stages`` whose
    conditions hold.
    """
    for stage in stages:
        if all(holds(case) for holds in stage.conditions):
            answering = stage.run(case, answering)
    return answering
