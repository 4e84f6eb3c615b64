"""Calibrated models of kernels, collectives, training steps and memory; see docs/cost-model.md."""
