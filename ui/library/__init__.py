"""The library page: documents, collections and watched folders."""
