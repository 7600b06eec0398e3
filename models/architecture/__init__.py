"""What a model's config describes: layers, shapes and frequencies, without weights."""
