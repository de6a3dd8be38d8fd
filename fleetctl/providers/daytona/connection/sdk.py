"""Gives the used names of Daytona's SDK. The SDK is not imported before one of these names is
needed, and a version that lacks one is found out here, before any work is done with it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daytona import AsyncDaytona as AsyncDaytona
    from daytona import AsyncSandbox as AsyncSandbox
    from daytona import CreateSandboxFromImageParams as CreateSandboxFromImageParams
    from daytona import CreateSandboxFromSnapshotParams as CreateSandboxFromSnapshotParams
    from daytona import CreateSnapshotParams as CreateSnapshotParams
    from daytona import DaytonaAuthenticationError as DaytonaAuthenticationError
    from daytona import DaytonaBadGatewayError as DaytonaBadGatewayError
    from daytona import DaytonaBadRequestError as DaytonaBadRequestError
    from daytona import DaytonaConfig as DaytonaConfig
    from daytona import DaytonaConflictError as DaytonaConflictError
    from daytona import DaytonaConnectionError as DaytonaConnectionError
    from daytona import DaytonaError as DaytonaError
    from daytona import DaytonaFileNotFoundError as DaytonaFileNotFoundError
    from daytona import DaytonaForbiddenError as DaytonaForbiddenError
    from daytona import DaytonaNotFoundError as DaytonaNotFoundError
    from daytona import DaytonaQueueTimeoutError as DaytonaQueueTimeoutError
    from daytona import DaytonaRateLimitError as DaytonaRateLimitError
    from daytona import DaytonaSpotEvictedError as DaytonaSpotEvictedError
    from daytona import DaytonaUnprocessableEntityError as DaytonaUnprocessableEntityError
    from daytona import FileUpload as FileUpload
    from daytona import GpuType as GpuType
    from daytona import Image as Image
    from daytona import ListSandboxesQuery as ListSandboxesQuery
    from daytona import PtySize as PtySize
    from daytona import Resources as Resources
    from daytona import SessionExecuteRequest as SessionExecuteRequest
    from daytona import VolumeMount as VolumeMount

PACKAGE = "daytona"
RANGE = ">=0.224,<1"  # as the extra of pyproject.toml has it
NEEDED = (
    *("AsyncDaytona", "AsyncSandbox", "CreateSandboxFromImageParams"),
    *("CreateSandboxFromSnapshotParams", "CreateSnapshotParams", "DaytonaAuthenticationError"),
    *("DaytonaBadGatewayError", "DaytonaBadRequestError", "DaytonaConfig", "DaytonaConflictError"),
    *("DaytonaConnectionError", "DaytonaError", "DaytonaFileNotFoundError"),
    *("DaytonaForbiddenError", "DaytonaNotFoundError", "DaytonaRateLimitError"),
    *("DaytonaUnprocessableEntityError", "FileUpload", "GpuType", "Image", "ListSandboxesQuery"),
    *("PtySize", "Resources", "SessionExecuteRequest", "VolumeMount"),
)
# Errors that not every version knows, which therefore does not raise them.
NOT_EVERYWHERE = ("DaytonaQueueTimeoutError", "DaytonaSpotEvictedError")


class NeverRaised(Exception):
    """Replaces an error that this version of the SDK does not know."""


def __getattr__(name: str) -> object:
    if name not in NEEDED and name not in NOT_EVERYWHERE:
        raise AttributeError(name)
    package = importlib.import_module(PACKAGE)
    if name in NOT_EVERYWHERE:
        return getattr(package, name, NeverRaised)
    return getattr(package, name)


def installed_version() -> str:
    """Returns the installed version; "" without the package."""
    if importlib.util.find_spec(PACKAGE) is None:
        return ""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"


def find_problem() -> str:
    """Returns why the SDK cannot be used, as a clause about the package; "" where it can. Imports
    all of it, which takes more than a second.
    """
    found = installed_version()
    if not found:
        return "is not installed"
    try:
        package = importlib.import_module(PACKAGE)
        lacking = [name for name in NEEDED if not hasattr(package, name)]
    except ImportError as error:
        return f"{found} is installed, and cannot be imported: {error}"
    if lacking:
        return f"{found} is installed, and has no `{lacking[0]}`: a version {RANGE} is needed"
    return ""
