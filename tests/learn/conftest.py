"""Before LightGBM is loaded: its threads must sleep, not spin, while they wait on a shared machine."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
