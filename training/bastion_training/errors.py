"""What the commands report in one line."""


class UserError(Exception):
    """Bad input: a file, a flag, a request that cannot be served. The message is one sentence."""
