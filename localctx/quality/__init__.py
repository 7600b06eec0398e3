"""Quality: is this codec, or this keeper, good enough here? Measured on the user's own text, in one run."""
