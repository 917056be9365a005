"""Published predictors, each with its citation, behind the contract of `contract.py`."""
