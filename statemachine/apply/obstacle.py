"""Why committed records cannot be applied at the moment, or never again."""

from __future__ import annotations

from kraftbase.errors import ApiError, ErrorCode


class Obstacle:
    """The obstacle to applying: no room on the disk or a lock, which pass, or a fence, which stays.

    One object for a whole state machine: the run writer and the snapshot loader report here, and reads check here.
    """

    def __init__(self) -> None:
        self.passing_reason: str | None = None
        """No room on the disk, or another process's lock: applying is tried again."""
        self.fence: str | None = None
        """The rows are not those that were applied, or not those of the quorum: they are no longer changed or read."""
        self.is_shut_down = False

    @property
    def reason(self) -> str | None:
        """Why committed records cannot be applied; None while they can."""
        return self.fence or self.passing_reason

    @property
    def is_final(self) -> bool:
        """Whether nothing more may be applied: fenced, or shut down."""
        return self.fence is not None or self.is_shut_down

    def refuse_if_fenced(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the store's content must not be trusted."""
        if self.fence is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.fence)
