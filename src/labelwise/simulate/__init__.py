"""Simulated savings of active learning on a user's own labelled data."""

from labelwise.simulate.simulation import Simulation, make_plan, run_plan, simulate

__all__ = ["Simulation", "make_plan", "run_plan", "simulate"]
