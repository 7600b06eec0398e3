"""Citations: what is quoted is there, and is what supports the answer or was looked at."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ask_in_process import ask
from hypothesis import given, settings
from hypothesis import strategies as st
from keeper_models import FAMILIES, TOKENS, build, decode, read

from localctx.engine.decoding.attribution import attention_by_text
from localctx.engine.prompt import make_prompt
from localctx.kv.attention import attend_cache
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.library.citations.cite import ENOUGH, Citation, cite_from_attention, cite_passages, cite_words
from localctx.library.search.search import Passage
from localctx.library.wording.sentences import LONG, sentences
from localctx.models.catalog import FALLBACK
from localctx.models.tokenizer.chat_tokenizer import chat_tokenizer_of
from localctx.shape import PAGE, SINK_PAGES
from localctx.store.documents import DocumentRow, Span, StoredDocument

PROSE = st.text(st.sampled_from(list("ab R.!?…。\"'”)\n\t1-#é漢\x0b\u2028"))) | st.text()


def found(text: str, start: int = 0, heading: str | None = None, page: str | None = None) -> Passage:
    """A passage as a search gives it."""
    return Passage("d", "d.txt", start, start + len(text), text, heading, page, 1.0, {})


def held(text: str, *spans: Span) -> tuple[DocumentRow, str, tuple[Span, ...]]:
    return DocumentRow("d", "d.txt", "-", "utf-8", len(text), len(text), 0, 0), text, spans


# --- Sentences


def split(text: str) -> list[str]:
    return [text[a:b] for a, b in sentences(text, 0, len(text))]


@given(PROSE, st.integers(0, 50), st.integers(0, 50))
def test_sentences_leave_out_only_the_white_space_around_them(text, start, cut):
    end = max(start, len(text) - cut)
    found = list(sentences(text, start, min(end, len(text))))
    edges = [start, *(edge for pair in found for edge in pair), max(start, end)]
    assert edges == sorted(edges)
    assert all(text[a:b] == text[a:b].strip() != "" for a, b in found)
    assert all(b - a <= LONG for a, b in found)
    assert "".join("".join(text[a:b].split()) for a, b in found) == "".join(text[start:end].split())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Dr. Who met J. R. Hale at 5 p.m. on Monday. He ran, e.g. to Ulm.", 2),
        ('"Why?" she said. "Because!" He left.', 4),
        ("See Fig. 3. No. 5 is lost.", 2),
        ("It is 3.5 km long. Wide, too", 2),
        ("A title\n\nThe text is\nhard-wrapped. It ends.", 3),
        ("Items:\n- one\n- two\n1. three", 4),
        ("二人は歩いた。雨が降った。", 2),
        ("A plan B. was not there etc. but late.", 1),
        ("Es beginnt am 1. Mai 2025. Es endet nie.", 2),
        ("Terms.\n4. Rent. It is 600.", 3),
    ],
)
def test_a_sentence_ends_where_a_reader_would_end_it(text, parts):
    assert len(split(text)) == parts, split(text)


def test_what_is_too_long_to_be_a_sentence_falls_into_lines():
    assert split("a,b\n" * 500) == ["a,b"] * 500
    assert [len(part) for part in split("x" * 2500)] == [1000, 1000, 500]


# --- Quotes of passages

RIVERS = "The Aru is a river. Its source is in the Blue Hills. It is 431 km long."
LAKES = "Lakes are wet. The Blue Lake is 12 km wide. Fish live there."


@given(PROSE, PROSE, st.lists(PROSE, max_size=4), st.integers(0, 3))
def test_a_quote_is_what_stands_there(answer, question, parts, gap):
    text, passages = "", []
    for part in parts:
        text += " " * gap
        passages.append(found(part, len(text)))
        text += part
    for c in cite_passages(answer, question, passages):
        assert text[c.start : c.end] == c.quote == c.quote.strip() != ""
        assert any(p.start <= c.start and c.end <= p.end for p in passages)
        assert 0 <= c.weight <= 1


def test_the_sentence_with_the_answer_is_quoted_and_what_does_not_support_it_is_not():
    (c,) = cite_passages(
        "431 km", "How long is the Aru?", [found(LAKES), found(RIVERS, 100, page="7", heading="Rivers")]
    )
    at = 100 + RIVERS.index("It is")
    assert c == Citation("d", "d.txt", "7", "Rivers", at, 100 + len(RIVERS), "It is 431 km long.", "passage", 1.0)


def test_only_what_says_a_short_answer_word_for_word_is_cited():
    apart = found("The hills there are blue.")
    assert [c.quote for c in cite_passages("Blue Hills", "Where?", [apart, found(RIVERS)])] == [
        "Its source is in the Blue Hills."
    ]


def test_of_two_sentences_with_the_answer_the_one_with_the_question_is_quoted():
    text = "Ulm is old. In 1890 rain fell. The spire was finished in 1890. Much happened in 1890."
    assert [c.quote for c in cite_passages("1890", "When was the spire finished?", [found(text)])] == [
        "The spire was finished in 1890."
    ]


def test_an_answer_of_two_sentences_is_quoted_with_both_and_not_with_a_third():
    (c,) = cite_passages(
        "From the Blue Hills, 431 km long", "Which way?", [found("Rain fell. " + RIVERS + " Boats go.")]
    )
    assert c.quote == "Its source is in the Blue Hills. It is 431 km long."


def test_words_are_found_in_a_language_that_does_not_part_them():
    (c,) = cite_passages("青い丘", "川はどこから?", [found("川は長い。川は青い丘から流れる。雨が降った。")])
    assert (c.quote, c.weight) == ("川は青い丘から流れる。", 1.0)


def test_where_nothing_supports_the_answer_the_nearest_is_cited_as_weak():
    (c,) = cite_passages("Napoleon", "Where do fish live?", [found(LAKES), found(RIVERS)])
    assert (c.quote, c.weight) == ("Fish live there.", 0.0)
    assert cite_passages("Napoleon", "Who?", [found(" \n")]) == cite_passages("Napoleon", "Who?", []) == []


# --- What was looked at


@given(
    PROSE, PROSE, PROSE, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.sampled_from([0.0, 0.2, 0.4])))
)
def test_a_glimpse_is_what_stands_there_too(answer, question, text, parts):
    parts = [(0, min(a, len(text)), min(a + n, len(text)), share) for a, n, share in parts]
    parts.sort(key=lambda part: -part[3])
    cited = cite_from_attention(answer, question, [held(text)], parts)
    assert len(cited) <= 4
    assert len({(c.start, c.end) for c in cited}) == len(cited)
    for c in cited:
        assert text[c.start : c.end] == c.quote == c.quote.strip() != ""
        assert c.source == "attention" or c.weight >= ENOUGH


def test_a_glimpse_is_narrowed_to_the_sentence_that_supports_the_answer_or_to_whole_sentences():
    text = "# Rivers\n\n" + RIVERS + "\n\n# Lakes\n\n" + LAKES
    lakes = text.index("# Lakes")
    document = held(text, Span(0, lakes, "heading", "Rivers"), Span(lakes, len(text), "heading", "Lakes"))
    parts = [(0, 40, lakes - 3, 0.7), (0, lakes + 10, len(text) - 14, 0.3)]
    (rivers,) = cite_from_attention("431 km", "How long?", [document], parts)
    assert (rivers.quote, rivers.heading, rivers.weight, rivers.source) == (
        "It is 431 km long.",
        "Rivers",
        0.7,
        "attention",
    )
    _, around = cite_from_attention("Napoleon", "How wide is the lake?", [document], parts)
    assert (around.quote, around.heading) == ("The Blue Lake is 12 km wide.", "Lakes")


def test_what_nothing_is_known_of_is_searched_only_where_nothing_else_supports_the_answer():
    text = RIVERS + " " + LAKES
    parts = [(0, len(RIVERS) + 1, len(text), 1.0), (0, 0, len(RIVERS), 0.0)]
    said = [(c.quote, c.source) for c in cite_from_attention("431 km", "How long?", [held(text)], parts)]
    assert said == [("It is 431 km long.", "passage")]
    assert [c.source for c in cite_from_attention("12 km", "How wide?", [held(text)], parts)] == ["attention"]
    assert [c.source for c in cite_from_attention("Napoleon", "Who?", [held(text)], parts)] == ["attention"]


def test_without_attention_the_sentences_with_the_answers_words_are_cited_or_the_nearest():
    documents = [StoredDocument(*held(RIVERS)), StoredDocument(*held(LAKES))]
    (river,) = cite_words("431 km", "How long?", documents)
    assert (river.quote, river.source) == ("It is 431 km long.", "words")
    assert river.weight >= ENOUGH
    (nearest,) = cite_words("Napoleon", "How wide is the Blue Lake?", documents)
    assert "Blue Lake" in nearest.quote
    assert (nearest.source, nearest.weight) == ("words", 0)
    assert cite_words("431 km", "How long?", []) == []
    assert cite_words("431 km", "How long?", [StoredDocument(*held(""))]) == []


# --- Pages to characters


@pytest.fixture(scope="module")
def tokenizer():
    from tiny_models import make_tokenizer

    return chat_tokenizer_of(make_tokenizer(), 257)


def watched(got: list[float]) -> SimpleNamespace:
    """A cache of which only this is known: how hard each page was looked at."""
    return SimpleNamespace(attention_mass=np.array(got), evicted=[])


def asked(tokenizer, texts: list[str]) -> list[int]:
    prompt = make_prompt(tokenizer, texts, "Why?")
    return prompt.tokens[: prompt.shared]


@settings(max_examples=50)
@given(texts=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=3), data=st.data())
def test_looks_are_all_of_the_texts_the_hardest_first(tokenizer, texts, data):
    tokens = asked(tokenizer, texts)
    pages = len(tokens) // PAGE
    found = attention_by_text(
        watched(data.draw(st.lists(st.floats(0, 1), min_size=pages, max_size=pages))), tokenizer, tokens, texts
    )
    for i, text in enumerate(texts):
        parts = sorted(look for look in found if look.document == i)
        assert "".join(text[p.start : p.end] for p in parts) == text.strip()
    assert [p.share for p in found] == sorted((p.share for p in found), reverse=True)


@settings(max_examples=50)
@given(
    texts=st.lists(
        st.text("XYZ \n", min_size=80, max_size=300).filter(lambda t: len(t.strip()) >= PAGE), min_size=1, max_size=3
    ),
    data=st.data(),
)
def test_a_look_lies_on_its_page(tokenizer, texts, data):
    tokens = asked(tokenizer, texts)
    page = data.draw(st.integers(0, len(tokens) // PAGE - 1))
    got = [float(n == page) for n in range(len(tokens) // PAGE)]
    on_page = tokenizer._backend.decode(tokens[page * PAGE :][:PAGE], skip_special_tokens=True)
    known = [p for p in attention_by_text(watched(got), tokenizer, tokens, texts) if p.share]
    assert all(texts[p.document][p.start : p.end] in on_page for p in known)
    assert all(p.share == 1 for p in known)
    assert bool(known) == (page >= SINK_PAGES and any(c in on_page for c in "XYZ"))


def test_texts_that_the_tokens_do_not_spell_are_not_looked_for(tokenizer):
    tokens = asked(tokenizer, ["abc " * 40])
    assert attention_by_text(watched([1.0] * 9), tokenizer, tokens, ["abd " * 40]) == []


# --- Watching

KEEPS = ["full", "sink-window:256", "h2o:256", "snapkv:256", "select:1/4"]


@pytest.fixture(scope="module")
def models():
    return {family: build(family) for family in FAMILIES}


def follow(model, keep: str, watch: bool, **how) -> tuple[Cache, torch.Tensor]:
    cache = Cache(
        Pool(model.shape, "int8", rope=model.rope, **how), torch.float32, make_keeper(keep, 640), model.context
    )
    read(model, cache, TOKENS[:636], asked=70)
    if watch:
        cache.record_attention()
    return cache, decode(model, cache, 6)  # of which one page is sealed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "keep"),
    [*(("llama", keep) for keep in KEEPS), *((f, k) for f in list(FAMILIES)[1:] for k in ("full", "select:1/4"))],
)
def test_watching_changes_no_answer_and_is_the_same_wherever_records_are(models, family, keep):
    (cache, logits), (_, unwatched) = (follow(models[family], keep, watch) for watch in (True, False))
    assert torch.equal(logits, unwatched)
    assert len(cache.attention_mass) == 9
    assert (cache.attention_mass.sum() > 0) == (cache.pool.shape.layers[-1].window is None or family == "gemma2")
    elsewhere, _ = follow(models[family], keep, True, in_place=False)
    np.testing.assert_allclose(cache.attention_mass, elsewhere.attention_mass, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_h2o_keeps_the_same_pages_watched_or_not(models):
    (one, _), (other, _) = (follow(models["llama"], "h2o:256", watch) for watch in (True, False))
    assert [p.token for p in one.placed_pages] == [p.token for p in other.placed_pages]
    assert np.array_equal(one.history.page_mass, other.history.page_mass)


@pytest.mark.slow
def test_the_page_whose_keys_match_is_looked_at(models):
    """Whatever the other pages hold; and only late layers count."""
    shape = models["llama"].shape
    direction = torch.nn.functional.normalize(torch.ones(16), dim=0)
    for keep in ("full", "select:1/4"):
        cache = Cache(Pool(shape, "f32"), torch.float32, make_keeper(keep, 1280))
        cache.enter_phase("answering")
        k = torch.randn(2, 20 * PAGE, 16, generator=torch.Generator().manual_seed(0)) * 0.1
        k[:, 13 * PAGE + 5] = 40 * direction
        cache.begin(20 * PAGE)
        for layer in range(4):
            cache.extend(layer, k, k)
        cache.commit()
        cache.record_attention()
        q, new = (direction.expand(heads, 1, 16) for heads in (4, 2))
        for layer, heads in enumerate((0, 0, 4, 8)):  # looked at with a mass of 1 by every head so far
            attend_cache(cache, layer, q, new, new, 1.0)
            assert cache.attention_mass == pytest.approx([0.0] * 13 + [heads] + [0.0] * 6, abs=1e-6)


@pytest.mark.slow
def test_forks_add_to_what_was_looked_at_and_a_trim_leaves_it(models):
    model = models["llama"]
    cache, _ = follow(model, "full", True)
    before, twin = cache.attention_mass.copy(), cache.fork()
    twin.trim(600)
    model.forward(TOKENS[:3], twin)
    model.forward([5], twin)
    assert (cache.attention_mass[:9] > before[:9]).all()
    assert cache.attention_mass is twin.attention_mass
    alone = cache.fork(recording=False)
    before = cache.attention_mass.copy()
    model.forward([5], alone)
    assert np.array_equal(cache.attention_mass, before)


# --- Answers


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, {"n": 2, "temperature": 1.0, "seed": 1}, {"beams": 2}, *({"keep": k} for k in KEEPS)]
)
def test_every_kind_of_answer_is_cited(home, sharp_model, tmp_path, more):
    texts = {name: "".join(f"{name} {i} is {i * 37} km long.\n" for i in range(26)) for name in ("River", "Road")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    report = ask(home, sharp_model, *(tmp_path / name for name in texts), **more).report.to_json()
    cited = report["citations"]
    assert bool(cited) == (more.get("keep") != "snapkv:256"), "what snapkv packs is no page of the text any more"
    assert all(texts[c["name"]][c["start"] : c["end"]] == c["quote"] for c in cited)
    assert [c["weight"] for c in cited] == sorted((c["weight"] for c in cited), reverse=True)


@pytest.mark.slow
def test_a_person_who_watches_sees_where_it_stands(home, tmp_path, capsys, monkeypatch, run, tiny_model):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    document = tmp_path / "bell.md"
    document.write_text("# Bells\n\n" + "The \x1b[31m bell \x07 rings. " * 40)
    done = run("ask", document, "Why?", "--model", tiny_model, "--max-tokens", 4, "--device", "cpu")
    lines = [line for line in done.stderr.splitlines() if "bell.md" in line and line.startswith("see")]
    assert lines
    assert all('see "The [31m bell rings.' in line and '(bell.md, under "Bells")' in line for line in lines)
    assert "\x07" not in done.stderr


@pytest.mark.slow
def test_a_needle_is_cited_by_the_attention_of_the_default_model(default_home, tmp_path):
    """One sentence among some 2,000 tokens of other names and numbers."""
    needle = "The lighthouse keeper of Brannoch is called Tobias Fennimore."
    places = [
        "Arden",
        "Calloway",
        "Dunmore",
        "Elmhurst",
        "Farrow",
        "Glenside",
        "Harwick",
        "Inverleigh",
        "Juniper",
        "Kestrel",
    ]
    trades = [
        "a mill by the old bridge",
        "two schools and a market",
        "a harbour for small boats",
        "nine farms on its hills",
    ]
    lines = [
        f"The village of {p} has {t}, and {20 + 7 * i + j} people came to its fair."
        for i, p in enumerate(places)
        for j, t in enumerate(trades)
    ]
    lines = lines + [line.replace("village", "parish") for line in lines]
    text = " ".join([*lines[:31], needle, *lines[31:]])
    document = tmp_path / "villages.txt"
    document.write_text(text)
    report = ask(
        tmp_path / "home",
        default_home / "models" / FALLBACK,
        document,
        question="What is the name of the lighthouse keeper of Brannoch?",
        chunk=512,
    ).report.to_json()
    assert report["tokens"]["prompt"] > 1800
    first = report["citations"][0]
    assert (first["source"], first["quote"]) == ("attention", needle), report
