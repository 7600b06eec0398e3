"""Turns logits into an answer: greedy, drafted, by beam search, or limited to a text's own words."""
