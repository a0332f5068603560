"""Models that are trained with weights and give representations."""
