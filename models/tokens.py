"""Text to tokens and back, through a model folder's own tokenizer and chat template."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

from localctx.models.base import Messages

# Some templates write today's date before the conversation: every document would be read anew every day.
_NO_DATE = "{%- macro strftime_now(format) -%}{%- endmacro -%}"


class ChatTokenizer:
    """A transformers fast tokenizer, with the tokens that end an answer."""

    def __init__(self, tokenizer: Any, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.stop_ids = stop_ids

    @cached_property
    def identity(self) -> tuple[str, str]:
        """What decides the tokens of a conversation: the SHA-256 of the tokenizer's whole definition, and the chat
        template. Megabytes are hashed for it, once.
        """
        whole = self._tokenizer.backend_tokenizer.to_str()
        return hashlib.sha256(whole.encode()).hexdigest(), self._tokenizer.chat_template or ""

    def encode_chat(self, messages: Messages) -> list[int]:
        """See ``Tokenizer``. A model without a chat template gets its messages plainly, one after another."""
        template = self._tokenizer.chat_template
        if not template:
            text = "\n\n".join([*(m["content"] for m in messages), ""])
            return self._tokenizer(text, split_special_tokens=True, verbose=False)["input_ids"]
        return self._tokenizer.apply_chat_template(
            list(messages),
            chat_template=_NO_DATE + template if "strftime_now" in template else template,
            add_generation_prompt=True,
            enable_thinking=False,
            sanitize_control_tokens=True,
            tokenizer_kwargs={"verbose": False},
        )["input_ids"]

    def encode(self, text: str) -> list[int]:
        """See ``Tokenizer``."""
        return self._tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]

    def stream(self) -> Callable[[int], str]:
        """See ``Tokenizer``. Bytes that are not yet a whole character are held back."""
        from tokenizers.decoders import DecodeStream

        decoder, backend = DecodeStream(skip_special_tokens=True), self._tokenizer.backend_tokenizer
        return lambda token: decoder.step(backend, token) or ""
