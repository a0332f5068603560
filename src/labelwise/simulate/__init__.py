"""What active learning would have saved on a user's own labelled data."""

from labelwise.simulate.simulation import Simulation, make_plan, run_plan, simulate

__all__ = ["Simulation", "make_plan", "run_plan", "simulate"]
