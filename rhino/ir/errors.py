"""The errors a user may see. Every one of them says what is wrong, where, and what to do about it."""

from __future__ import annotations


class RhinoError(Exception):
    """Base of all errors that are the user's to read; the command line prints them without a traceback.

    Args:
        message: what is wrong, with the values that clash.
        where: the place in the user's program or file (``file:line:col``, a module path, an op), if known.
        remedy: what the user can do about it, if there is something.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.message = message
        self.where = where
        self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


class RhinoWarning(UserWarning):
    """Something works, but not as well as the user may expect; the message names what and where."""


class UsageError(RhinoError):
    """The command line or an API call cannot mean anything."""

    exit_code = 2


class MeshError(RhinoError):
    """A mesh is malformed or does not fit the number of devices."""


class LayoutError(RhinoError):
    """A layout is malformed, or illegal for its tensor or op."""


class ProgramError(RhinoError):
    """A program is malformed: text that does not parse, or a module that does not verify."""


class UnsupportedError(RhinoError):
    """The program uses something Rhino has no definition for."""


class PlanError(RhinoError):
    """No plan exists under the constraints, or a plan belongs to another program."""


class RunError(RhinoError):
    """A distributed run failed; the message names the rank."""
