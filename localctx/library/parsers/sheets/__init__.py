"""Reads the rows of spreadsheets and CSV files as text: each row names its values."""
