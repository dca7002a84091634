"""Stand-in for `nvidia-smi`: machines with MIG, whose state is in a file. Run as a program, by `Machine`.

The sentences and tables are those of NVIDIA's driver. Memory counts in eighths of a GPU, and computing in sevenths.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

SHARES = {"1g.10gb": (1, 1), "1g.20gb": (2, 1), "2g.20gb": (2, 2), "3g.40gb": (4, 3), "7g.80gb": (8, 7)}
IDS = {"1g.10gb": 19, "1g.20gb": 15, "2g.20gb": 14, "3g.40gb": 9, "7g.80gb": 0}
BUS = "00000000:07:00.0"
IN_USE = (
    f"{BUS} is currently being used by one or more other processes (e.g. CUDA application or a monitoring application "
    "such as another instance of nvidia-smi). Please first kill all processes using the device and retry the command "
    "or reboot the system to make MIG mode effective."
)


def main(words: list[str], state: dict[str, Any]) -> int:
    """Run a command on the machine; return the exit status."""
    gpus: list[dict[str, Any]] = state["gpus"]
    match words:
        case ["-L"]:
            _list_devices(gpus)
        case ["--query-gpu=index,mig.mode.current", "--format=csv,noheader"]:
            for number, gpu in enumerate(gpus):
                print(f"{number}, {gpu['mode']}")
        case ["-i", number, "--query-gpu=mig.mode.current", "--format=csv,noheader"]:
            print(gpus[int(number)]["mode"])
        case ["-i", number, "-mig", "1"]:
            return _enable(gpus[int(number)])
        case ["mig", "-i", number, *rest]:
            return _manage(gpus[int(number)], number, rest)
        case _:
            print(f"Invalid combination of input arguments: {words}")
            return 2
    return 0


def _list_devices(gpus: list[dict[str, Any]]) -> None:
    for number, gpu in enumerate(gpus):
        print(f"GPU {number}: NVIDIA A100-SXM4-80GB (UUID: GPU-{number}23ea5a2-11b3-2ef7-9d5c-6f4a3a0c5e1d)")
        devices = [each for each in gpu["instances"] if each["computes"]]
        for place, each in enumerate(devices):
            name = each["profile"].ljust(11)
            print(f"  MIG {name} Device  {place}: (UUID: MIG-{number}{each['id']:02}d4f1e-42e4-5de3-91c7-45d71c87eb3f)")


def _enable(gpu: dict[str, Any]) -> int:
    if refusal := gpu.get("refuses"):
        print(f"Unable to enable MIG Mode for GPU {BUS}: {refusal}\nTerminating early due to previous errors.")
        return 4
    if gpu.get("used"):
        print(f"Warning: MIG mode is in pending enable state for GPU {BUS}:In use by another client\n{IN_USE}")
    else:
        gpu["mode"] = "Enabled"
        print(f"Enabled MIG Mode for GPU {BUS}")
    print("All done.")
    return 0


def _manage(gpu: dict[str, Any], number: str, words: list[str]) -> int:
    instances: list[dict[str, Any]] = gpu["instances"]
    match words:
        case ["-lgip"]:
            _list_profiles(gpu, number)
        case ["-lgi"]:
            if not instances:
                print("No GPU instances found: Not Found")
                return 6
            _table(
                "GPU instances:",
                [_row(number, each["profile"], IDS[each["profile"]], each["id"], "0:1") for each in instances],
            )
        case ["-lci", "-gi", id]:
            (found,) = [each for each in instances if str(each["id"]) == id]
            if not found["computes"]:
                print("No compute instances found: Not Found")
                return 6
            _table("Compute instances:", [_row(f"{number}      {id}", found["profile"], 0, 0, "0:1")])
        case ["-cgi", names, "-C"]:
            return _create(gpu, number, names.split(","))
        case ["-gi", id, "-cci"]:
            (found,) = [each for each in instances if str(each["id"]) == id]
            found["computes"] = True
            print(f"Successfully created compute instance ID  0 on GPU  {number} GPU instance ID  {id}")
        case _:
            print(f"Invalid combination of input arguments: {words}")
            return 2
    return 0


def _create(gpu: dict[str, Any], number: str, names: list[str]) -> int:
    for name in names:
        refusal = gpu.get("refuses") or ("Insufficient Resources" if _free(gpu, name) < 1 else "")
        if refusal:
            print(f"Unable to create a GPU instance on GPU  {number} using profile {name}: {refusal}")
            print(f"Failed to create GPU instances: {refusal}")
            return 19
        id = max([each["id"] for each in gpu["instances"]], default=6) + 1
        gpu["instances"].append({"id": id, "profile": name, "computes": True})
        made = f"Successfully created GPU instance ID {id:2} on GPU {number:>2}"
        print(f"{made} using profile MIG {name} (ID {IDS[name]:2})")
        print(f"Successfully created compute instance ID  0 on GPU {number:>2} GPU instance ID {id:2}")
    return 0


def _free(gpu: dict[str, Any], name: str) -> int:
    memory = 8 - sum(SHARES[each["profile"]][0] for each in gpu["instances"])
    computing = 7 - sum(SHARES[each["profile"]][1] for each in gpu["instances"])
    return min(memory // SHARES[name][0], computing // SHARES[name][1])


def _list_profiles(gpu: dict[str, Any], number: str) -> None:
    empty: dict[str, Any] = {"instances": []}
    names = {"1g.10gb+me": 20, **IDS}
    rows = []
    for name, id in names.items():
        plain = name.removesuffix("+me")
        free, total = _free(gpu, plain), _free(empty, plain)
        count = f"{free}/{total}" if plain == name else f"{min(free, 1)}/1"
        rows.append(f"|   {number}  MIG {name:<16} {id:>2}     {count:<9} 9.50       No     14     0     0   |")
        rows.append(f"|{'1     1     0   |':>77}")
    _table("GPU instance profiles:", rows)


def _row(start: str, name: str, profile: int, id: int, place: str) -> str:
    return f"|   {start}  MIG {name:<14} {profile:>2}       {id:>2}          {place}     |"


def _table(title: str, rows: list[str]) -> None:
    line = f"+{'-' * 55}+"
    print(line)
    print(f"| {title:<54}|\n| {'GPU   Name             Profile  Instance   Placement':<54}|\n|{'=' * 55}|")
    print(*rows, line, sep="\n")


if __name__ == "__main__":
    path = Path(os.environ["STAND_INS"], "gpus.json")
    before = path.read_text()
    machine = json.loads(before)
    status = main(sys.argv[1:], machine)
    if (after := json.dumps(machine)) != before:
        (changed := path.with_suffix(f".{os.getpid()}")).write_text(after)
        changed.replace(path)
    sys.exit(status)
