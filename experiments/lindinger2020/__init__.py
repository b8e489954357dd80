"""Lindinger et al. (2020): structured deep Gaussian processes between inter- and extrapolation."""
