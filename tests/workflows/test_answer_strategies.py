"""Which strategy makes an answer, and in which stages: the table says it for every case."""

import re
from types import SimpleNamespace

import pytest

from localctx.docs import page
from localctx.models.token_controls import TokenControls
from localctx.settings import load_settings
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.answer_strategies import (
    STAGES,
    STRATEGIES,
    Stage,
    choose_strategy,
    through_stages,
)

ADAPTER = SimpleNamespace(measured={"answers": "quote"})
WHOLE = {"documents": ["d"]}
PROMPT = ("documents", "passages", "begun")
PASSAGES = WHOLE | {"passages": ["p"]}


def case_of(question: str, request: dict, **settings) -> AnswerCase:
    prompt = {"documents": (), "passages": (), "begun": ""} | {k: v for k, v in request.items() if k in PROMPT}
    plan = SimpleNamespace(mode=request.get("mode", "full"))
    controls = TokenControls(grammar=request.get("grammar", ""))
    run = {"adapter": None, "continues": False, "cache": SimpleNamespace(), "plan": plan, "controls": controls}
    run |= {k: v for k, v in request.items() if k in run}
    result = SimpleNamespace(everywhere=request.get("everywhere"), compared=request.get("compared"))
    asked = SimpleNamespace(prompt=SimpleNamespace(**prompt), result=result, **run)
    how = load_settings(**{"careful": "auto", "model": "/of/nobody", **settings})
    return AnswerCase(None, asked, question, how)


@pytest.mark.parametrize(
    ("question", "request_", "settings", "strategy", "stages"),
    [
        ("Why?", WHOLE, {}, "free", "record nearest check"),
        ("Why?", PASSAGES, {}, "free", "record quote likelier nearest check"),
        ("Why?", PASSAGES, {"careful": "off"}, "free", "record quote nearest check"),
        ("Why?", PASSAGES | {"continues": True}, {}, "free", "record quote nearest check"),
        ("Summarize it.", PASSAGES, {}, "free", "record quote nearest check"),
        ("Why?", {}, {"answers": "quote"}, "free", "record"),
        ("Why?", WHOLE | {"adapter": ADAPTER}, {}, "quoted", "confident nearest check"),
        ("Why?", PASSAGES | {"adapter": ADAPTER}, {}, "quoted", "confident nearest check"),
        ("Why?", PASSAGES | {"adapter": ADAPTER}, {"temperature": 1.0}, "free", "record quote likelier nearest check"),
        ("Why?", WHOLE | {"adapter": ADAPTER}, {"answers": "free"}, "free", "record confident nearest check"),
        ("Explain it.", WHOLE | {"adapter": ADAPTER}, {}, "free", "record confident nearest check"),
        ("Why?", WHOLE | {"adapter": ADAPTER, "continues": True}, {}, "quoted", "nearest check"),
        ("Why?", PASSAGES, {"answers": "quote"}, "quoted", "likelier nearest check"),
        (
            "Why?",
            PASSAGES,
            {"answers": "quote", "n": 2, "temperature": 1.0},
            "free",
            "record quote likelier nearest check",
        ),
        ("Why?", PASSAGES | {"grammar": "start: /x/", "adapter": ADAPTER}, {}, "formatted", "record check"),
        ("Why?", PASSAGES | {"begun": "Because", "adapter": ADAPTER}, {}, "continued", "record check"),
        ("Why?", PASSAGES | {"everywhere": object(), "adapter": ADAPTER}, {}, "everywhere", ""),
        ("Which has the lower rent?", WHOLE | {"compared": object(), "adapter": ADAPTER}, {}, "compared", ""),
        ("How many?", WHOLE | {"mode": "table", "adapter": ADAPTER}, {}, "table", ""),
    ],
)
def test_each_case_has_its_strategy_and_stages(question, request_, settings, strategy, stages):
    case = case_of(question, request_, **settings)
    chosen = choose_strategy(case)
    applied = [stage.name for stage in chosen.stages if all(holds(case) for holds in stage.conditions)]
    assert (chosen.name, " ".join(applied)) == (strategy, stages)


def test_the_last_strategy_takes_what_is_left():
    assert STRATEGIES[-1].conditions == ()
    assert len({strategy.name for strategy in STRATEGIES}) == len(STRATEGIES)


def test_the_stages_of_every_strategy_are_in_one_order():
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    for strategy in STRATEGIES:
        assert strategy.stages == tuple(stage for stage in STAGES if stage in strategy.stages)


def test_events_pass_the_stages_from_first_to_last():
    def adding(letter):
        return lambda case, answering: (event + letter for event in answering)

    stages = [Stage("a", adding("a")), Stage("never", adding("x"), (lambda case: False,)), Stage("b", adding("b"))]
    assert list(through_stages(None, iter(["1", "2"]), stages)) == ["1ab", "2ab"]


def test_the_page_on_how_it_works_lists_the_stages_in_their_order():
    rows = re.findall(r"^\| `(\w+)` \| .+ \|$", page("internals").partition("## From a token")[2], re.MULTILINE)
    assert rows == [stage.name for stage in STAGES]
