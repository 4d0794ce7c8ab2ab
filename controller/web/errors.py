"""What can go wrong with the web page."""


class WebError(Exception):
    """The page cannot be served; says why."""
