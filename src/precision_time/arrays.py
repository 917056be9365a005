"""Names of array types; shapes are in the docstrings of what has them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.intp]
Number: TypeAlias = float | Floats
"""One value, or an array of them; arrays broadcast."""
