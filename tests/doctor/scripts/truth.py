"""What is true of each script, by construction: why it is slow, and how long its stages take.

Stage times are those that the script sleeps, in milliseconds of an optimizer step. `culprit` is a
pattern that the named culprit matches, whatever its case.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Truth:
    script: str
    verdict: str
    culprit: str  # "" where there is nothing to blame
    stages_ms: dict[str, float] = field(default_factory=dict)
    exit_code: int = 0
    num_steps: int = 30
    batches_per_step: int = 1
    sleeps_per_step: int = 0  # of the data, where the script waits for it in its own process
    leaves_alone: bool = False  # nothing is to be gained: no advice that `fix` would apply


TRUTHS = (
    Truth("slow_transform.py", "input-bound", r"ElasticWarp", {"forward": 8, "backward": 4}),
    Truth("slow_disk.py", "input-bound", r"storage|slow_disk\.py:14", {"forward": 8, "backward": 4}),
    Truth("tiny_batch.py", "python-bound", r"operators a step", num_steps=90),
    Truth("too_few_workers.py", "input-bound", r"too few workers", {"forward": 20, "backward": 10}),
    Truth("oversubscribed.py", "input-bound", r"oversubscribed: 16 workers"),
    Truth("blocked_head.py", "input-bound", r"blocked head", {"forward": 10, "backward": 5}),
    Truth(
        "worker_restart.py", "input-bound", r"worker restart at each epoch", {"forward": 10, "backward": 5}
    ),
    Truth(
        "remade_loader.py",
        "input-bound",
        r"worker restart at each epoch .*made anew",
        {"forward": 10, "backward": 5},
    ),
    Truth("collate_bound.py", "input-bound", r"pad_by_hand", {"forward": 6, "backward": 4}),
    Truth("copy_heavy.py", "copy-bound", r"copy_heavy\.py:27", {"forward": 2, "backward": 1}),
    Truth("compute_bound.py", "compute-bound", r"", {"forward": 25, "backward": 15}, leaves_alone=True),
    Truth(
        "gradient_accumulation.py",
        "input-bound",
        r"too few workers|storage",
        {"wait": 64, "forward": 12, "backward": 12},
        num_steps=20,
        batches_per_step=4,
        sleeps_per_step=16,
    ),
    Truth("two_loaders.py", "input-bound", r"Denoise", {"forward": 6, "backward": 4}),
    Truth(
        "iterable_dataset.py",
        "input-bound",
        r"too few workers|EventStream",
        {"wait": 32, "forward": 10, "backward": 5},
        sleeps_per_step=8,
    ),
    Truth("generator_of_batches.py", "input-bound", r"minibatches|generator_of_batches\.py:1[0-9]"),
    Truth("compiled_model.py", "input-bound", r"Spectrogram"),
    Truth("mixed_precision.py", "compute-bound", r"", {"forward": 20, "backward": 15}, leaves_alone=True),
    Truth("spawned_workers.py", "input-bound", r"Resample", {"forward": 6, "backward": 4}),
    Truth("crash_in_worker.py", "compute-bound", r"", {"forward": 10, "backward": 5}, exit_code=1),
    Truth("host_metrics.py", "python-bound", r"f1_score"),
    Truth("time_steps.py", "python-bound", r"SelectiveScan"),
    Truth("item_logging.py", "python-bound", r"item_logging\.py:1[0-2]"),
    Truth("scaler_per_sample.py", "input-bound", r"StandardScaler"),
    Truth("misleading_log.py", "compute-bound", r"", {"forward": 20, "backward": 10}, leaves_alone=True),
    Truth("trains_nothing.py", "nothing observed", r"", exit_code=1),
    Truth("well_fed.py", "compute-bound", r"", leaves_alone=True),
    Truth(
        "repeated_decode.py",
        "input-bound",
        r"Pictures|repeated_decode\.py:1[0-9]",
        {"forward": 6, "backward": 4},
    ),
)
