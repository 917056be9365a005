"""The planner against what was measured: choices among measured alternatives, and their regret."""
