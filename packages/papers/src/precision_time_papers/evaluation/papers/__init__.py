"""The founding papers' own tables, on their own protocols, beside ours: what docs/papers.md is made of."""
