"""ChatTokenizer: encodes texts and conversations, and decodes tokens, with a model's tokenizer and chat template."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from localctx.models.base import Messages
from localctx.models.tokenizer.chat_template import (
    ControlTokenMarker,
    has_tools,
    render,
    start_rendering,
    template_literals,
)

NO_DATE = "{%- macro strftime_now(format) -%}{%- endmacro -%}"
"""Disables the date that some templates write before the conversation. It would invalidate stored prefixes daily."""


class ChatTokenizer:
    """Encodes and decodes text with a ``tokenizers.Tokenizer`` (``backend``), the model's chat template (empty: none),
    the special tokens that the template may use, and the stop tokens.

    ``controls`` are the control tokens that are not special tokens, if the model lists them. Otherwise they are the
    added tokens that occur in the text of the template.
    """

    def __init__(
        self,
        backend: Any,
        template: str = "",
        specials: Mapping[str, str] | None = None,
        stop_ids: frozenset[int] = frozenset(),
        controls: Sequence[str] | None = None,
    ) -> None:
        self._backend, self._template, self._specials = backend, template, specials or {}
        self.stop_ids, self._listed = stop_ids, controls
        if template:
            start_rendering()

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Everything on which the tokens of a conversation depend, for fingerprints: the SHA-256 of the tokenizer's
        definition (megabytes, hashed once) and the chat template.
        """
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest(), self._template

    @property
    def calls_tools(self) -> bool:
        return has_tools(self._template)

    def encode_chat(self, messages: Messages, tools: Sequence[Any] = ()) -> list[int]:
        """Returns the tokens of the conversation in the model's chat format, up to where the answer begins. The answer
        may call ``tools``. Without a chat template the messages are joined by blank lines.
        """
        if not self._template:
            text = "\n\n".join([*(m["content"] for m in messages), ""])
            return self._encode(text, split=True, bounds=True)
        marks, template = self._marks, self._template
        template = NO_DATE + template if "strftime_now" in template else template
        marked = [marks.mark(message) for message in messages]
        more = {"tools": marks.mark_values(tools)} if tools else {}
        return self._encode_marked(render(template, marked, enable_thinking=False, **more, **self._specials))

    def encode(self, text: str) -> list[int]:
        return self._encode(text, split=True)

    def encode_text(self, text: str) -> list[int]:
        return self._encode(text, split=True, bounds=True)

    @cached_property
    def for_grammars(self) -> Any:
        """The tokenizer in the form that llguidance needs, which takes a second to create."""
        from llguidance import LLTokenizer

        return LLTokenizer(self._backend.to_str(), eos_token=sorted(self.stop_ids))

    def stream(self) -> Callable[[int], str]:
        """Returns a function that decodes an answer token by token: it takes the next token and returns the text that
        this token completes. The text is empty while the bytes of a character are incomplete.
        """
        from tokenizers.decoders import DecodeStream

        decoder, backend = DecodeStream(skip_special_tokens=True), self._backend
        return lambda token: decoder.step(backend, token) or ""

    def _encode(self, text: str, *, split: bool = False, bounds: bool = False) -> list[int]:
        """Returns the tokens of ``text``. If ``split`` is True, special tokens in the text are encoded as plain text.
        If ``bounds`` is True, the tokenizer's BOS and EOS are added.
        """
        if self._backend.encode_special_tokens != split:
            self._backend.encode_special_tokens = split
        return self._backend.encode(text, add_special_tokens=bounds).ids

    @cached_property
    def _added(self) -> list[Any]:
        by_id = self._backend.get_added_tokens_decoder()
        return [by_id[i] for i in sorted(by_id)]

    @cached_property
    def _marks(self) -> ControlTokenMarker:
        listed, written = self._listed, template_literals(self._template)

        def controls(text: str) -> bool:
            return text in listed if listed is not None else text in written and not text.isspace()

        tokens = [token.content for token in self._added if token.special or controls(token.content)]
        return ControlTokenMarker(tokens, [token.content for token in self._added])

    def _encode_marked(self, text: str) -> list[int]:
        """Encode a rendered conversation. Marked control tokens are encoded as plain text.

        Raises ValueError if the tokenizer cannot encode one as plain text.
        """
        first, *pieces = self._marks.split(text)
        ids = self._encode(first)
        for i, piece in enumerate(pieces):
            if not piece:
                continue
            encode = self._encode if i % 2 else self._spell
            encoded = self._after_newline(encode, piece)
            if i % 2 == 0 and self._backend.token_to_id(piece) in encoded:
                raise ValueError(f"{piece!r} cannot be read as text: the tokenizer makes a control token of it")
            ids += encoded
        return ids

    def _after_newline(self, encode: Callable[[str], list[int]], text: str) -> list[int]:
        """Encode ``text`` as inside a longer text, because some tokenizers add a space before the first letter."""
        newline, encoded = self._encode("\n"), encode("\n" + text)
        return encoded[len(newline) :] if encoded[: len(newline)] == newline else encode(text)

    def _spell(self, text: str) -> list[int]:
        """Encode ``text`` without any added tokens, special or not."""
        backend = self._backend
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [text]
        if backend.pre_tokenizer is not None:
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in words for token in backend.model.tokenize(word)]


def chat_tokenizer_of(tokenizer: Any, stops: int | list[int] | None) -> ChatTokenizer:
    """Wrap a transformers tokenizer. ``stops`` are the stop tokens in the model's configs."""
    template = tokenizer.chat_template
    if isinstance(template, dict):  # several by name
        template = template.get("default")
    specials = tokenizer.special_tokens_map
    backend = without_padding(tokenizer.backend_tokenizer)
    ends = stop_ids(backend, stops, specials)
    return ChatTokenizer(backend, template or "", specials, ends, getattr(tokenizer, "chat_control_tokens", None))


def without_padding(backend: Any) -> Any:
    """Disable truncation and padding of ``backend``, and return it."""
    backend.no_truncation()
    backend.no_padding()
    return backend


def stop_ids(backend: Any, stops: int | list[int] | None, specials: Mapping[str, str]) -> frozenset[int]:
    """Returns the ids of the stop tokens: ``stops``, which are from the model's configs, and the EOS token among
    ``specials``.
    """
    own = backend.token_to_id(specials["eos_token"]) if "eos_token" in specials else None
    return frozenset(i for i in (*(stops if isinstance(stops, list) else [stops]), own) if i is not None)
