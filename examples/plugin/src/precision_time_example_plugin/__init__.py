"""One plugin of each kind for precision-time."""
