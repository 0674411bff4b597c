"""Parameters that are the mean of all processes' now and then."""
