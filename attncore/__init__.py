"""attncore: how softmax attention learns (models, attention-SVM solvers, dynamics, and the course's tools).

Import the module you need, for example ``from attncore.svm import attention_svm``. This file imports
nothing, so that importing one module never runs another.
"""
