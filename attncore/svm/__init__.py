"""Attention SVMs: the max-margin problems towards which attention training drifts, solved with certificates."""

from attncore.svm.certificate import Certificate, certify
from attncore.svm.constraints import margins
from attncore.svm.local import LocalOptimality, Verdict, local_optimality
from attncore.svm.solution import InfeasibleError, Solution, Status
from attncore.svm.solve import attention_svm

__all__ = [
    "Certificate",
    "InfeasibleError",
    "LocalOptimality",
    "Solution",
    "Status",
    "Verdict",
    "attention_svm",
    "certify",
    "local_optimality",
    "margins",
]
