"""Work that goes on in the server, whether or not a page shows it."""
