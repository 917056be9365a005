"""The command `precision-time`: one file per command; the arithmetic lives in the other packages."""
