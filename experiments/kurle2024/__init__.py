"""Kurle et al. (2024): BALI, learning Bayesian neural networks layer by layer."""
