"""Code that the experiments of several papers share: methods, priors, data sets as replicas, measures."""
