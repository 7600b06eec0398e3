"""What is done for a user: ask, chat, search passages, summarize; in terms of the engine and the library."""
