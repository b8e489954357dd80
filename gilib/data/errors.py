"""What can go wrong between a data set's publisher and the arrays in memory."""

__all__ = ["ChecksumError", "DataError", "DownloadError"]


class DataError(RuntimeError):
    """A data set could not be found, read or trusted; the message says what to do about it."""


class ChecksumError(DataError):
    """A file was read, but the decoded arrays are not the published ones."""


class DownloadError(DataError):
    """A file could not be fetched in full from its official place."""
