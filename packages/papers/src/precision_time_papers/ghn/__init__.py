"""Graph HyperNetwork (GHN-2): architectures as vectors, without torch; training needs torch.

Source: Boris Knyazev, Michal Drozdzal, Graham W. Taylor, Adriana Romero-Soriano, "Parameter Prediction for
Unseen Deep Architectures", NeurIPS 2021, arXiv:2110.13100; after Chris Zhang, Mengye Ren, Raquel Urtasun,
"Graph HyperNetworks for Neural Architecture Search", ICLR 2019, arXiv:1810.05749.

- From an operator graph to the paper's graph: `unroll`, `reading`, `vocabulary`, `architecture`.
- Node vectors (equation 4) in numpy: `weights`, `network`; one vector per graph: `readout`, `embedding`.
- Every known model: `known`; their map: `picture`.
- Training: networks drawn as in DeepNets-1M by `blocks`, `sampler`, `sampled`; `images`, `decoder`,
  `torch_ghn`, `training`, `fit`.
"""
