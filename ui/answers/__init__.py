"""Renders conversations and answers as HTML. An answer is a card with its evidence, actions and versions."""
