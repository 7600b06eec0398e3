"""Defines the store's tables as migrations, applied in order. Each migration and its record share a transaction."""

from pathlib import Path

from sqlite_utils import Database, Migrations

from localctx.store.document_files import fill_files
from localctx.store.row_checksum import CHECKED, add_checksums, drop_triggers
from localctx.store.search_words import signs_apart, terms_as_written, usual_form, words_of_chunks

migrate = Migrations("localctx")


@migrate()
def documents_and_pages(db: Database) -> None:
    """Create documents with their text and spans; caches as lists of page names; pages as slots of segment files."""
    db.table("documents").create(
        {
            "id": str,  # sha256 of the text as UTF-8
            "name": str,
            "path": str,
            "encoding": str,
            "bytes": int,  # of the source file
            "chars": int,
            "text": str,
            "added": float,  # seconds since 1970, as all times here
            "used": float,
        },
        pk="id",
        not_null={"name", "text"},
    )
    db.table("spans").create(
        {"document": str, "start": int, "end": int, "kind": str, "label": str},
        foreign_keys=[("document", "documents", "id")],
    )
    db.table("spans").create_index(["document", "start"])
    db.table("segments").create({"id": str, "slot_bytes": int, "created": float}, pk="id")  # <id>.kv in pages/
    db.table("pages").create(
        {"name": bytes, "tokens": bytes, "segment": str, "slot": int, "bytes": int, "checksum": bytes},
        pk="name",
        foreign_keys=[("segment", "segments", "id")],
    )
    db.table("pages").create_index(["segment"])
    db.table("caches").create(
        {
            "id": str,  # hash of fingerprint and documents
            "fingerprint": bytes,
            "model": str,
            "codec": str,
            "keeper": str,
            "tokens": int,  # target: the number of the documents' tokens
            "state": str,  # writing, then ready
            "created": float,
            "used": float,
        },
        pk="id",
    )
    db.table("cache_documents").create(
        {"cache": str, "position": int, "document": str},
        pk=("cache", "position"),
        foreign_keys=[("cache", "caches", "id"), ("document", "documents", "id")],
    )
    db.table("cache_pages").create({"cache": str, "position": int, "page": bytes}, pk=("cache", "position"))
    db.table("cache_pages").create_index(["page"])
    db.table("rates").create({"what": str, "per_second": float, "measured": float}, pk="what")


@migrate()
def verdicts(db: Database) -> None:
    """Add quality results: measurements of a codec on a model by ``localctx quality``. (Verdict is their earlier
    name.)
    """
    db.table("verdicts").create(
        {"fingerprint": bytes, "model": str, "codec": str, "passed": int, "report": str, "measured": float},
        pk="fingerprint",
        not_null={"passed", "report"},
    )


@migrate()
def chats(db: Database) -> None:
    """Add chats as trees of messages; a cache may belong to a chat."""
    db.table("chats").create(
        {
            "id": str,
            "title": str,
            "settings": str,  # JSON
            "leaf": int,  # last message of the branch shown, null before the first message
            "created": float,
            "used": float,
        },
        pk="id",
        not_null={"title", "settings"},
    )
    db.table("chat_documents").create(
        {"chat": str, "position": int, "document": str, "name": str},  # the name outlives the document
        pk=("chat", "position"),
        foreign_keys=[("chat", "chats", "id")],
    )
    db.table("messages").create(
        {
            "id": int,
            "chat": str,
            "parent": int,  # null for a first message
            "role": str,
            "text": str,
            "citations": str,  # JSON
            "stats": str,  # JSON
            "stopped": str,  # eos, length or cancelled; empty for a question
            "created": float,
        },
        pk="id",
        not_null={"role", "text"},
        foreign_keys=[("chat", "chats", "id"), ("parent", "messages", "id")],
    )
    db.table("messages").create_index(["chat"])
    db.table("messages").create_index(["parent"])
    db.execute("ALTER TABLE caches ADD COLUMN chat TEXT REFERENCES chats(id)")


@migrate()
def pins(db: Database) -> None:
    """Add pinned documents, whose pages are never evicted."""
    db.execute("ALTER TABLE documents ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")


@migrate()
def versions(db: Database) -> None:
    """Add the id of a document's next version, and the modification time of its file. Texts of one path become versions
    of each other, by age.
    """
    db.table("documents").add_column("modified", int, not_null_default=0)  # nanoseconds since 1970
    db.table("documents").add_column("superseded", str)
    db.table("documents").create_index(["path"])
    db.execute(
        """UPDATE documents SET superseded = (SELECT newer.id FROM documents AS newer
        WHERE newer.path = documents.path AND newer.added > documents.added ORDER BY newer.added LIMIT 1)
        WHERE path <> '-'"""
    )


