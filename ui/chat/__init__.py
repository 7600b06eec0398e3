"""The chat page: questions, streamed answers, and the list of chats."""
