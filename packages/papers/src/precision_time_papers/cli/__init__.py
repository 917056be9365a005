"""Commands of the published predictors, campaigns and reports."""
