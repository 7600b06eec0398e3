"""The model picker of the window: chooses, downloads and describes models."""
