"""Made-up runs with their diagnoses, for whatever shows them. All figures follow from fixed seeds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

from stoker.doctor._diagnosis import Advice, Cause, Comparison, Diagnosis, Interval
from stoker.doctor._record import (
    Batch,
    Event,
    Line,
    Loader,
    Machine,
    Moment,
    Operators,
    Pause,
    Phase,
    Place,
    Record,
    Stage,
    Step,
    Trial,
)

ROOT = "/home/ada/segmentation"
HOSTILE = "<script>alert(1)</script></script><img src=x onerror=alert(2)>'\"&[bold red]\x1b[31m\u202e"

PATCH = """\
--- a/train.py
+++ b/train.py
@@ -85,7 +85,8 @@
 def main() -> None:
     data = Scans(ROOT, transform=train_transform)
-    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
+    loader = DataLoader(
+        data, batch_size=16, shuffle=True, num_workers=7, persistent_workers=True)
     model = UNet(3, 11).to(device)
"""


class Example(NamedTuple):
    record: Record
    diagnosis: Diagnosis
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Shape:
    """How a made-up run goes."""

    stages: dict[Stage, float]
    transforms: dict[str, float]  # seconds a batch
    num_workers: int = 2
    num_steps: int = 60
    num_warmup: int = 10
    num_replayed: int = 12
    load_s: float = 0.02
    epoch_every: int = 30
    stall_every: int = 23
    stall_s: float = 0.18
    num_cores: int = 8
    num_moments: int = 120
    batches_per_step: int = 1
    loader: str = "train"


def input_bound() -> Example:
    """A slow transform: 71 % of a step waits; with advice, ceilings, notes and a comparison."""
    shape = Shape(
        stages={
            "wait": 0.0293,
            "copy": 0.0011,
            "forward": 0.0041,
            "backward": 0.0049,
            "optimizer": 0.0012,
            "other": 0.0006,
        },
        transforms={"RandomElastic": 0.0581, "RandomCrop": 0.0035, "ColorJitter": 0.0102, "ToTensor": 0.0028},
    )
    record = run_of(shape)
    record.loaders.append(
        loader_of(name="validation", role="validation", num_workers=1, shuffles=False, line=91)
    )
    record.lines = [
        line(
            "workers",
            None,
            41,
            "x = map_coordinates(x, grid, order=1)",
            "augment.py",
            21.4,
            callee="scipy.ndimage.map_coordinates",
        ),
        line("workers", None, 57, "return adjust_hue(image, h)", "augment.py", 4.1),
        line(
            "loop",
            "wait",
            112,
            "for images, masks in loader:",
            "train.py",
            1.79,
            callee="DataLoader.__next__",
        ),
        line("loop", "backward", 117, "loss.backward()", "train.py", 0.31),
        line("loop", "forward", 64, "x = self.up(x)", "model.py", 0.22, module="UNet"),
    ]
    record.trials = [
        Trial(
            loader="train",
            num_samples=32,
            seconds_per_sample=0.0049,
            cpu_s_per_sample=0.0047,
            spread=0.21,
            transforms={"RandomElastic": 0.0036},
            collate_s_per_batch=0.0009,
            transfer_s_per_batch=0.0014,
            bytes_per_sample=786_432,
            is_deterministic=False,
            deterministic_s_per_sample=0.0006,
        )
    ]
    record.events = [
        Event(0.4, "compile", "The model was compiled in 0.4 s; those steps are part of the warm-up."),
        Event(
            2.2,
            "throughput",
            "The script's own log divides by the time since the epoch's start.",
            Place(f"{ROOT}/train.py", 130),
        ),
    ]
    record.not_observed = {"augment": "no augmentation ran on the device"}
    elastic = Place(
        f"{ROOT}/augment.py", 41, "RandomElastic.__call__", "x = map_coordinates(x, grid, order=1)"
    )
    made = Place(
        f"{ROOT}/train.py",
        88,
        "main",
        "loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)",
    )
    advice = (
        Advice(
            key="num_workers",
            action="Give the training loader 7 workers and keep them between epochs",
            reason="A batch costs 78 ms of worker time and a step takes 11.9 ms, so 7 workers keep up.",
            speedup=Interval(2.74, 2.41, 2.93),
            ram_bytes=1_420_000_000,
            changes_training=False,
            settings={"num_workers": 7, "persistent_workers": True},
            loader="train",
            place=made,
            patch=PATCH,
        ),
        Advice(
            key="device augmentation",
            action="Move RandomElastic to the device with stoker.augment",
            reason="It is 74 % of a sample's cost; on the device the same warp takes 0.4 ms a batch.",
            speedup=Interval(2.55, 2.1, 2.9),
            ram_bytes=0,
            changes_training=True,
            loader="train",
            place=elastic,
        ),
        Advice(
            key="pack",
            action="Pack the decoded images into a store",
            reason="Reading and decoding costs 0.6 ms of the 4.9 ms of a sample.",
            speedup=Interval(1.12, 1.05, 1.16),
            ram_bytes=-120_000_000,
            changes_training=False,
            place=made,
        ),
    )
    before = Diagnosis(
        verdict="input-bound",
        confidence=0.93,
        sentence="The model waits for data 71 % of a step: RandomElastic takes 3.6 ms of a sample's 4.9 ms.",
        culprit="RandomElastic.__call__",
        causes=(
            Cause(
                "transform", 0.53, "RandomElastic.__call__ takes 3.6 ms of the 4.9 ms of a sample", elastic
            ),
            Cause(
                "too few workers", 0.14, "2 workers make 25 batches a second; the model would take 84", made
            ),
            Cause("worker restart", 0.04, "workers start anew with each epoch: 310 ms every 30 steps", made),
        ),
        stages={str(stage): seconds for stage, seconds in shape.stages.items()},
        step_s=Interval(0.0412, 0.0398, 0.0429),
        samples_per_s=388.0,
        starved_fraction=0.711,
        ceiling_speedup=Interval(3.46, 3.31, 3.58),
        device_ceiling_speedup=Interval(3.81, 3.64, 3.97),
        advice=advice,
        transforms={name: seconds / 16 for name, seconds in shape.transforms.items()},
        notes=(
            "The first 10 steps are warm-up and count for nothing.",
            "The log's own samples/s fall over an epoch only because of how they are computed.",
        ),
        overhead_s_per_step=0.0000123,
        pause_s_per_step=0.0103,
    )
    after = replace(
        before,
        verdict="compute-bound",
        stages={
            "wait": 0.0028,
            "copy": 0.0012,
            "forward": 0.0042,
            "backward": 0.005,
            "optimizer": 0.0012,
            "other": 0.0009,
        },
        step_s=Interval(0.0153, 0.0149, 0.0158),
        starved_fraction=0.18,
        pause_s_per_step=0.0004,
        advice=(),
    )
    comparison = Comparison(
        applied=advice[:1],
        settings={"train": {"num_workers": 7, "persistent_workers": True}},
        predicted=Interval(2.74, 2.41, 2.93),
        achieved=Interval(2.69, 2.58, 2.79),
        before=before,
        after=after,
        patch=PATCH,
    )
    return Example(record, before, comparison)


def compute_bound() -> Example:
    """Nothing to gain: no advice, no causes."""
    shape = Shape(
        stages={
            "wait": 0.0008,
            "copy": 0.0021,
            "augment": 0.0016,
            "forward": 0.061,
            "backward": 0.118,
            "optimizer": 0.0082,
            "other": 0.0013,
        },
        transforms={"Normalize": 0.004, "ToTensor": 0.003},
        num_workers=4,
        stall_every=1000,
        num_steps=40,
    )
    record = run_of(shape)
    record.machine = replace(record.machine, device="cuda:0 NVIDIA RTX A4000")
    record.moments = [replace(moment, accelerator_use=0.94) for moment in record.moments]
    step_s = sum(shape.stages.values())
    return Example(
        record,
        Diagnosis(
            verdict="compute-bound",
            confidence=0.97,
            sentence="The model itself is the limit: data is ready 99 % of the time. Leave the loader alone.",
            culprit="",
            causes=(),
            stages={str(stage): seconds for stage, seconds in shape.stages.items()},
            step_s=Interval(step_s, step_s * 0.99, step_s * 1.01),
            samples_per_s=82.9,
            starved_fraction=0.004,
            ceiling_speedup=Interval(1.01, 0.99, 1.02),
            device_ceiling_speedup=Interval(1.02, 1.0, 1.03),
            advice=(),
            transforms={name: seconds / 16 for name, seconds in shape.transforms.items()},
            notes=(),
            overhead_s_per_step=0.000018,
        ),
    )


def python_bound() -> Example:
    """A Python loop in the forward pass: operators and lines, gradient accumulation, no ceiling."""
    shape = Shape(
        stages={"wait": 0.0004, "forward": 0.182, "backward": 0.201, "optimizer": 0.0061, "other": 0.0312},
        transforms={},
        num_workers=0,
        num_steps=30,
        num_replayed=0,
        batches_per_step=4,
        stall_every=11,
        stall_s=0.5,
    )
    record = run_of(shape)
    record.not_observed = {
        "copy": "the run stays on the CPU",
        "augment": "no augmentation was seen",
        "ceiling": "the loader is a generator, so its batches could not be kept",
    }
    scan = Place(f"{ROOT}/scan.py", 33, "SelectiveScan.forward", "h = a[:, t] * h + b[:, t]")
    record.operators = Operators(
        per_step=10_482.0,
        seconds_per_operator=0.0000365,
        by_module={"SelectiveScan": 9_800.0, "Linear": 402.0, "LayerNorm": 280.0},
        host_syncs={".item() train.py:120": 4.0, ".cpu() train.py:121": 4.0},
    )
    record.lines = [
        line("loop", "forward", 33, scan.text, "scan.py", 5.2, module="SelectiveScan"),
        line(
            "loop",
            "other",
            121,
            "f1 = f1_score(y.cpu(), p.cpu())",
            "train.py",
            0.9,
            callee="sklearn.metrics.f1_score",
        ),
    ]
    step_s = sum(shape.stages.values())
    return Example(
        record,
        Diagnosis(
            verdict="python-bound",
            confidence=0.88,
            sentence="Python issues 10,482 tiny operators a step; SelectiveScan's loop issues 93 % of them.",
            culprit="SelectiveScan.forward",
            causes=(
                Cause("operators", 0.84, "SelectiveScan.forward issues 9,800 operators of 37 µs", scan),
                Cause(
                    "host code",
                    0.07,
                    "f1_score runs on host copies of every batch",
                    Place(f"{ROOT}/train.py", 121),
                ),
            ),
            stages={str(stage): seconds for stage, seconds in shape.stages.items()},
            step_s=Interval(step_s, step_s * 0.96, step_s * 1.05),
            samples_per_s=152.0,
            starved_fraction=0.001,
            ceiling_speedup=None,
            device_ceiling_speedup=None,
            advice=(
                Advice(
                    key="compile",
                    action="Compile SelectiveScan with torch.compile",
                    reason="9,800 operators of 37 µs would become a few hundred.",
                    speedup=Interval(3.9, 1.8, 6.2),
                    ram_bytes=0,
                    changes_training=False,
                    place=scan,
                ),
            ),
            transforms={},
            notes=("Gradients are accumulated over 4 batches; a step is all of them.",),
            overhead_s_per_step=0.000031,
        ),
    )


def crashed() -> Example:
    """A worker dies; some figures exist."""
    example = input_bound()
    record = replace(
        example.record,
        steps=example.record.steps[:22],
        batches=example.record.batches[:24],
        pauses=[],
        ended="crashed",
        exit_code=1,
        error='Traceback (most recent call last):\n  File "train.py", line 112, in main\n'
        "    for images, masks in loader:\n"
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        events=[Event(1.4, "crash", "DataLoader worker (pid 4711) is killed by signal: Killed.")],
    )
    diagnosis = replace(
        example.diagnosis,
        confidence=0.41,
        ceiling_speedup=None,
        device_ceiling_speedup=None,
        notes=("Only 12 measured steps came before the crash.",),
    )
    return Example(record, diagnosis)


def nothing_observed() -> Example:
    """A script that trains nothing."""
    record = Record(command=["python", "prepare.py"], machine=machine(), seconds=2.4, user_root=ROOT)
    record.not_observed = {"steps": "no optimizer step was taken", "loaders": "no DataLoader was made"}
    return Example(
        record,
        Diagnosis(
            verdict="nothing observed",
            confidence=0.0,
            sentence="No training was seen: the script took no optimizer step and made no DataLoader.",
            culprit="",
            causes=(),
            stages={},
            step_s=Interval(0.0, 0.0, 0.0),
            samples_per_s=None,
            starved_fraction=0.0,
            ceiling_speedup=None,
            device_ceiling_speedup=None,
            advice=(),
            transforms={},
            notes=("If the training runs in another process, start the doctor on that process's script.",),
            overhead_s_per_step=0.0,
        ),
    )


def hostile() -> Example:
    """Markup, terminal sequences and very long words wherever a user's string may stand."""
    record, found, comparison = input_bound()
    assert comparison is not None
    place = Place(f"{ROOT}/{HOSTILE}/{'very_long_folder_name_' * 8}.py", 3, HOSTILE, HOSTILE + " = x" * 80)
    advice = tuple(
        replace(
            item,
            action=HOSTILE,
            reason=HOSTILE * 3,
            place=place,
            loader=HOSTILE,
            patch=f"+{HOSTILE}\n-\t</pre>\n",
        )
        for item in found.advice
    )
    bad = replace(
        record,
        command=["python", f"{HOSTILE}.py", "--name", HOSTILE],
        machine=replace(record.machine, device=HOSTILE, platform=HOSTILE),
        loaders=[
            replace(loader, name=HOSTILE + loader.name, dataset=HOSTILE, collate=HOSTILE, made_at=place)
            for loader in record.loaders
        ],
        batches=[
            replace(batch, loader=HOSTILE + batch.loader, transforms={HOSTILE: batch.fetch_s / 2})
            for batch in record.batches
        ],
        pauses=[replace(pause, loader=HOSTILE) for pause in record.pauses],
        lines=[replace(each, place=place, callee=HOSTILE, module=HOSTILE) for each in record.lines],
        operators=Operators(3.0, 0.1, {HOSTILE: 3.0}, {HOSTILE: 1.0}),
        events=[Event(0.5, HOSTILE, HOSTILE, place)],
        not_observed={HOSTILE: HOSTILE, "augment": HOSTILE},
        error=HOSTILE,
        ended="crashed",
    )
    diagnosis = replace(
        found,
        sentence=f"The model waits for {HOSTILE}.",
        culprit=HOSTILE,
        causes=(Cause(HOSTILE, 0.5, HOSTILE, place),),
        advice=advice,
        transforms={HOSTILE: 0.004, "x" * 200: 0.001},
        notes=(HOSTILE,),
    )
    return Example(
        bad,
        diagnosis,
        replace(comparison, applied=advice, settings={HOSTILE: {HOSTILE: HOSTILE}}, patch=HOSTILE),
    )


