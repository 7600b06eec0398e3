"""From logits to an answer: greedy, drafted, in beams, or limited to a text's own words."""
