"""Reads PDFs: letters and their places, tables, columns, forms and comments, running heads, OCR, drawn pages."""
