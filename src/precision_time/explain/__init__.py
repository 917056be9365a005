"""Why a step takes what it takes: what a precision changes in a model, and what slows a measured step down.

Beside the rooms: of them only the command line asks for it.
"""
