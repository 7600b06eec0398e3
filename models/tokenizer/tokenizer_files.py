"""Reads the tokenizer of a NativeDecoder or BertEncoder folder without transformers, if transformers would give the
same result.

transformers rebuilds some tokenizers from their vocabulary, adds tokens named in a config, and repairs known errors. If
a folder needs none of that, the tokenizer is tokenizer.json unchanged.
"""

import json
from pathlib import Path
from typing import Any

from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer, stop_ids, without_padding

_AS_IT_IS = {"TokenizersBackend", "PreTrainedTokenizerFast"}
_QWEN = {"Qwen2Tokenizer", "Qwen2TokenizerFast"}
_CLASSES = {"llama": _AS_IT_IS, "mistral": _AS_IT_IS, "qwen2": _QWEN | _AS_IT_IS, "qwen3": _QWEN | _AS_IT_IS}
_BERT = {"BertTokenizer", "BertTokenizerFast"}
_XLM = {"XLMRobertaTokenizer", "XLMRobertaTokenizerFast"}
_XLM_TOKENS = {"unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>", "cls_token": "<s>"}
_BERT_TOKENS = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_IDLE = {
    *("tokenizer_class", "backend", "is_local", "local_files_only", "model_max_length", "clean_up_tokenization_spaces"),
    *("add_bos_token", "add_eos_token", "errors", "model_input_names", "padding_side", "truncation_side"),
    *("chat_template", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"),
}
"""Keys of tokenizer_config.json that are handled here or have no effect."""

_IDLE_BERT = (_IDLE - {"add_bos_token", "add_eos_token"}) | {
    *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "do_basic_tokenize", "never_split", "name_or_path"),
    *("max_length", "pad_to_multiple_of", "pad_token_type_id", "stride", "truncation_strategy"),
    *("special_tokens_map_file", "sp_model_kwargs", "vocab_file"),
}
"""The same for an encoder's tokenizer."""

_FURTHER_FILES = ("additional_chat_templates", "tekken.json", "added_tokens.json", "chat_template.json")
"""Further files that transformers would read. A folder with one of them is left to transformers."""

_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def find_tokenizer(folder: Path, family: str, stops: int | list[int] | None) -> ChatTokenizer | None:
    """Returns the tokenizer in ``folder``; None if transformers could build a different one. ``stops`` are the stop
    tokens in the model's configs.
    """
    from tokenizers import Tokenizer

    raw = _json(folder / "tokenizer_config.json")
    if raw is None or not _understood(folder, raw, family):
        return None
    backend = without_padding(Tokenizer.from_file(str(folder / "tokenizer.json")))
    qwen = family == "qwen2" or raw["tokenizer_class"] in _QWEN
    named = _named(raw, qwen)
    if qwen:
        _normalize_as_qwen(backend)
    if not _added_already(backend, raw, [*named.values(), *_extras(raw)], qwen) or (qwen and not _is_qwen(backend)):
        return None
    if family == "mistral" and backend.get_vocab_size() > 100_000:  # transformers repairs some of these
        return None
    template = _template(folder, raw)
    return ChatTokenizer(backend, template, named, stop_ids(backend, stops, named))


def find_encoder_tokenizer(folder: Path, longest: int) -> Any | None:
    """Returns the ``tokenizers.Tokenizer`` in the ``folder`` of a BertEncoder; None if transformers could build a
    different one. It truncates texts to ``longest`` tokens or its config's limit, whichever is smaller, pads at the
    end, and encodes special tokens in texts as plain text.
    """
    from tokenizers import Tokenizer

    raw = _json(folder / "tokenizer_config.json")
    if raw is None or not _understood_bert(folder, raw):
        return None
    backend = without_padding(Tokenizer.from_file(str(folder / "tokenizer.json")))
    named = _named_of_encoder(raw)
    if "pad_token" not in named or not _added_already(backend, raw, [*named.values(), *_extras(raw)], qwen=False):
        return None
    if {*backend.encode("a").type_ids} != {0} or not _is_of_its_class(backend, raw, named):
        return None
    backend.encode_special_tokens = True
    backend.enable_truncation(int(min(longest, raw.get("model_max_length", longest))))
    backend.enable_padding(pad_id=backend.token_to_id(named["pad_token"]), pad_token=named["pad_token"])
    return backend


def stops_of(folder: Path, raw: int | list[int] | None) -> int | list[int] | None:
    """Returns the stop tokens in generation_config.json. Without that file, returns ``raw``, the stop tokens in
    config.json.
    """
    generation = _json(folder / "generation_config.json")
    return raw if generation is None else generation.get("eos_token_id")


def _understood_bert(folder: Path, raw: dict[str, Any]) -> bool:
    return (
        raw.get("tokenizer_class") in _BERT | _XLM | _AS_IT_IS
        and raw.keys() - {"add_prefix_space"} <= {*_IDLE_BERT, *_NAMED}
        and raw.get("add_prefix_space", True) is True
        and all(raw.get(side, "right") == "right" for side in ("padding_side", "truncation_side"))
        and isinstance(raw.get("model_max_length", 1), int | float)
        and (folder / "tokenizer.json").is_file()
        and not any((folder / name).exists() for name in _FURTHER_FILES)
    )


def _understood(folder: Path, raw: dict[str, Any], family: str) -> bool:
    template = raw.get("chat_template")
    return (
        raw.get("tokenizer_class") in _CLASSES[family]
        and raw.keys() <= {*_IDLE, *_NAMED}
        and (folder / "tokenizer.json").is_file()
        and not any((folder / name).exists() for name in _FURTHER_FILES)
        and ("added_tokens_decoder" in raw or not (folder / "special_tokens_map.json").exists())
        and (template is None or isinstance(template, str))
    )


