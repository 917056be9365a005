"""Measured training steps: import, store, and the jobs they are measurements of."""