@migrate()
def search_index(db: Database) -> None:
    """Add document chunks, a word index without a copy of the text, and the vectors of the chunks' parts."""
    db.table("chunks").create(
        {"id": int, "document": str, "start": int, "end": int, "title": str},
        pk="id",
        not_null={"document", "start", "end", "title"},
        foreign_keys=[("document", "documents", "id")],
    )
    db.table("chunks").create_index(["document", "start"])
    db.execute("CREATE VIRTUAL TABLE chunk_words USING fts5(words, content='', tokenize='porter unicode61')")
    db.table("vectors").create(
        {"chunk": int, "part": int, "embedder": str, "vector": bytes},  # float16, little-endian
        pk=("chunk", "part"),
        not_null={"embedder", "vector"},
        foreign_keys=[("chunk", "chunks", "id")],
    )


@migrate()
def results(db: Database) -> None:
    """Add batch results and the files they were written to."""
    db.table("results").create(
        {"document": str, "recipe": str, "result": str, "made": float},  # result: JSON
        pk=("document", "recipe"),
        not_null={"result"},
        foreign_keys=[("document", "documents", "id")],
    )
    db.table("written").create({"file": str, "document": str, "holds": str}, pk="file", not_null={"document", "holds"})
    db.table("written").create_index(["document"])


@migrate()
def signs_are_words(db: Database) -> None:
    """Rebuild the word index so that each kana or Chinese character is a word of its own."""
    rows = db.query(
        """SELECT chunks.id, title || char(10) || substr(text, start + 1, "end" - start) AS words
        FROM chunks JOIN documents ON documents.id = chunks.document WHERE text GLOB '*[\u3040-\u9fff]*'"""
    )
    for row in list(rows):
        db.execute("INSERT INTO chunk_words (chunk_words, rowid, words) VALUES ('delete', :id, :words)", row)
        db.execute("INSERT INTO chunk_words (rowid, words) VALUES (?, ?)", [row["id"], signs_apart(row["words"])])


@migrate()
def passage_answers(db: Database) -> None:
    """Add the answers of single passages to questions asked of every passage."""
    db.table("passage_answers").create(
        {
            "recipe": str,
            "document": str,
            "start": int,
            "end": int,
            "answer": str,  # null: the passage has no answer
            "quote_start": int,
            "quote_end": int,
            "made": float,
        },
        pk=("recipe", "document", "start", "end"),
        not_null={"made"},
        foreign_keys=[("document", "documents", "id")],
    )
    db.table("passage_answers").create_index(["document"])


@migrate()
def snapshots(db: Database) -> None:
    """Let rows of the table of pages also be snapshots of a sequence's state, each of which continues its
    ``parent``.
    """
    db.execute("ALTER TABLE pages ADD COLUMN parent BLOB")
    db.table("pages").create_index(["parent"])


@migrate()
def watched_folders(db: Database) -> None:
    """Add watched folders and the state of their files."""
    db.table("watched_folders").create({"path": str, "added": float, "paused": int}, pk="path")
    db.table("watched_files").create(
        {
            "path": str,
            "bytes": int,
            "modified": int,  # nanoseconds since 1970
            "content": str,  # a hash of the file's bytes
            "document": str,  # may have left the library
            "indexed": int,
            "recipe": str,
            "note": str,
            "gone": float,  # 0: the file is there
        },
        pk="path",
        not_null={"document"},
    )
    db.table("watched_files").create_index(["document"])
    db.table("watched_files").create_index(["content"])


@migrate()
def collections(db: Database) -> None:
    """Add tables for collections, which are named groups of documents."""
    db.table("collections").create({"id": int, "name": str, "created": float}, pk="id", not_null={"name"})
    db.table("collection_documents").create(
        {"collection": int, "document": str},
        pk=("collection", "document"),
        foreign_keys=[("collection", "collections", "id"), ("document", "documents", "id")],
    )
    db.table("collection_documents").create_index(["document"])


