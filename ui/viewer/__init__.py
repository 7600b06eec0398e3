"""The document viewer beside the chat, which shows the pages of the file."""
