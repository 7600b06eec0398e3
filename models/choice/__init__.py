"""Which model runs here, in which weights and by which engine, and what that takes."""
