"""The documents of a chat, their chips and sources, and how far they are read."""
