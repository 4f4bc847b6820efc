"""The trainer: nothing wasted, nothing lost. Its parts can be taken singly.

_trainer.py     epochs, evaluation, logs       _engine.py     one step: forward, backward, update
_task.py        how a batch becomes a loss     _metrics*.py   what is measured, in O(1) memory
_assembly.py    a run out of its settings      _tasks.py      tasks that settings may name
_parts.py       data that settings name        _journal.py    what is logged and shown, and when
_precision.py   autocast and scaler            _compiled.py   a compile that may fail
_window.py      batches in one update (pure)   _schedule.py   learning rates (pure)
_average.py     averaged weights               _judge.py      best epoch, early stopping (pure)
_checkpoint.py  one file, whole or absent      _checkpoint_folder.py  last, previous, best
_resume.py      everything that goes into it   _feed.py       any loader, from any step
_distributed.py ranks and what they agree on   _signals.py    SIGTERM and Ctrl-C between two steps
_memory.py      what fits (with _trial.py)     _timing.py     where the time goes
_tunable.py     a run's step and loader, to be timed
_logs.py, _progress.py, _summary.py            where it is written and shown
"""

from stoker.train._assembly import Run, assembled, find_facts
from stoker.train._average import WeightAverage
from stoker.train._checkpoint import load_checkpoint, load_weights, save_checkpoint
from stoker.train._distributed import is_first, process_group, wait_for_all
from stoker.train._logs import CsvLog, JsonLog, Log, TensorBoardLog
from stoker.train._memory import find_batch_size
from stoker.train._metrics import classification_metrics, regression_metrics, segmentation_metrics
from stoker.train._metrics_scores import threshold_at
from stoker.train._precision import Precision, choose_precision
from stoker.train._schedule import WarmupCosine, warmup_cosine
from stoker.train._task import Supervised, Task
from stoker.train._trainer import FitResult, Trainer

__all__ = [
    "CsvLog",
    "FitResult",
    "JsonLog",
    "Log",
    "Precision",
    "Run",
    "Supervised",
    "Task",
    "TensorBoardLog",
    "Trainer",
    "WarmupCosine",
    "WeightAverage",
    "assembled",
    "choose_precision",
    "classification_metrics",
    "find_batch_size",
    "find_facts",
    "is_first",
    "load_checkpoint",
    "load_weights",
    "process_group",
    "regression_metrics",
    "save_checkpoint",
    "segmentation_metrics",
    "threshold_at",
    "wait_for_all",
    "warmup_cosine",
]
