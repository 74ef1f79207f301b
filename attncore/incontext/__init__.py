"""In-context learning by one softmax layer: five levels of simulation, exact gradients, closed form, floors."""

from attncore.incontext.closed_form import closed_form, odds_at
from attncore.incontext.enumeration import column_gradient
from attncore.incontext.evaluate import Moments, column_moments, prompt_law
from attncore.incontext.floors import initial_loss, log_missing
from attncore.incontext.result import Column, Trajectory
from attncore.incontext.settings import LEVELS
from attncore.incontext.simulate import flow, simulate

__all__ = ["LEVELS", "Column", "Moments", "Trajectory", "closed_form", "column_gradient", "column_moments", "flow",
           "initial_loss", "log_missing", "odds_at", "prompt_law", "simulate"]
