"""The batch page: summaries of many documents, or the same questions to all of them."""
