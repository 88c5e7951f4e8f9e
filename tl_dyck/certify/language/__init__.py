"""Claims about all strings of a language."""
