"""Models on their way to this machine: download, conversion, and the folder of those installed."""
