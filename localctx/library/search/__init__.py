"""Search by words and vectors, and the chunks and sections that it finds."""
