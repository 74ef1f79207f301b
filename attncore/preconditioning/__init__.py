"""Part III: fast global convergence by preconditioning, the algorithm and the mathematics around it."""

from attncore.preconditioning.descent import History, Status
from attncore.preconditioning.empirical import (
    attention_output,
    attention_weights,
    empirical_gradient,
    empirical_loss,
)
from attncore.preconditioning.fit import Descent, Fit, descend, fit
from attncore.preconditioning.landscape import (
    LocalRate,
    hessian,
    hessian_spectrum,
    local_rate,
    one_point_convexity,
    one_point_ratio,
    one_point_smoothness,
)
from attncore.preconditioning.population import (
    balance,
    metric_norm,
    population_gradient,
    population_loss,
    precondition,
)
from attncore.preconditioning.spectral import manifold_distance, nearest_point, singular_values, spectral_init
from attncore.preconditioning.whitened import unwhiten, whiten

__all__ = [
    "Descent",
    "Fit",
    "History",
    "LocalRate",
    "Status",
    "attention_output",
    "attention_weights",
    "balance",
    "descend",
    "empirical_gradient",
    "empirical_loss",
    "fit",
    "hessian",
    "hessian_spectrum",
    "local_rate",
    "manifold_distance",
    "metric_norm",
    "nearest_point",
    "one_point_convexity",
    "one_point_ratio",
    "one_point_smoothness",
    "population_gradient",
    "population_loss",
    "precondition",
    "singular_values",
    "spectral_init",
    "unwhiten",
    "whiten",
]
