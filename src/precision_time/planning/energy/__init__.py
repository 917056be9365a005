"""Power, energy and carbon of a run: what devices and hosts draw, PUE, grid intensity."""
