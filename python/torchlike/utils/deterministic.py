"""Memory that nobody has written; kept, without an effect."""

fill_uninitialized_memory = True
