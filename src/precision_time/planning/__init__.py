"""Which layout a job should take, and a picture of its step."""
