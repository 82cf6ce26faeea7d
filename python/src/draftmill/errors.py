"""What can go wrong, by kind."""


class DraftmillError(Exception):
    """Base of all errors of this package."""


class FormatError(DraftmillError):
    """A file is none of draftmill's, or of a version that this package does not know."""


class ConventionError(DraftmillError):
    """The stored data cannot give what was asked for."""


class DamageError(DraftmillError):
    """Bytes are not what their checksum says."""
