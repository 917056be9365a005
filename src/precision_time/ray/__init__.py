"""Ray, an optional extra. No room imports this: `plugins("executors")` finds it."""
