"""Conversations and answers as HTML: cards with their evidence, actions and versions."""
