"""KV pages and snapshots on disk, each checked before it is used."""
