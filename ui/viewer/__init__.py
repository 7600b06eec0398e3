"""The document viewer beside the chat, which shows the pages, text or tables of a document."""
