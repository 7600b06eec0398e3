"""Other engines and their files, which `bench` and `quality` compare with localctx."""
