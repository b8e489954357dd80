"""What a throwaway prototype, with other settings than ours, led us to expect before the library was there.

These are not numbers of Kurle et al. (2024), whose tables are lost to us.
"""

from __future__ import annotations

UCI = {  # RMSE and test log-likelihood on the published splits
    "yacht": (0.65, -0.90),
    "energy": (0.47, -0.70),
    "boston": (2.9, -2.6),
    "concrete": (5.2, -3.14),
    "wine": (0.63, -0.97),
    "kin8nm": (0.095, 0.94),
}
MNIST = {"bali": 0.174, "map": 0.190}  # validation negative log-likelihood, 10 000 images
MNIST_STEPS = 80
MOST_ADAM_STEPS = {"mnist": 3.0, "mnist, first moments kept": 2.0, "regression": 2.0}  # for one of BALI
