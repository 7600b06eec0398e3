"""Computes answers over the rows of tables: queries in SQL that a question may mean, and their results."""
