"""The model picker of the window: the choice of a model, its download, and the models' descriptions."""
