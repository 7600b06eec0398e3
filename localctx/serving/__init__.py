"""The EngineWorker, a thread that owns the model, and the OpenAI-compatible HTTP API on top of it."""
