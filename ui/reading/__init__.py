"""The documents of a chat, and the card that shows how far they are read."""
