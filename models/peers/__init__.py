"""Other engines and their files, with which `bench` and `quality` compare localctx."""
