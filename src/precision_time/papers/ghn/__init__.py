"""Graph HyperNetwork (GHN-2): architectures as vectors, without torch; training needs torch."""
