"""INT8: calibration, choice of a scheme for every linear, and the gate that compares the result with FP16."""

from .plan import Int8Plan, plan_int8

__all__ = ["Int8Plan", "plan_int8"]
