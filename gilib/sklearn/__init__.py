"""scikit-learn estimators that normalise the data and use recommended settings.

    pip install -c constraints.txt -e '.[sklearn]'

`import gilib` does not import this package.
"""

from gilib.optional import require

require("sklearn", "sklearn")

from gilib.sklearn.classifier import BayesianClassifier  # noqa: E402
from gilib.sklearn.intervals import Coverage, coverage  # noqa: E402
from gilib.sklearn.regressor import BayesianRegressor  # noqa: E402

__all__ = ["BayesianClassifier", "BayesianRegressor", "Coverage", "coverage"]
