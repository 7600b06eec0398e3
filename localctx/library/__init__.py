"""Documents in; text and spans out."""
