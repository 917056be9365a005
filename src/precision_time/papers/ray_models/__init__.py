"""Models of training time learned from measured points: black boxes, and one grey box over our own predictor.

Source: Filippini, Lublinsky, de Bayser, Ardagna, Performance Models for Distributed Deep Learning Training
Jobs on Ray (SEAA 2023), and the library of its authors, aMLLibrary (Apache-2.0): papers.md, section 4.
"""
