"""Lists the reasons why a model family is unsupported, and defines the error that carries a reason."""

from localctx.errors import ModelError

REMEDY = "see: localctx models list"
REASONS = {
    "encoder": "it has an encoder",
    "not a decoder": "its tokens attend to later ones",
    "no decoder": "transformers builds no text decoder of it",
    "layers": "transformers builds no layers from its config ({why})",
    "library": "transformers needs a library for it that is not installed ({why})",
    "kinds": "its {kinds} layers keep neither pages nor states that localctx knows",
    "no heads": "its config tells no heads of keys and values",
    "no window": "its config tells no context window",
    "index": "it picks keys by an index of its own, which has no pages",
    "shared": "its layers share keys and values in a way of its own",
    "dynamic": "its RoPE frequencies change with length",
    "own attention": "it computes attention in code of its own",
    "order": "its layers do not attend once each, in order ({told})",
    "options": "its attention takes {names}, which a cache of pages does not have",
    "positions": "it counts positions by itself",
    "mask": "its attention has a mask of its own",
    "window": "its attention sees other tokens than its config tells ({told})",
    "widths": "its keys and values are {found}, and its config tells {expected}",
    "states": "its layers remember in states of a way of their own",
    "states only": "it has no keys and values, and remembers in states alone",
    "forgets": "its layers forget their state where several tokens follow it",
    "latents": "it caches latents in a way of its own",
    "not run": "its layers do not run over a cache of pages",
}
"""Reasons by short name. Whoever raises the error fills in the words in braces."""


class UnsupportedModel(Exception):
    """Raised for a model that localctx would compute incorrectly. ``reason`` is a sentence for the user. Code that
    catches this exception calls ``of`` to make a ModelError that names the model family.
    """

    def __init__(self, reason: str, **told: object) -> None:
        self.reason = REASONS[reason].format(**told)
        super().__init__(self.reason)

    def of(self, family: str) -> ModelError:
        """Returns the error to show to the user, which names the model ``family``."""
        return ModelError(f"{family} models are not supported: {self.reason}", REMEDY)


def one_line(error: Exception) -> str:
    """Returns the first line of a library's error message, at most 120 characters; its type if the message is empty."""
    text = next(iter(str(error).strip().splitlines()), "").strip() or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."
