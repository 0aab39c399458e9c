"""DxDispatch's JSON models."""

from anydml.dxdispatch.model import DispatchModel

__all__ = ["DispatchModel"]
