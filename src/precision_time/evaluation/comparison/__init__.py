"""All predictors on the same unseen rows: what `precision-time compare-predictors` prints."""