@migrate()
def originals(db: Database) -> None:
    """Add the source files' hashes, the kept original files and the word boxes of pages, to show pages."""
    db.table("documents").add_column("content", str, not_null_default="")  # SHA-256 in hex; empty: not known
    db.table("originals").create(
        {"document": str, "content": str, "bytes": int},  # the file <content> in originals/
        pk="document",
        not_null={"content", "bytes"},
        foreign_keys=[("document", "documents", "id")],
    )
    db.table("originals").create_index(["content"])
    db.table("word_boxes").create(
        {"document": str, "page": int, "width": float, "height": float, "words": bytes},  # page from 0; points
        pk=("document", "page"),
        not_null={"width", "height", "words"},
        foreign_keys=[("document", "documents", "id")],
    )


@migrate()
def deletions(db: Database) -> None:
    """Add the trash: all rows of a deleted document or chat, packed, so that it can be restored for a while."""
    db.table("deletions").create(
        {
            "id": int,
            "kind": str,  # document or chat
            "item": str,
            "name": str,
            "deleted": float,
            "content": str,  # name of the document's file in originals/, if kept
            "rows": bytes,  # JSON of lists of rows by table, compressed
        },
        pk="id",
        not_null={"kind", "item", "name", "deleted", "rows"},
    )
    db.table("deletions").create_index(["deleted"])


@migrate()
def row_checksums(db: Database) -> None:
    """Add checksums of the rows that cannot be rebuilt."""
    for table in CHECKED:
        if db.table(table).exists():
            add_checksums(db, table)


@migrate()
def parts_of_words(db: Database) -> None:
    """Add parts of words to the word index, for documents in other languages than English."""
    for chunk, text, words, _ in words_of_chunks(db, terms_as_written):
        if (before := signs_apart(text)) != words:
            db.execute("INSERT INTO chunk_words (chunk_words, rowid, words) VALUES ('delete', ?, ?)", [chunk, before])
            db.execute("INSERT INTO chunk_words (rowid, words) VALUES (?, ?)", [chunk, words])


@migrate()
def unread_parts(db: Database) -> None:
    """Add a column for the parts of a document's file that could not be read, one a line."""
    drop_triggers(db, "documents")
    db.table("documents").add_column("unread", str, not_null_default="")
    add_checksums(db, "documents")


@migrate()
def files(db: Database) -> None:
    """Add the files of documents, because several files may have the same text. Recorded first are the files that
    documents are named after, and the copies of these in watched folders.
    """
    db.table("files").create(
        {
            "path": str,
            "document": str,
            "name": str,
            "encoding": str,
            "bytes": int,
            "modified": int,  # nanoseconds since 1970
            "content": str,  # SHA-256 in hex; empty: not known
            "unread": str,
            "read": float,
        },
        pk="path",
        not_null={"document", "name"},
        foreign_keys=[("document", "documents", "id")],
    )
    db.table("files").create_index(["document"])
    add_checksums(db, "files")
    fill_files(db)
    for copy in list(db.query("SELECT path, document, bytes, modified, content FROM watched_files WHERE gone = 0")):
        about = {"name": Path(copy["path"]).name, "encoding": "", "unread": "", "read": 0.0}
        if db.table("documents").count_where("id = ? AND superseded IS NULL", [copy["document"]]):
            db.table("files").insert({**copy, **about}, ignore=True)
    db.execute(
        "UPDATE files SET encoding = documents.encoding FROM documents WHERE files.encoding = '' AND id = document"
    )


@migrate()
def indexing_in_steps(db: Database) -> None:
    """Add a table of documents that are indexed completely, because indexing now adds chunks in several steps. Add a
    count of removals of vectors.
    """
    db.table("indexed").create({"document": str}, pk="document", foreign_keys=[("document", "documents", "id")])
    db.execute("INSERT INTO indexed SELECT DISTINCT document FROM chunks")
    db.table("vector_removals").create({"count": int}, not_null={"count"})
    db.table("vector_removals").insert({"count": 0})


@migrate()
def usual_letters(db: Database) -> None:
    """Rebuild the word index with texts in their usual form: ligatures as letters, full-width characters as usual ones,
    and words without invisible characters.
    """
    for chunk, text, words, latin in words_of_chunks(db):
        if usual_form(text) != text:
            before = terms_as_written(text, latin)
            db.execute("INSERT INTO chunk_words (chunk_words, rowid, words) VALUES ('delete', ?, ?)", [chunk, before])
            db.execute("INSERT INTO chunk_words (rowid, words) VALUES (?, ?)", [chunk, words])


@migrate()
def sure_answers(db: Database) -> None:
    """Mark the answers of passages that the model was not sure of."""
    db.execute("ALTER TABLE passage_answers ADD COLUMN sure INTEGER NOT NULL DEFAULT 1")
