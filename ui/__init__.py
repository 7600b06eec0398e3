"""The window of localctx: Gradio pages that use a Session."""
