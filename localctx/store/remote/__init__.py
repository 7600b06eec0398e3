"""Pages in an object store, encrypted."""
