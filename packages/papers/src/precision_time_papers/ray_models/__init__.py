"""Performance models learned from measured points: black boxes, and grey boxes over our own predictor.

Source: Federica Filippini, Boris Lublinsky, Maximilien de Bayser, Danilo Ardagna, "Performance Models for
Distributed Deep Learning Training Jobs on Ray", Euromicro Conference on Software Engineering and Advanced
Applications (SEAA) 2023, https://re.public.polimi.it/handle/11311/1256108; and the library of its authors,
aMLLibrary (github eubr-atmosphere/a-MLLibrary, Apache-2.0).

- `schema`: the YAML file of a study; `points`: the measured points, checked.
- `features`: inverses, logarithms, products, and the terms of Ernest, Optimus and Pollux.
- `techniques`: the paper's regressors and ours; `estimators`: those that scikit-learn lacks.
- `splits`: folds, hold-out, interpolation, extrapolation; `tuning`: hyper-parameters and features on them.
- `study`: nested selection and validation; `report`: its tables, JSON and plots; `model`: the file of a fit.
- `grey`: the cost model's answer as divisor and feature of the grey boxes.
"""
