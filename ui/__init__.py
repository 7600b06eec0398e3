"""The window: Gradio pages over a Session."""
