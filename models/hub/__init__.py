"""Downloads, converts and installs models."""
