"""The answer: `predict_time`, `Prediction`, evidence, and the page that shows them."""
