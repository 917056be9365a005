"""Single operators: their operands, and how long their kernels take."""
