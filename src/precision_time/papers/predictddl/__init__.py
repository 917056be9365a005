"""PredictDDL: one predictor per data-set type, served for any architecture.

Assogba, Lima, Rafique and Kwon, PredictDDL: Reusable Workload Performance Prediction for Distributed Deep
Learning (IEEE CLUSTER 2023). `controller.PredictDDL` answers requests; `docs/devdocs/007-predictddl.md` says
what is the paper's and what is ours.
"""
