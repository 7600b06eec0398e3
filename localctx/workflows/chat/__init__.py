"""Chats: answers questions that refer to earlier questions and answers."""
