"""Memory plans: how much a request needs, and in which tier."""
