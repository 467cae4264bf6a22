"""Measure every pair of modules, one at a time: python examples/survey_pairs.py BENCH RECORD [--emulate] [--out pairs].

Writes pairs.csv, and pairs.png if matplotlib is installed. Pairs that cannot be connected are listed with the reason.
"""

import argparse
import csv
from pathlib import Path

from lumion_hw import Bench, LumionError, load_record
from lumion_hw.circuits import CircuitRequest, PathSetup


def survey(bench, setup):
    """Yield source, target, loss, predicted loss and margin in dB, and the reason if the pair cannot be connected."""
    sources = dict.fromkeys(path.transponder for path in bench.wiring.inputs if path.transponder)
    targets = dict.fromkeys(path.transponder for path in bench.wiring.outputs if path.transponder)
    for source in sources:
        for target in targets:
            if source == target:
                continue
            request = CircuitRequest(source, target)
            try:
                (proof,) = setup.connect([request])
            except LumionError as error:
                yield source, target, None, None, None, str(error)
                continue
            setup.disconnect([request])
            numbers = (proof.measured_loss_db, proof.circuit.budget.mesh_loss_db, proof.margin_db)
            yield source, target, *(round(number, 2) for number in numbers), ""


def draw(rows, path):
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("no picture: pip install matplotlib")
        return
    sources, targets = (list(dict.fromkeys(row[column] for row in rows)) for column in (0, 1))
    loss = {(row[0], row[1]): row[2] for row in rows}
    table = [[loss.get((source, target)) for target in targets] for source in sources]
    figure, axes = pyplot.subplots()
    image = axes.imshow([[float("nan") if cell is None else cell for cell in line] for line in table])
    axes.set_xticks(range(len(targets)), targets, rotation=45)
    axes.set_yticks(range(len(sources)), sources)
    figure.colorbar(image, label="mesh loss (dB)")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description="Measure every pair of modules.")
    parser.add_argument("bench")
    parser.add_argument("record")
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("pairs"))
    given = parser.parse_args()

    with Bench.emulate(given.bench, seed=given.seed) if given.emulate else Bench.open(given.bench) as bench:
        rows = list(survey(bench, PathSetup(bench, load_record(given.record))))
    with given.out.with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["source", "target", "loss_db", "predicted_db", "margin_db", "why_not"])
        table.writerows(rows)
    draw(rows, given.out.with_suffix(".png"))
    print(f"{sum(row[2] is not None for row in rows)} of {len(rows)} pairs measured")


if __name__ == "__main__":
    main()
