"""Text to tokens and back, through a model folder's own tokenizer and chat template."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from localctx.models.base import Messages
from localctx.models.chat_template import Marks, literals, render

# Some templates write today's date before the conversation: every document would be read anew every day.
_NO_DATE = "{%- macro strftime_now(format) -%}{%- endmacro -%}"


class ChatTokenizer:
    """A ``tokenizers.Tokenizer`` (``backend``), the model's chat template ("": none), the special tokens that it may
    name, and the tokens that end an answer. ``controls``: control tokens that are not special, where the model's makers
    list them; else those that the template writes.
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

    @cached_property
    def identity(self) -> tuple[str, str]:
        """What decides the tokens of a conversation: the SHA-256 of the tokenizer's whole definition, and the chat
        template. Megabytes are hashed for it, once.
        """
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest(), self._template

    def encode_chat(self, messages: Messages) -> list[int]:
        """See ``Tokenizer``. A model without a chat template gets its messages plainly, one after another."""
        if not self._template:
            text = "\n\n".join([*(m["content"] for m in messages), ""])
            return self._encode(text, split=True, bounds=True)
        marks, template = self._marks, self._template
        template = _NO_DATE + template if "strftime_now" in template else template
        said = [marks.mark(message) for message in messages]
        return self._encode_marked(render(template, said, enable_thinking=False, **self._specials))

    def encode(self, text: str) -> list[int]:
        """See ``Tokenizer``."""
        return self._encode(text, split=True)

    def stream(self) -> Callable[[int], str]:
        """See ``Tokenizer``. Bytes that are not yet a whole character are held back."""
        from tokenizers.decoders import DecodeStream

        decoder, backend = DecodeStream(skip_special_tokens=True), self._backend
        return lambda token: decoder.step(backend, token) or ""

    def _encode(self, text: str, *, split: bool = False, bounds: bool = False) -> list[int]:
        """``split`` takes special tokens for text; ``bounds`` puts before and after it what it puts there."""
        if self._backend.encode_special_tokens != split:
            self._backend.encode_special_tokens = split
        return self._backend.encode(text, add_special_tokens=bounds).ids

    @cached_property
    def _added(self) -> list[Any]:
        found = self._backend.get_added_tokens_decoder()
        return [found[i] for i in sorted(found)]

    @cached_property
    def _marks(self) -> Marks:
        listed, written = self._listed, literals(self._template)

        def controls(text: str) -> bool:
            return text in listed if listed is not None else text in written and not text.isspace()

        found = [token.content for token in self._added if token.special or controls(token.content)]
        return Marks(found, [token.content for token in self._added])

    def _encode_marked(self, text: str) -> list[int]:
        """The tokens of a conversation in which control tokens that are not the template's are marked.

        Raises ValueError where the tokenizer makes a control token of plain text.
        """
        first, *pieces = self._marks.split(text)
        ids = self._encode(first)
        for i, piece in enumerate(pieces):
            if not piece:
                continue
            encode = self._encode if i % 2 else self._spell
            found = self._after_newline(encode, piece)
            if i % 2 == 0 and self._backend.token_to_id(piece) in found:
                raise ValueError(f"{piece!r} cannot be read as text: the tokenizer makes a control token of it")
            ids += found
        return ids

    def _after_newline(self, encode: Callable[[str], list[int]], text: str) -> list[int]:
        """``text`` as it is within a text: some tokenizers put a space before the first letter."""
        newline, found = self._encode("\n"), encode("\n" + text)
        return found[len(newline) :] if found[: len(newline)] == newline else encode(text)

    def _spell(self, text: str) -> list[int]:
        """``text`` without any of the added tokens, special or not."""
        backend = self._backend
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [text]
        if backend.pre_tokenizer is not None:
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in words for token in backend.model.tokenize(word)]


def chat_of(tokenizer: Any, stops: int | list[int] | None) -> ChatTokenizer:
    """A tokenizer of transformers, and the tokens that the model's configs say end an answer."""
    template = tokenizer.chat_template
    if isinstance(template, dict):  # several by name
        template = template.get("default")
    specials = tokenizer.special_tokens_map
    backend = bare(tokenizer.backend_tokenizer)
    ends = stop_ids(backend, stops, specials)
    return ChatTokenizer(backend, template or "", specials, ends, getattr(tokenizer, "chat_control_tokens", None))


def bare(backend: Any) -> Any:
    """``backend`` that neither cuts a text nor fills it up."""
    backend.no_truncation()
    backend.no_padding()
    return backend


def stop_ids(backend: Any, stops: int | list[int] | None, specials: Mapping[str, str]) -> frozenset[int]:
    """The tokens that end an answer: those the model's configs say, and the tokenizer's own."""
    own = backend.token_to_id(specials["eos_token"]) if "eos_token" in specials else None
    return frozenset(i for i in (*(stops if isinstance(stops, list) else [stops]), own) if i is not None)
