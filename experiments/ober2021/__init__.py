"""Ober & Aitchison (2021): global inducing point variational posteriors; and its TensorFlow reproduction."""
