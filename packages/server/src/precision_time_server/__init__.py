"""The HTTP service: predictions where pipelines and people ask for them."""
