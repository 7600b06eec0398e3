"""The window: Gradio pages over a Session. Nothing here yet."""
