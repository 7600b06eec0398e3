"""Work that runs in the server, whether or not a page shows it."""
