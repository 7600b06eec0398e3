"""Other engines with their model files, with which `bench` and `quality` compare localctx."""
