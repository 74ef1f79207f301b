"""Part III: fast global convergence by preconditioning, the algorithm and the mathematics around it."""

from attncore.preconditioning.descent import History, Status
from attncore.preconditioning.empirical import (
    attention_output,
    attention_weights,
    empirical_gradient,
    empirical_loss,
    empirical_loss_and_gradient,
)
from attncore.preconditioning.estimate import Estimate, estimate
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
from attncore.preconditioning.theory import (
    attention_mse,
    copy_solution,
    critical_point,
    escape_direction,
    mean_attention_mse,
    mse_exponent,
    start_risk,
)
from attncore.preconditioning.tokens import LinearTask, gaussian_task
from attncore.preconditioning.whitened import unwhiten, whiten

__all__ = [
    "Descent",
    "Estimate",
    "Fit",
    "History",
    "LinearTask",
    "LocalRate",
    "Status",
    "attention_mse",
    "attention_output",
    "attention_weights",
    "balance",
    "copy_solution",
    "critical_point",
    "descend",
    "empirical_gradient",
    "empirical_loss",
    "empirical_loss_and_gradient",
    "escape_direction",
    "estimate",
    "fit",
    "gaussian_task",
    "hessian",
    "hessian_spectrum",
    "local_rate",
    "manifold_distance",
    "mean_attention_mse",
    "metric_norm",
    "mse_exponent",
    "nearest_point",
    "one_point_convexity",
    "one_point_ratio",
    "one_point_smoothness",
    "population_gradient",
    "population_loss",
    "precondition",
    "singular_values",
    "spectral_init",
    "start_risk",
    "unwhiten",
    "whiten",
]
