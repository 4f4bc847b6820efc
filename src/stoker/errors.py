"""Every error that Stoker raises for a user's mistake, a bad file or a broken machine.

Each says the rule, the value received and the remedy, and each is also the builtin type that fits
it, so that callers who know nothing of Stoker can still catch it.

    StokerError
    ├── UsageError (ValueError)            an argument or option that cannot be
    │   └── ConfigError                    a setting in a file or in --set that cannot be
    ├── MissingExtraError (ImportError)    a format whose library is an optional extra
    ├── SourceError (ValueError)           the raw data cannot be packed
    │   ├── BadSampleError                 one sample cannot; it carries the sample's key
    │   │   └── SchemaError (TypeError)    its fields differ from those of the other samples
    │   └── TransformIdentityError         a transform that cannot be told from another
    ├── WorkerDiedError (RuntimeError)     a worker process was killed from outside
    ├── TrainingError (RuntimeError)       a training run cannot go on
    │   ├── DeviceMemoryError (MemoryError)        a step does not fit into the device's memory
    │   └── TrainingInterruptedError (SystemExit)  a signal ended it; what was reached is saved
    ├── CheckpointError (OSError)          a checkpoint cannot be written or used
    │   ├── CheckpointNotFoundError (FileNotFoundError)
    │   ├── CheckpointMismatchError            it is of another model, optimizer or setting
    │   └── DamagedCheckpointError             its bytes are not those that were written
    └── StoreError (OSError)               the packed data cannot be used
        ├── StoreNotFoundError (FileNotFoundError)
        ├── StoreBusyError (BlockingIOError)   another process is writing it
        ├── StoreMismatchError                 it was packed with another transform or setting
        ├── StoreWriteError                    disk full, read-only, no permission
        ├── StoreUnreachableError (ConnectionError)  an object of a remote store cannot be had
        └── DamagedStoreError                  its bytes are not those that were published
            └── UnsafeStoreError               a file that no packer of ours would have written
"""


class StokerError(Exception):
    """The root of every error that Stoker raises on purpose."""


class UsageError(StokerError, ValueError):
    """An argument or option that cannot be."""


class ConfigError(UsageError):
    """A setting, in a file or on the command line, that cannot be."""


class MissingExtraError(StokerError, ImportError):
    """A format whose library is not installed; names the extra that brings it."""

    def __init__(self, what: str, *, extra: str, library: str) -> None:
        super().__init__(
            f"{what} needs the library {library!r}, which is not installed: pip install 'stoker[{extra}]'"
        )
        self.what, self.extra, self.library = what, extra, library

    def __reduce__(self) -> tuple[object, tuple[str, str, str]]:
        return _missing_extra, (self.what, self.extra, self.library)


def _missing_extra(what: str, extra: str, library: str) -> MissingExtraError:
    return MissingExtraError(what, extra=extra, library=library)


class SourceError(StokerError, ValueError):
    """The raw data cannot be packed."""


class BadSampleError(SourceError):
    """One sample cannot be packed."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"sample {key!r}: {why}")
        self.key = key
        self.why = why

    def add_hint(self, hint: str) -> None:
        """Say also what to do."""
        self.args = (f"{self.args[0]}; {hint}",)

    def __reduce__(self) -> tuple[type["BadSampleError"], tuple[str, str]]:
        return type(self), (self.key, self.why)


class SchemaError(BadSampleError, TypeError):
    """A sample whose fields differ in name, type or rank from those of the other samples."""


class TransformIdentityError(SourceError):
    """A transform whose parameters cannot be compared between two runs."""


class WorkerDiedError(StokerError, RuntimeError):
    """A worker process was killed from outside."""


class TrainingError(StokerError, RuntimeError):
    """A training run cannot go on."""


class DeviceMemoryError(TrainingError, MemoryError):
    """A step does not fit into the device's memory; names the settings that would help."""


class TrainingInterruptedError(TrainingError, SystemExit):
    """A signal ended the training after a whole step; what was reached is saved, if there is a folder.

    It is a SystemExit too: where nobody catches it, the program ends without a traceback and with the
    code by which a shell names the signal, 143 for SIGTERM and 130 for SIGINT.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.message = message
        self.signal_number = signal_number
        self.code = 128 + signal_number

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type["TrainingInterruptedError"], tuple[str, int]]:
        return type(self), (self.message, self.signal_number)


class CheckpointError(StokerError, OSError):
    """A checkpoint cannot be written or used."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at that path."""


class CheckpointMismatchError(CheckpointError):
    """The checkpoint is of another model, optimizer or setting than the one it was loaded into."""


class DamagedCheckpointError(CheckpointError):
    """The checkpoint's bytes are not those that were written."""


class StoreError(StokerError, OSError):
    """The packed data cannot be used."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is no (complete) store at that path."""


class StoreBusyError(StoreError, BlockingIOError):
    """Another process is writing the store."""


class StoreMismatchError(StoreError):
    """The store was packed with another transform or setting than the one asked for now."""


class StoreWriteError(StoreError):
    """The store cannot be written: disk full, read-only, no permission."""


class StoreUnreachableError(StoreError, ConnectionError):
    """An object of a remote store cannot be had: network, throttling, no permission; names the object."""


class DamagedStoreError(StoreError):
    """The store's bytes are not those that were published."""


class UnsafeStoreError(DamagedStoreError):
    """A store that no packer of ours would have written; nothing of it was mapped or allocated."""
