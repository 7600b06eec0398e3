"""The wording around documents and questions in a prompt. The instructions for summaries are in ``summary_task``."""

from collections.abc import Sequence

ASK = "Answer this question from the document{s} above, in a few words if you can.\nQuestion: {question}"
READER = "Question: {question}"  # for models with an adapter trained on this form (packaging/train_reader.py)
RANKING = READER
"""The form in which the likelihood of a question is computed, whatever the form in which it is answered."""

AS_IT_IS = "{question}"
NOT_SAID = "The document does not say."
BEFORE_QUOTE = 'The answer is "'  # answer prefix for models not trained to answer briefly
SUMMARIZE_CHAT = "Summarize what was said so far."


def content(texts: Sequence[str], question: str, form: str) -> str:
    """Returns the content of the first message of a conversation: the documents ``texts``, then the ``question`` in the
    wording ``form``, a constant of this module such as ASK. Without documents, returns the question alone.

    The first document has no number, so that the pages of a question about it alone are reused when more documents
    follow. ``attribution`` finds the documents by the colon and line break before each.
    """
    if not texts:
        return question
    parts = [f"{'Document' if i == 1 else f'Document {i}'}:\n{text.strip()}" for i, text in enumerate(texts, 1)]
    return "\n\n".join([*parts, form.format(s="" if len(texts) == 1 else "s", question=question)])
