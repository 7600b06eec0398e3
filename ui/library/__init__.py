"""The library page: the documents, collections and watched folders of the library."""
