"""The commands over many documents: summaries and tables, computed here or on other machines."""
