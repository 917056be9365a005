"""Price lists of other projects. No room imports this: `plugins("price_lists")` finds it."""
