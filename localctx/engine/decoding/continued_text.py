"""Decodes a continued answer: new tokens are decoded as the continuation of the text that the answer begins with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from localctx.models.base import Messages, Tokenizer


@dataclass(frozen=True)
class ContinuedTokenizer:
    """A tokenizer for an answer that continues the text ``begun``: ``stream`` decodes the new tokens as they follow
    this text. For example, a word keeps the space before it, which would be dropped at the beginning of a text.
    """

    tokenizer: Tokenizer
    begun: str

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids of the tokens that end an answer."""
        return self.tokenizer.stop_ids

    @property
    def calls_tools(self) -> bool:
        return self.tokenizer.calls_tools

    def encode_chat(self, messages: Messages, tools: Sequence[Any] = ()) -> list[int]:
        return self.tokenizer.encode_chat(messages, tools)

    def encode_text(self, text: str) -> list[int]:
        return self.tokenizer.encode_text(text)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def stream(self) -> Callable[[int], str]:
        text_of = self.tokenizer.stream()
        for token in self.tokenizer.encode(self.begun):
            text_of(token)
        return text_of
