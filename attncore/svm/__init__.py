"""Attention SVMs: the max-margin problems towards which attention training drifts, solved with certificates."""

from attncore.svm.certificate import Certificate, certify
from attncore.svm.cone import local_cone
from attncore.svm.constraints import margins, smallest_margin
from attncore.svm.kept import KeptSolution, attention_svm_kept
from attncore.svm.local import LocalOptimality, Verdict, local_optimality
from attncore.svm.multitoken import Combination, FinitePart, attention_svm_multi, best_combination, finite_part
from attncore.svm.nuclear_rank import attention_svm_low_rank
from attncore.svm.solution import InfeasibleError, Solution, Status
from attncore.svm.solve import attention_svm

__all__ = [
    "Certificate",
    "Combination",
    "FinitePart",
    "InfeasibleError",
    "KeptSolution",
    "LocalOptimality",
    "Solution",
    "Status",
    "Verdict",
    "attention_svm",
    "attention_svm_kept",
    "attention_svm_low_rank",
    "attention_svm_multi",
    "best_combination",
    "certify",
    "finite_part",
    "local_cone",
    "local_optimality",
    "margins",
    "smallest_margin",
]
