"""Why something is no program."""


class NotNative(Exception):
    """Why something cannot be part of a program: it is left to others then, and nothing is wrong."""
