"""PredictDDL: one predictor per dataset type, served for any architecture.

Source: Kevin Assogba, Eduardo Lima, M. Mustafa Rafique, Minseok Kwon, "PredictDDL: Reusable Workload
Performance Prediction for Distributed Deep Learning", IEEE International Conference on Cluster
Computing (CLUSTER) 2023.

- `controller.PredictDDL` answers requests (`requests`) with the answers of `contract`.
- The paper's parts: task checker (`controller.find_task` over `datasets`), workload embeddings `embeddings`
  (`papers.ghn`), cluster features `columns`, inference engine `regressors`, offline trainer `trainer` with
  `fitting`.
- Storage: `registry`; the contract of the comparison: `estimator`. What is the paper's and what is ours:
  docs/devdocs/papers.md.
"""
