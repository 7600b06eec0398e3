"""The model of the window: the choice, its download, and what each model is good for."""
