"""The batch page: the same question to many documents, or their summaries."""
