"""Shows the documents of a chat: the panel of sources, and how far each document is read."""
