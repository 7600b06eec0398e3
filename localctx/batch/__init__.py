"""Many documents: what is to be done, what was done before, and where the results are written."""
