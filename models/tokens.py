"""Text to tokens and back, through a model folder's own tokenizer and chat template."""

from collections.abc import Callable
from typing import Any

from localctx.models.base import Messages


class ChatTokenizer:
    """A transformers fast tokenizer, with the tokens that end an answer."""

    def __init__(self, tokenizer: Any, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.stop_ids = stop_ids

    @property
    def identity(self) -> tuple[str, str]:
        """What decides the tokens of a conversation: the tokenizer's whole definition, and the chat template."""
        return self._tokenizer.backend_tokenizer.to_str(), self._tokenizer.chat_template or ""

    def render(self, messages: Messages) -> str:
        """See ``Tokenizer``. A model without a chat template gets its messages plainly, one after another."""
        if not self._tokenizer.chat_template:
            return "\n\n".join(m["content"] for m in messages) + "\n\n"
        return self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=False
        )

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """See ``Tokenizer``. Special tokens come from the rendered text alone."""
        plain = bool(self._tokenizer.chat_template)
        done = self._tokenizer(text, add_special_tokens=not plain, return_offsets_mapping=True, verbose=False)
        return done["input_ids"], [end for _, end in done["offset_mapping"]]

    def stream(self) -> Callable[[int], str]:
        """See ``Tokenizer``. Bytes that are not yet a whole character are held back."""
        from tokenizers.decoders import DecodeStream

        decoder, backend = DecodeStream(skip_special_tokens=True), self._tokenizer.backend_tokenizer
        return lambda token: decoder.step(backend, token) or ""
