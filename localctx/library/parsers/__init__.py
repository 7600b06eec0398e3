"""Files to text: a parser for each format, run in a child process with limits."""
