"""What the experiments of several papers share: methods and priors, data as replicas, measures of both."""