def _template(folder: Path, raw: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    return file.read_text(encoding="utf-8") if file.is_file() else raw.get("chat_template") or ""


def _named(raw: dict[str, Any], qwen: bool) -> dict[str, str]:
    """Returns the special tokens by name. For Qwen these include the defaults of transformers' class."""
    own = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>") if qwen else {}
    found = {name: raw.get(name, own.get(name)) for name in _NAMED}
    return {name: _content(token) for name, token in found.items() if token is not None}


def _extras(raw: dict[str, Any]) -> list[str]:
    extras = raw.get("extra_special_tokens") or raw.get("additional_special_tokens") or []
    return [_content(token) for token in (extras.values() if isinstance(extras, dict) else extras)]


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token


def _added_already(backend: Any, raw: dict[str, Any], special: list[str], qwen: bool) -> bool:
    """Returns True if tokenizer.json already has all tokens that transformers would add from the config, with the same
    flags.
    """
    found = backend.get_added_tokens_decoder()
    by_content = {token.content: token for token in found.values()}
    listed = raw.get("added_tokens_decoder", {})
    if qwen and "added_tokens_decoder" in raw and {*map(int, listed)} != found.keys():
        return False  # transformers rebuilds these from vocabulary, merges and the listed tokens
    return all(name in by_content and _plainly_special(by_content[name]) for name in special) and all(
        int(i) in found and _flags(found[int(i)]) == _listed_flags(token) for i, token in listed.items()
    )


def _plainly_special(token: Any) -> bool:
    return token.special and not (token.normalized or token.lstrip or token.rstrip or token.single_word)


def _flags(token: Any) -> tuple[Any, ...]:
    return token.content, token.special, token.normalized, token.lstrip, token.rstrip, token.single_word


def _listed_flags(token: dict[str, Any]) -> tuple[Any, ...]:
    special = token.get("special", False)
    rest = (token.get(name, False) for name in ("lstrip", "rstrip", "single_word"))
    return token.get("content"), special, token.get("normalized", not special), *rest


def _normalize_as_qwen(backend: Any) -> None:
    """Set the normalizer of transformers' Qwen class, which a tokenizer converted from a GGUF lacks."""
    from tokenizers import normalizers

    if backend.normalizer is None:
        backend.normalizer = normalizers.NFC()


def _is_qwen(backend: Any) -> bool:
    """Returns True if ``backend`` equals the tokenizer that transformers' Qwen class would build
    from the vocabulary.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    split = pre_tokenizers.Split(Regex(_QWEN_SPLIT), behavior="isolated", invert=False)
    words = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    model = backend.model
    parts = (
        (backend.normalizer, normalizers.NFC()),
        (backend.pre_tokenizer, words),
        (backend.decoder, decoders.ByteLevel()),
    )
    return (
        type(model).__name__ == "BPE"
        and not (model.dropout or model.unk_token or model.continuing_subword_prefix or model.end_of_word_suffix)
        and not (model.fuse_unk or model.byte_fallback or model.ignore_merges)
        and all(_state(its) == _state(wanted) for its, wanted in parts)
    )


def _named_of_encoder(raw: dict[str, Any]) -> dict[str, str]:
    """Returns the special tokens by name. XLM-R's mask token, which strips the space before it, is left out because
    texts never contain it.
    """
    if raw["tokenizer_class"] in _XLM:
        return {**_XLM_TOKENS, **_named({**raw, "mask_token": None}, qwen=False)}
    return {**(_BERT_TOKENS if raw["tokenizer_class"] in _BERT else {}), **_named(raw, qwen=False)}


def _is_of_its_class(backend: Any, raw: dict[str, Any], named: dict[str, str]) -> bool:
    if raw["tokenizer_class"] in _XLM:
        return _is_xlm(backend, named)
    return raw["tokenizer_class"] not in _BERT or _is_bert(backend, raw, named)


def _is_xlm(backend: Any, named: dict[str, str]) -> bool:
    """Returns True if ``backend`` equals the tokenizer that transformers' XLM-R class would build
    from the vocabulary.
    """
    from tokenizers import pre_tokenizers

    blanks = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), blanks])
    return (
        type(backend.model).__name__ == "Unigram"
        and (_state(backend.normalizer) or {}).get("type", "Precompiled") == "Precompiled"
        and _state(backend.pre_tokenizer) == _state(words)
        and backend.encode("").tokens == [named["cls_token"], named["sep_token"]]
    )


def _is_bert(backend: Any, raw: dict[str, Any], named: dict[str, str]) -> bool:
    """Returns True if ``backend`` equals the tokenizer that transformers' BERT class would build
    from the vocabulary.
    """
    from tokenizers import normalizers, pre_tokenizers

    letters = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=raw.get("tokenize_chinese_chars", True),
        strip_accents=raw.get("strip_accents"),
        lowercase=raw.get("do_lower_case", True),
    )
    model = backend.model
    return (
        type(model).__name__ == "WordPiece"
        and (model.unk_token, model.continuing_subword_prefix) == (named["unk_token"], "##")
        and model.max_input_chars_per_word == 100
        and _state(backend.normalizer) == _state(letters)
        and _state(backend.pre_tokenizer) == _state(pre_tokenizers.BertPreTokenizer())
        and backend.encode("").tokens == [named["cls_token"], named["sep_token"]]
    )


def _state(part: Any) -> Any:
    return part and json.loads(part.__getstate__())


def _json(file: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None
