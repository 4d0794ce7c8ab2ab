"""What a client says beside its answers.

A request to brokers that refuse the password, or whose certificate is not trusted, is answered by "timed out" or "transport
failure"; the reason comes by a callback.  Kept is the last reason that says more than that no broker is there.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

_EMPTY_WORDS = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


class Heard:
    """An `error_cb` of one client."""

    def __init__(self) -> None:
        self._text, self._telling = "", False

    def __call__(self, error: KafkaError) -> None:
        telling = error.code() not in _EMPTY_WORDS
        if telling or not self._telling:
            self._text, self._telling = f"{error.str()} ({error.name()})", telling

    def beside(self, answer: str) -> str:
        """The answer, and behind it what was heard."""
        return f"{answer}: {self._text}" if self._text and self._text not in answer else answer

    def forget(self) -> None:
        """An answer came, so the trouble is over."""
        self._text, self._telling = "", False
