"""The words around documents and questions in a prompt. What a task asks of each document is in ``summary_task``."""

from collections.abc import Sequence

ASK = "Answer this question from the document{s} above, in a few words if you can.\nQuestion: {question}"
READER = "Question: {question}"  # for models with an adapter that was trained on it (packaging/train_reader.py)
RANKING = READER
"""The form in which the likelihood of a question is computed, whatever form it is then answered in."""

AS_IT_IS = "{question}"
NOT_SAID = "The document does not say."
BEFORE_QUOTE = 'The answer is "'  # begins the answer of a model that was not trained to answer briefly
SUMMARIZE_CHAT = "Summarize what was said so far."


def content(texts: Sequence[str], question: str, form: str) -> str:
    """The first message of a conversation: the documents, and the question in ``form``, which is one of the wordings
    above. The first document has no number, so that the pages of a question about it alone are reused where others
    follow it. ``attribution`` finds the documents again by the line break after the colon.
    """
    if not texts:
        return question
    parts = [f"{'Document' if i == 1 else f'Document {i}'}:\n{text.strip()}" for i, text in enumerate(texts, 1)]
    return "\n\n".join([*parts, form.format(s="" if len(texts) == 1 else "s", question=question)])
