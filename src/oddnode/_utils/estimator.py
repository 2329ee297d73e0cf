"""scikit-learn's estimator contract without importing scikit-learn, which would take as long as torch itself."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn, Self

from oddnode._utils.suggestions import unknown


class Estimator:
    """An estimator for `sklearn.base.clone` and `sklearn.utils.validation.check_is_fitted`.

    Its parameters are those of ``__init__``, which only stores them.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Without effect: no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change some parameters.

        Parameters
        ----------
        **params
            The parameters by name.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise unknown("parameter", name, known)
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: each.default for name, each in inspect.signature(type(self)).parameters.items()}
        changed = (
            f"{name}={value!r}" for name, value in self.get_params().items() if repr(value) != repr(defaults[name])
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()


def raise_not_fitted(message: str) -> NoReturn:
    """Raise scikit-learn's error for an estimator that has not been fitted."""
    from sklearn.exceptions import NotFittedError

    raise NotFittedError(message)
