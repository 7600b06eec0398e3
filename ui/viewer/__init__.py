"""The document beside the chat, as the file shows it."""
