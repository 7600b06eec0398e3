"""Reads e-mail: messages, mailboxes, and the files attached to them. Runs in the child process."""
