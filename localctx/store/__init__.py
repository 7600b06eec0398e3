"""What outlives the process: documents, page names and page payloads. Knows pages, not models."""
