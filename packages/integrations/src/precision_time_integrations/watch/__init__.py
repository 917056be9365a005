"""A training watched from outside, by the log it writes."""
