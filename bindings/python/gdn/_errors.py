"""The statuses of the library as exceptions; each is also the built-in exception that a Python user expects."""


class GdnError(RuntimeError):
    """A call that failed. `status` is the library's word for why, such as "GDN_ERROR_DEVICE"."""

    def __init__(self, message, status=""):
        super().__init__(message)
        self.status = status


class InvalidArgumentError(GdnError, ValueError):
    """An argument is wrong; the message names it, its value and what is allowed."""


class SlotConflictError(InvalidArgumentError):
    """Two sequences share a cache index."""


class UnsupportedError(GdnError, NotImplementedError):
    """A valid call that nothing in this build, or on this device, does."""


class OutOfMemoryError(GdnError, MemoryError):
    """The library found no memory."""


BY_STATUS = {
    "GDN_ERROR_INVALID_ARGUMENT": InvalidArgumentError,
    "GDN_ERROR_WORKSPACE_TOO_SMALL": InvalidArgumentError,
    "GDN_ERROR_SLOT_CONFLICT": SlotConflictError,
    "GDN_ERROR_UNSUPPORTED": UnsupportedError,
    "GDN_ERROR_OUT_OF_MEMORY": OutOfMemoryError,
}
