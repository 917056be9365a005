"""How good predictors are: protocols, out-of-fold predictions, metrics, tables, plots, pages."""
