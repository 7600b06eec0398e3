"""LlamaTokenizer: tokenizes with a GGUF file's vocabulary in llama.cpp, and renders chat templates in our sandbox."""

import codecs
import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from localctx.models.base import Messages
from localctx.models.llama_cpp.library import llama_library
from localctx.models.tokenizer.chat_template import ControlTokenMarker, has_tools, render, template_literals
from localctx.models.tokenizer.chat_tokenizer import NO_DATE

_PIECE = 256  # bytes, enough for the text of nearly every token
_ENCODED = 8  # cached encoded conversations, because each question encodes some of the previous one's again


class LlamaTokenizer:
    """Converts text to the tokens of a GGUF's vocabulary and back. ``model`` is a pointer to a model that ``owner``
    keeps loaded. ``template`` is its chat template (empty: none).
    """

    def __init__(self, model: Any, owner: object, template: str = "") -> None:
        self._library, self._owner, self._template = llama_library(), owner, template
        self._vocabulary = self._library.llama_model_get_vocab(model)
        self.size: int = self._library.llama_vocab_n_tokens(self._vocabulary)
        this = weakref.proxy(self)  # a reference cycle would keep the tokenizer and the weights alive
        self._encode_marked = lru_cache(_ENCODED)(lambda text: this._encode_marked_anew(text))

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The ids of the tokens that end an answer."""
        ends = self._library.llama_vocab_is_eog
        return frozenset(i for i in range(self.size) if ends(self._vocabulary, i))

    @property
    def calls_tools(self) -> bool:
        return has_tools(self._template)

    def encode_chat(self, messages: Messages, tools: Sequence[Any] = ()) -> list[int]:
        """Returns the tokens of the conversation in the model's chat format, up to where the answer begins. The answer
        may call ``tools``. Without a chat template the messages are joined by blank lines.
        """
        if not self._template:
            return self._tokenize("\n\n".join([*(m["content"] for m in messages), ""]), bounds=True)
        template = NO_DATE + self._template if "strftime_now" in self._template else self._template
        marked = [self._marks.mark(message) for message in messages]
        more = {"tools": self._marks.mark_values(tools)} if tools else {}
        text = render(template, marked, enable_thinking=False, **more, **self._specials)
        return list(self._encode_marked(text))

    def encode(self, text: str) -> list[int]:
        return self._tokenize(text)

    def encode_text(self, text: str) -> list[int]:
        """Returns the tokens of a standalone text, with BOS and EOS as the model requires them."""
        return self._tokenize(text, bounds=True)

    def stream(self) -> Callable[[int], str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda token: decoder.decode(self._piece(token))

    def _piece(self, token: int, room: int = _PIECE) -> bytes:
        """Returns the bytes of a token's text; empty for a control token. ``room`` is the size of
        the buffer in bytes.
        """
        text = ctypes.create_string_buffer(room)
        length = self._library.llama_token_to_piece(self._vocabulary, token, text, room, 0, False)
        return text.raw[:length] if length >= 0 else self._piece(token, -length)

    def _tokenize(self, text: str, *, controls: bool = False, bounds: bool = False) -> list[int]:
        """Returns the tokens of ``text``. If ``controls`` is True, control tokens in the text become control tokens,
        not plain text. If ``bounds`` is True, BOS and EOS are added as the model requires. Raises ValueError.
        """
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        count = self._library.llama_tokenize(self._vocabulary, data, len(data), tokens, room, bounds, controls)
        if count < 0:
            raise ValueError(f"a text of {len(data):,} bytes cannot be tokenized")
        return tokens[:count]

    def _encode_marked_anew(self, text: str) -> list[int]:
        """Encode a rendered conversation. Marked control tokens are encoded as plain text."""
        first, *pieces = self._marks.split(text)
        ids = self._tokenize(first, controls=True)
        for i, piece in enumerate(pieces):
            if piece:
                ids += self._after_newline(piece, controls=bool(i % 2))
        return ids

    def _after_newline(self, text: str, controls: bool) -> list[int]:
        """Encode ``text`` as inside a longer text, because some vocabularies add a space before the first letter."""
        newline, encoded = self._tokenize("\n"), self._tokenize("\n" + text, controls=controls)
        if encoded[: len(newline)] == newline:
            return encoded[len(newline) :]
        return self._tokenize(text, controls=controls)

    @cached_property
    def _specials(self) -> Mapping[str, str]:
        """The special tokens that a template may use, by name."""
        library, vocabulary = self._library, self._vocabulary
        ids = {"bos_token": library.llama_vocab_bos(vocabulary), "eos_token": library.llama_vocab_eos(vocabulary)}
        return {name: self._text_of(token) for name, token in ids.items() if token >= 0}

    @cached_property
    def _marks(self) -> ControlTokenMarker:
        written, added, controls = template_literals(self._template), list[str](), list[str]()
        of_its_own = self._library.LLAMA_TOKEN_ATTR_CONTROL | self._library.LLAMA_TOKEN_ATTR_USER_DEFINED
        for token in range(self.size):
            attributes = self._library.llama_vocab_get_attr(self._vocabulary, token)
            if attributes & of_its_own and (text := self._text_of(token)):
                added.append(text)
                if attributes & self._library.LLAMA_TOKEN_ATTR_CONTROL or (text in written and not text.isspace()):
                    controls.append(text)
        return ControlTokenMarker(controls, added)

    def _text_of(self, token: int) -> str:
        return self._library.llama_vocab_get_text(self._vocabulary, token).decode("utf-8", "replace")
