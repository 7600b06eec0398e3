"""Constrained decoding: masks the logits of tokens that a grammar does not allow next (llguidance)."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.errors import UsageError
from localctx.models.base import Tokenizer
from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer

JSON_OBJECT = {"type": "object"}
MAX_ERROR = 200  # characters of llguidance's error message


def json_grammar(schema: Any) -> str:
    """Returns the grammar of JSON texts with this schema. Raises UsageError for an unsupported schema."""
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults={"whitespace_flexible": False})
    except ValueError as e:
        raise _refused(str(e)) from e
    if LLMatcher.validate_grammar(grammar):
        raise _refused(LLMatcher.validate_grammar(grammar))
    return grammar


def choice_grammar(texts: Sequence[str]) -> str:
    """Returns the grammar of exactly one of ``texts``."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_lark(f"start: {' | '.join(json.dumps(text, ensure_ascii=False) for text in texts)}")


class Constraint:
    """A LogitsProcessor that keeps one answer within ``grammar``. Raises UsageError for a grammar or tokenizer that
    llguidance does not support.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: str) -> None:
        from llguidance import LLMatcher

        if not isinstance(tokenizer, ChatTokenizer):
            raise UsageError("llama.cpp does not support grammars here", "use --engine torch")
        self._matcher = LLMatcher(tokenizer.for_grammars, grammar, log_level=0)
        self._check()

    def __call__(self, logits: Tensor) -> Tensor:
        """Returns the logits, with minus infinity for tokens that the grammar does not allow next."""
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        allowed = torch.from_numpy(np.unpackbits(mask, bitorder="little")[: len(logits)].astype(bool))
        allowed = torch.nn.functional.pad(allowed, (0, len(logits) - len(allowed)))
        return logits.masked_fill(~allowed.to(logits.device), -torch.inf)

    def accept(self, token: int) -> None:
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refused(self._matcher.get_error())


def _refused(why: str) -> UsageError:
    line = next(iter(why.strip().splitlines()), "")[:MAX_ERROR]
    return UsageError(f"no answer can follow this schema ({line})", "simplify the schema")
