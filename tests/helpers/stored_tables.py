"""Tables of files, for tests."""

from pathlib import Path

from localctx.library.read_document import read_document
from localctx.library.tables.table import DataTable, tables_of
from localctx.store.documents import StoredDocument


def table_of(path: Path, text: str) -> DataTable:
    """Returns the only table of a file with this text, which is written to ``path``."""
    path.write_text(text)
    document = read_document(str(path))
    (table,) = tables_of(StoredDocument(document.row, document.text, document.spans))
    return table
