"""The hierarchical precision-aware predictor and its blind counterparts (arXiv 2604.16145)."""