def long_run(*, num_steps: int = 10_000, batches_per_step: int = 5) -> Example:
    """As many steps and batches as a run of hours may have."""
    example = input_bound()
    shape = Shape(
        stages={"wait": 0.0293, "copy": 0.0011, "forward": 0.0041, "backward": 0.0049, "other": 0.0018},
        transforms={"RandomElastic": 0.0031},
        num_workers=16,
        num_steps=num_steps,
        epoch_every=500,
        stall_every=1777,
        num_moments=3_000,
        num_cores=64,
        batches_per_step=batches_per_step,
    )
    return Example(run_of(shape), example.diagnosis)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "input-bound": input_bound,
    "compute-bound": compute_bound,
    "python-bound": python_bound,
    "crashed": crashed,
    "nothing observed": nothing_observed,
    "hostile": hostile,
}


def machine(*, num_cores: int = 8) -> Machine:
    return Machine(
        num_cores=num_cores,
        num_cores_present=16,
        memory_bytes=64_000_000_000,
        device="cpu",
        num_torch_threads=num_cores,
        python="3.11.7",
        torch="2.13.0",
        platform="Linux-6.1-x86_64",
    )


def loader_of(**changes: Any) -> Loader:
    place = Place(
        f"{ROOT}/train.py", changes.pop("line", 88), "main", "loader = DataLoader(data, batch_size=16, …)"
    )
    fields: dict[str, Any] = {
        "name": "train",
        "role": "train",
        "batch_size": 16,
        "num_workers": 2,
        "prefetch_factor": 2,
        "persistent_workers": False,
        "pin_memory": False,
        "in_order": True,
        "shuffles": True,
        "drop_last": True,
        "start_method": "fork",
        "collate": "default_collate",
        "dataset": "Scans",
        "is_iterable": False,
        "num_samples": 18_400,
        "num_batches": 1150,
        "made_at": place,
        "num_epochs": 2,
    }
    return Loader(**{**fields, **changes})


