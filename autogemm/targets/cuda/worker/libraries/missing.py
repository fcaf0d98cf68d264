"""The error of a library that cannot take part."""


class NotHereError(Exception):
    """The library is not installed, or cannot do this problem; the message says what to do."""
