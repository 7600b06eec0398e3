"""Which strategy makes an answer, and in which stages: the table says it for every case."""

from types import SimpleNamespace

import pytest

from localctx.settings import load_settings
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.answer_strategies import (
    CHECK,
    CONFIDENT,
    FOCUS,
    LIKELIER,
    NEAREST,
    QUOTE,
    STRATEGIES,
    choose_strategy,
)

ADAPTER = SimpleNamespace(measured={"answers": "quote"})
WHOLE = {"documents": ["d"]}
PASSAGES = WHOLE | {"passages": ["p"]}
NAMES = {CHECK: "check", NEAREST: "nearest", LIKELIER: "likelier", CONFIDENT: "confident", QUOTE: "quote"}
NAMES[FOCUS] = "focus"


def case_of(question: str, request: dict, **settings) -> AnswerCase:
    plain = {"documents": (), "passages": (), "everywhere": None, "begun": "", "adapter": None, "continues": False}
    how = load_settings(**{"careful": "auto", "model": "/of/nobody", **settings})
    asked = SimpleNamespace(**{"cache": SimpleNamespace()} | plain | request)
    return AnswerCase(None, asked, question, how)


@pytest.mark.parametrize(
    ("question", "request_", "settings", "strategy", "stages"),
    [
        ("Why?", WHOLE, {}, "free", "check nearest"),
        ("Why?", PASSAGES, {}, "free", "check nearest likelier quote"),
        ("Why?", PASSAGES, {"careful": "off"}, "free", "check nearest quote"),
        ("Why?", PASSAGES | {"continues": True}, {}, "free", "check nearest quote"),
        ("Summarize it.", PASSAGES, {}, "free", "check nearest quote"),
        ("Why?", {}, {"answers": "quote"}, "free", ""),
        ("Why?", WHOLE | {"adapter": ADAPTER}, {}, "quoted", "check nearest confident"),
        ("Why?", PASSAGES | {"adapter": ADAPTER}, {}, "quoted", "check nearest confident"),
        ("Why?", PASSAGES | {"adapter": ADAPTER}, {"temperature": 1.0}, "free", "check nearest likelier quote"),
        ("Why?", WHOLE | {"adapter": ADAPTER}, {"answers": "free"}, "free", "check nearest confident"),
        ("Explain it.", WHOLE | {"adapter": ADAPTER}, {}, "free", "check nearest confident"),
        ("Why?", WHOLE | {"adapter": ADAPTER, "continues": True}, {}, "quoted", "check nearest"),
        ("Why?", PASSAGES, {"answers": "quote"}, "quoted", "check nearest likelier"),
        ("Why?", PASSAGES, {"answers": "quote", "n": 2, "temperature": 1.0}, "free", "check nearest likelier quote"),
        ("Why?", PASSAGES | {"begun": "Because", "adapter": ADAPTER}, {}, "continued", "check"),
        ("Why?", PASSAGES | {"everywhere": object(), "adapter": ADAPTER}, {}, "everywhere", ""),
    ],
)
def test_each_case_has_its_strategy_and_stages(question, request_, settings, strategy, stages):
    case = case_of(question, request_, **settings)
    chosen = choose_strategy(case)
    applied = [NAMES[stage] for stage in chosen.stages if all(holds(case) for holds in stage.conditions)]
    assert (chosen.name, " ".join(applied)) == (strategy, stages)


def test_the_last_strategy_takes_what_is_left():
    assert STRATEGIES[-1].conditions == ()
    assert len({strategy.name for strategy in STRATEGIES}) == len(STRATEGIES)
