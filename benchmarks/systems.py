"""How much faster are the complete systems than the pipelines they replace?

    python benchmarks/systems.py [heart_sounds] [emg_pose] [cardiac_ct] [face_parsing] [printer_tcn] [--quick]

Each section runs a pipeline as its authors describe it, and ours, on the same data, with the same work
to do, in turns. A row "times as fast as" divides two figures of one repetition. A section writes its
results as soon as it has them, to files of its own.
"""

import argparse
import importlib
import importlib.util
import sys

from measuring import Report, misses

SECTIONS = {
    "heart_sounds": "systems_heart_sounds",
    "emg_pose": "systems_emg_pose",
    "cardiac_ct": "systems_cardiac_ct",
    "face_parsing": "systems_face_parsing",
    "printer_tcn": "systems_printer_tcn",
}


def main() -> None:
    """Measure, print, write."""
    there = [name for name, module in SECTIONS.items() if importlib.util.find_spec(module) is not None]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(there)}; by default all")
    parser.add_argument("--quick", action="store_true", help="little data; nothing is written")
    options = parser.parse_args()
    unknown = set(options.sections) - set(there)
    if unknown:
        parser.error(f"no section is called {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    missed: list[str] = []
    for name in options.sections or there:
        libraries = ("torch", "numpy", "scipy", "numba", "h5py")
        report = Report(SECTIONS[name], libraries, command=f"systems.py {name}")
        importlib.import_module(SECTIONS[name]).measure(report, quick=options.quick)
        if options.quick:
            for row in report.rows:
                print(f"{row.workload}: {row.system}: {row.value:.4g} {row.unit}")
        else:
            report.write()
            missed += [row.system for row in report.rows if misses(row)]
    if missed:
        sys.exit(f"budgets missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