def line(
    process: Any, stage: Stage | None, number: int, text: str, file: str, seconds: float, **more: str
) -> Line:
    return Line(
        process=process,
        stage=stage,
        place=Place(f"{ROOT}/{file}", number, "", text),
        callee=more.get("callee", ""),
        module=more.get("module", ""),
        in_loop_header=text.startswith("for "),
        num_samples=round(seconds * 100),
        seconds=seconds,
    )


def run_of(shape: Shape) -> Record:
    """Steps, batches, pauses and moments of a run that goes as the shape says."""
    random = Random(7)
    record = Record(
        command=["python", "train.py", "--epochs", "3", "--data", "scans/"],
        machine=machine(num_cores=shape.num_cores),
        loaders=[loader_of(num_workers=shape.num_workers)],
        overhead_s_per_step=0.0000123,
        ended="stopped",
        user_root=ROOT,
    )
    lengths: dict[Phase, int] = {
        "warmup": shape.num_warmup,
        "normal": shape.num_steps,
        "host": shape.num_replayed,
        "device": shape.num_replayed,
    }
    phases = [phase for phase, length in lengths.items() for _ in range(length)]
    now = 0.35
    for index, phase in enumerate(phases):
        if index and index % shape.epoch_every == 0 and phase == "normal":
            record.pauses.append(Pause("validation", now, now + 0.21, "validation"))
            record.pauses.append(Pause("epoch start", now + 0.21, now + 0.52, "train"))
            now += 0.52
        step = _step(shape, phase, index, now, random)
        if phase in {"warmup", "normal"}:
            record.batches += _batches(shape, step, index, random)
        record.steps.append(step)
        now = step.end_s
    record.seconds = now + 0.1
    record.moments = _moments(shape, record, random)
    return record


