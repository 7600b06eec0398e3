"""What a chat is about, and how far that is read."""
