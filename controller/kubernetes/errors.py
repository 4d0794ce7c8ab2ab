"""What can go wrong between the operator and the API server; one tree, and "not known" is a branch of its own."""

from __future__ import annotations


class OperatorError(Exception):
    """Base of all errors of the operator."""


class SettingsError(OperatorError):
    """A setting cannot work; the message names it."""


class ApiError(OperatorError):
    """The API server has refused; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class NotFoundError(ApiError):
    """There is no such object."""


class ConflictError(ApiError):
    """It exists already, or somebody has written since it was read."""


class ForbiddenError(ApiError):
    """The service account may not do this; the message says what."""


class InvalidError(ApiError):
    """The object breaks a schema or a rule."""


class BudgetError(OperatorError):
    """There is no write to spare for this now: nothing is wrong, and the next look tries again."""


class ExpiredError(ApiError):
    """What is asked for lies too far back: read everything again."""


class UnknownError(OperatorError):
    """No answer, or one that says nothing: whether it was done is not known.  Look again."""
