"""The one error that the choice of a kernel can cause."""


class KernelUnavailable(ImportError):
    """The kernel that was asked for by name is not there."""
