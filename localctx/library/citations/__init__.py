"""Which sentences of a document support an answer."""
