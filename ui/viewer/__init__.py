"""The document viewer beside the chat, which shows the pages of a document."""
