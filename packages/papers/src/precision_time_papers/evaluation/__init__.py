"""Evaluation: out-of-fold predictions of all predictors, their metrics, and the tables and plots of them."""
