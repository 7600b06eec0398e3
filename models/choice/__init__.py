"""Chooses the model, weights and engine for this machine, and estimates what they need."""
