"""The pages that claims may name before they are written; a claim on any other page would wait for ever."""

PLANNED = frozenset(
    f"book/{part}/{page}"
    for part, pages in {
        "svm": ("attention-chooses-tokens", "regularisation-path", "two-norms", "local-and-global",
                "why-width-helps", "beyond-linear-heads", "hierarchy"),
        "icl": ("one-layer", "gradient", "five-levels", "two-phases", "four-phases", "what-attention-does"),
        "preconditioning": ("gaussian-tokens", "matrix-factorisation", "right-metric", "where-to-start", "algorithm",
                            "scaling-law"),
    }.items()
    for page in pages
)  # fmt: skip
