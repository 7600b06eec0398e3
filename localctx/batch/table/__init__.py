"""Makes a table of many documents: a row for each document, a column for each question."""