def _step(shape: Shape, phase: Phase, index: int, begin_s: float, random: Random) -> Step:
    left_out = {"host": {"wait"}, "device": {"wait", "copy"}}.get(phase, set())
    stages: dict[Stage, float] = {
        stage: seconds * random.uniform(0.85, 1.18) * (0.02 if stage in left_out else 1.0)
        for stage, seconds in shape.stages.items()
    }
    if phase == "warmup":
        stages["forward"] *= 1 + 5 / (1 + index)
    if phase == "normal" and index % shape.stall_every == shape.stall_every - 1:
        stages["wait"] += shape.stall_s
    waits = tuple(stages["wait"] / shape.batches_per_step for _ in range(shape.batches_per_step))
    end_s = begin_s + sum(stages.values())
    return Step(
        phase,
        begin_s,
        end_s,
        stages,
        shape.batches_per_step,
        16 * shape.batches_per_step,
        shape.loader,
        waits,
        0.01,
    )


def _batches(shape: Shape, step: Step, index: int, random: Random) -> list[Batch]:
    found = []
    for micro in range(shape.batches_per_step):
        number = index * shape.batches_per_step + micro
        transforms = {name: seconds * random.uniform(0.7, 1.3) for name, seconds in shape.transforms.items()}
        fetch_s = shape.load_s * random.uniform(0.6, 1.5) + sum(transforms.values())
        collate_s = 0.0016 * random.uniform(0.8, 1.3)
        waited = step.waits[micro]
        asked_s = step.begin_s + micro * step.seconds / shape.batches_per_step
        ready_s = asked_s + waited * 0.95
        found.append(
            Batch(
                loader=shape.loader,
                number=number,
                epoch=0,
                worker=number % shape.num_workers if shape.num_workers else None,
                phase=step.phase,
                begin_s=max(0.0, ready_s - fetch_s - collate_s - 0.001),
                end_s=ready_s,
                fetch_s=fetch_s,
                fetch_cpu_s=fetch_s * 0.83,
                collate_s=collate_s,
                collate_cpu_s=collate_s,
                transforms=transforms,
                num_samples=16,
                num_bytes=12_582_912,
                asked_s=asked_s,
                ready_s=ready_s,
                taken_s=asked_s + waited,
                was_ready=waited < 0.001,
                was_blocked=waited > 0.1,
            )
        )
    return found


def _moments(shape: Shape, record: Record, random: Random) -> list[Moment]:
    moments = []
    for index in range(shape.num_moments):
        share = index / shape.num_moments
        memory = 1.1e9 + 2.4e9 * min(1.0, share * 4) + 1e8 * random.random()
        swing = random.gauss(0, 0.1)
        use = tuple(
            min(1.0, max(0.02, (0.9 if core < 3 else 0.12) + swing * (-1) ** (core + index)))
            for core in range(shape.num_cores)
        )
        moments.append(
            Moment(
                time_s=share * record.seconds,
                memory_bytes=round(memory),
                worker_memory_bytes=round(memory * 0.55),
                core_use=use,
                process_cpu=sum(use) * 0.9,
                accelerator_use=None,
            )
        )
    return moments
