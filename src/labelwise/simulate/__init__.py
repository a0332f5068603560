"""What active learning would have saved on a user's own data: reading it, replaying, and words."""

from labelwise.simulate.simulation import Simulation, make_plan, run_plan, simulate

__all__ = ["Simulation", "make_plan", "run_plan", "simulate"]
